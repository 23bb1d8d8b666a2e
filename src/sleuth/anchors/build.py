"""A file of anchors for a question set, a line at a time, so that a kill costs at most the lines in work."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from sleuth.anchors.passages import Passages
from sleuth.anchors.rows import AnchorRow, read_anchor_rows
from sleuth.anchors.supporting import has_support, supporting_anchors
from sleuth.anchors.verify import Answers
from sleuth.errors import UserError
from sleuth.jsonl import replace_surrogates, write_jsonl
from sleuth.types import Question, Retriever

Collect = Callable[[Sequence[Question]], list[AnchorRow | None]]
"""Looks for the evidence of questions; None for one that failed and should be tried again."""

_AT_ONCE = 64


@dataclass(slots=True)
class Built:
    """What became of the questions.

    Attributes:
        kept: rows that were there already.
        rows: that were made now. ``failed``: questions that are left for another try.
        without_support: questions that name no evidence, where nobody was there to look for it.
        problems: anchors that were left out, with the question's id.
    """

    kept: int = 0
    rows: int = 0
    anchored: int = 0
    anchors: int = 0
    failed: int = 0
    without_support: int = 0
    sources: Counter[str] = field(default_factory=Counter)
    problems: list[tuple[str, str]] = field(default_factory=list)


def build_anchors(
    questions: Sequence[Question],
    retriever: Retriever,
    out: Path,
    *,
    answers: Answers = "hide",
    strict: bool = False,
    collect: Collect | None = None,
    say: Callable[[int, int], None] = lambda done, of: None,
) -> Built:
    """Write a row for each question into ``out``; rows that it holds already stay.

    Args:
        strict: a question with an anchor that isn't sound keeps none (in the paper it leaves the training set).
        collect: for questions that name no evidence; None: they get no row.
        say: told how far it is.

    Raises:
        UserError: no question names evidence and there is no ``collect``; ``out`` is another file; the retriever or the
            model refuses.
    """
    if collect is None and not any(map(has_support, questions)):
        raise UserError(
            "no question names its evidence (supporting_titles, supporting_ids or supporting_facts); let a model look "
            "for it with --collect"
        )
    done = _rows_of(out)
    built = Built(kept=sum(q.id in done for q in questions))
    open_questions = [q for q in questions if q.id not in done]
    passages = Passages(retriever)
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("ab") as file:
        for start in range(0, len(open_questions), _AT_ONCE):
            part = open_questions[start : start + _AT_ONCE]
            rows: list[AnchorRow | None] = [supporting_anchors(q, passages, answers) for q in part if has_support(q)]
            rest = [q for q in part if not has_support(q)]
            if collect is not None and rest:
                rows += collect(rest)
            else:
                built.without_support += len(rest)
            for row in rows:
                if row is None:
                    built.failed += 1
                    continue
                if strict and row.problems:
                    row = replace(row, anchors=())
                built.rows += 1
                built.anchored += bool(row.anchors)
                built.anchors += len(row.anchors)
                built.sources[row.source] += 1
                built.problems += [(row.id, problem) for problem in row.problems]
                file.write(replace_surrogates(json.dumps(row.as_json(), ensure_ascii=False) + "\n").encode())
            file.flush()
            os.fsync(file.fileno())
            say(min(start + _AT_ONCE, len(open_questions)), len(open_questions))
    return built


def _rows_of(out: Path) -> set[str]:
    """Ids of the rows in the file; a line that a kill has cut off is taken out.

    Raises:
        UserError: it is no anchors file.
    """
    if not out.exists():
        return set()
    with out.open("rb") as file:
        whole = file.read()
    if whole and not whole.endswith(b"\n"):
        kept = whole[: whole.rfind(b"\n") + 1]
        write_jsonl(out, (json.loads(line) for line in kept.splitlines()))
    return {row.id for row in read_anchor_rows(out)}
