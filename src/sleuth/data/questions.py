"""Question sets as lists of questions, whole or selected by field."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from sleuth.data.forms import question_of, question_row
from sleuth.data.rows import Row, read_rows
from sleuth.errors import UserError
from sleuth.jsonl import write_jsonl
from sleuth.types import Question

Source = str | os.PathLike[str]


def load_questions(
    source: Source | Sequence[Source], *, where: Mapping[str, Any] | None = None, limit: int | None = None
) -> list[Question]:
    """Questions of one or several sets, in order.

    Rows of these forms are understood (:func:`question_of`), from any place that :func:`sleuth.data.rows.read_rows`
    knows: Sleuth's own JSONL, FlashRAG, Search-R1 and verl parquet, HotpotQA, 2WikiMultihopQA, MuSiQue, SQuAD, NQ-open,
    TriviaQA.

    Args:
        where: field → the value, or list of values, that a row must have to be kept, e.g.
            ``{"support": "gold", "fold": [2, 3]}``. Fields of the row or of an object in it (``extra_info.split``).
        limit: keep the first so many that pass ``where``.

    Raises:
        UserError: names file, row and field: a broken row, an id seen before, an unknown field in ``where``, nothing
            left.
    """
    return [question for _, question in select_questions(source, where=where, limit=limit)]


def select_questions(
    source: Source | Sequence[Source], *, where: Mapping[str, Any] | None = None, limit: int | None = None
) -> Iterator[tuple[Row, Question]]:
    """:func:`load_questions` row by row, each question with the row that it was read from."""
    sources = [source] if isinstance(source, str | os.PathLike) else list(source)
    if limit is not None and limit < 1:
        raise UserError(f"limit={limit}: must be at least 1")
    selection = _Selection(where or {})
    first_seen: dict[str, str] = {}
    for row in chain.from_iterable(map(read_rows, sources)):
        question = question_of(row)
        if not selection.keeps(question):
            continue
        if question.id in first_seen:
            raise UserError(f'{row.place}: id "{question.id}" was used in {first_seen[question.id]}; ids must differ')
        first_seen[question.id] = row.place
        yield row, question
        if len(first_seen) == limit:
            return
    if not first_seen:
        raise UserError(f"{', '.join(map(str, sources))}: {selection.why_empty()}")


def write_questions(path: str | os.PathLike[str], questions: Iterable[Question]) -> None:
    """Write Sleuth's own JSONL, complete or not at all; compressed by the name's ending ``.gz`` or ``.zst``."""
    write_jsonl(path, map(question_row, questions))


class _Selection:
    """Keeps questions whose fields have given values, and remembers which fields it has met."""

    def __init__(self, where: Mapping[str, Any]):
        self._where = {field: _as_list(values) for field, values in where.items()}
        self._missing = set(self._where)
        self._known: set[str] = set()
        self._rows = 0

    def keeps(self, question: Question) -> bool:
        self._rows += 1
        if not self._where:
            return True
        fields = question_row(question)
        self._known.update(fields)
        kept = True
        for field, values in self._where.items():
            found, value = _look_up(fields, field)
            if found:
                self._missing.discard(field)
            kept = kept and found and value in values
        return kept

    def why_empty(self) -> str:
        """What to tell the user who is left without a question."""
        if not self._rows:
            return "no rows"
        for field in sorted(self._missing):
            near = difflib.get_close_matches(field, self._known, 1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(self._known))}"
            return f'no row has the field "{field}"; {hint}'
        wanted = ", ".join(f"{field} in {values}" for field, values in self._where.items())
        return f"none of {self._rows} rows has {wanted}; widen the selection"


def _as_list(values: Any) -> list[Any]:
    return list(values) if isinstance(values, list | tuple | set | frozenset | range) else [values]


def _look_up(fields: Mapping[str, Any], name: str) -> tuple[bool, Any]:
    if name in fields:
        return True, fields[name]
    box, dot, inside = name.partition(".")
    if dot and isinstance(fields.get(box), Mapping):
        return _look_up(fields[box], inside)
    return False, None
