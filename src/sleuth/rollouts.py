"""The rollouts file: one trajectory a line, schema ``sleuth.rollout/1``.

``rollouts.jsonl`` (``.zst`` and ``.gz`` too) is UTF-8 with text as it is, no ``\\u`` escapes. Fields that are empty,
None or False and whose absence means the same are left out. Log-probs and rewards may be NaN or ±Infinity, written as
Python's ``json`` writes them (``NaN``, ``-Infinity``): a broken rollout is data, and the objectives drop such tokens.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import fields
from enum import StrEnum
from typing import Any, TypeVar

from sleuth.errors import UserError
from sleuth.jsonl import read_jsonl, write_jsonl
from sleuth.types import (
    STATUS_OF,
    Action,
    ActionType,
    Document,
    EndReason,
    Part,
    PartKind,
    Problem,
    Span,
    SpanKind,
    Status,
    StopReason,
    Trajectory,
)

SCHEMA = "sleuth.rollout/1"

_LOGPROBS = ("logprobs", "old_logprobs", "new_logprobs", "ref_logprobs", "teacher_logprobs")
_FIELDS = {"schema"} | {field.name for field in fields(Trajectory)}
_USUAL_END = {
    Status.ANSWERED: EndReason.ANSWER,
    Status.NO_ANSWER: EndReason.MAX_TURNS,
    Status.TRUNCATED: EndReason.MAX_TOKENS,
    Status.RETRIEVER_FAILED: EndReason.RETRIEVER_FAILED,
    Status.ABORTED: EndReason.ABORTED,
}

E = TypeVar("E", bound=StrEnum)


class InvalidRollout(ValueError):
    """A row breaks the schema; the message starts with the field, as in ``spans[1].logprobs: …``."""


def read_rollouts(path: str | os.PathLike[str]) -> Iterator[Trajectory]:
    """The trajectories of a rollouts file, one at a time, checked.

    ``schema``, ``id``, ``group``, ``question``, ``golden_answers``, ``spans`` and ``status`` must be there; an absent
    ``end`` is the usual one for its status. Unknown fields of a row are kept in :attr:`Trajectory.extra` (where
    ``extra`` itself has the name already, that one stays); unknown fields inside spans, actions and documents are
    ignored.

    Raises:
        UserError: at the row in question, names file, line and field: missing or ill-typed field, lists of unequal
            length, unknown kind, status, action or stop reason, part outside its span, or an id that an earlier row of
            the same step has.
    """
    for _, trajectory in read_numbered_rollouts(path):
        yield trajectory


def read_numbered_rollouts(path: str | os.PathLike[str]) -> Iterator[tuple[int, Trajectory]]:
    """:func:`read_rollouts` with the line of each, counted from 1: for whoever finds fault with one later."""
    seen: dict[tuple[int, str], int] = {}
    for line, row in read_jsonl(path):
        try:
            trajectory = from_dict(row)
        except InvalidRollout as error:
            raise UserError(f"{path}, line {line}: {error}") from None
        key = (trajectory.step, trajectory.id)
        if key in seen:
            raise UserError(
                f'{path}, line {line}: id: "{trajectory.id}" was used on line {seen[key]}; give each rollout its own'
            )
        seen[key] = line
        yield line, trajectory


def write_rollouts(path: str | os.PathLike[str], trajectories: Iterable[Trajectory]) -> None:
    """Write a rollouts file; it appears under its name when complete, compressed by its ending (``.zst``, ``.gz``)."""
    write_jsonl(path, (to_dict(trajectory) for trajectory in trajectories))


# ---------------------------------------------------------------------------------------------------------------------
# Writing


def to_dict(trajectory: Trajectory) -> dict[str, Any]:
    """The row of a trajectory; :func:`from_dict` gives the trajectory back."""
    t = trajectory
    always = {
        "schema": SCHEMA,
        "id": t.id,
        "group": t.group,
        "step": t.step,
        "question": t.question,
        "golden_answers": t.golden_answers,
    }
    outcome = {"status": t.status.value, "end": t.end.value, "format_valid": t.format_valid}
    return {
        **always,
        **_set({"update": t.update}),
        **_present({"data_source": t.data_source}),
        "spans": [_span_to_dict(span) for span in t.spans],
        **_set({"answer": t.answer}),
        **outcome,
        **_set({"reward": t.reward}),
        **_present(
            {"rewards": t.rewards, "counts": t.counts, "supporting_titles": t.supporting_titles, "extra": t.extra}
        ),
        **_set({"error": t.error}),
    }


def _span_to_dict(span: Span) -> dict[str, Any]:
    row: dict[str, Any] = {"kind": span.kind.value, "ids": span.ids, **_present({"text": span.text})}
    row |= _set({name: getattr(span, name) for name in _LOGPROBS})
    if span.action is not None:
        action = span.action
        row["action"] = {
            "type": action.type.value,
            **_set({"query": action.query, "text": action.text, "name": action.name, "arguments": action.arguments}),
            **_set({"problem": action.problem and action.problem.value}),
        }
    row |= _set({"stop": span.stop and span.stop.value})
    row |= _present(
        {
            "parts": [{"kind": part.kind.value, "start": part.start, "end": part.end} for part in span.parts],
            "documents": [
                {"id": d.id, "title": d.title, **_present({"text": d.text}), **_set({"score": d.score})}
                for d in span.documents
            ],
            "truncated": span.truncated,
        }
    )
    return row


def _set(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _present(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value}


# ---------------------------------------------------------------------------------------------------------------------
# Reading


def from_dict(row: dict[str, Any]) -> Trajectory:
    """The trajectory of a row.

    Raises:
        InvalidRollout: the row breaks the schema; names the field.
    """
    if row.get("schema") != SCHEMA:
        raise InvalidRollout(f'schema: must be "{SCHEMA}", not {_shown(row.get("schema"))}')
    read = _Fields(row, "")
    status = read.member("status", Status)
    end = read.member("end", EndReason, _USUAL_END[status])
    if STATUS_OF[end] is not status:
        raise InvalidRollout(f'end: "{end}" means status "{STATUS_OF[end]}", but status is "{status}"')
    unknown = {name: value for name, value in row.items() if name not in _FIELDS}
    return Trajectory(
        id=read.text("id"),
        group=read.text("group"),
        question=read.text("question"),
        golden_answers=read.texts("golden_answers", required=True),
        spans=[_span(item) for item in read.objects("spans", required=True)],
        data_source=read.text("data_source", ""),
        step=read.integer("step", 0),
        update=read.integer_or_none("update"),
        answer=read.text_or_none("answer"),
        status=status,
        end=end,
        format_valid=read.flag("format_valid"),
        counts=read.mapping("counts", int),
        reward=read.number("reward"),
        rewards=read.mapping("rewards", float),
        error=read.text_or_none("error"),
        supporting_titles=read.texts("supporting_titles"),
        extra=unknown | (read.dictionary("extra") or {}),
    )


def _span(read: _Fields) -> Span:
    ids = read.ids("ids")
    logprobs = {name: read.logprobs(name, len(ids)) for name in _LOGPROBS}
    return Span(
        kind=read.member("kind", SpanKind),
        ids=ids,
        text=read.text("text", ""),
        action=_action(read),
        stop=read.member("stop", StopReason, None),
        parts=[_part(item, len(ids)) for item in read.objects("parts")],
        documents=[_document(item) for item in read.objects("documents")],
        truncated=read.flag("truncated"),
        **logprobs,
    )


def _action(span: _Fields) -> Action | None:
    row = span.dictionary("action")
    if row is None:
        return None
    read = _Fields(row, f"{span.where}action.")
    kind = read.member("type", ActionType)
    needed = {ActionType.SEARCH: "query", ActionType.ANSWER: "text", ActionType.TOOL: "name"}.get(kind)
    if needed is not None:
        read.text(needed)
    return Action(
        type=kind,
        query=read.text_or_none("query"),
        text=read.text_or_none("text"),
        name=read.text_or_none("name"),
        arguments=read.dictionary("arguments"),
        problem=read.member("problem", Problem, None),
    )


def _part(read: _Fields, length: int) -> Part:
    part = Part(read.member("kind", PartKind), read.integer("start"), read.integer("end"))
    if not 0 <= part.start <= part.end <= length:
        raise InvalidRollout(f"{read.where}start: {part.start} to {part.end} is no part of a span of {length} ids")
    return part


def _document(read: _Fields) -> Document:
    return Document(read.text("id"), read.text("title", ""), read.text("text", ""), read.number("score"))


_REQUIRED: Any = object()


class _Fields:
    """Reads typed fields of one JSON object; ``where`` is its place in the row, as in ``spans[1].``."""

    def __init__(self, row: dict[str, Any], where: str) -> None:
        self.row = row
        self.where = where

    def text(self, name: str, default: str = _REQUIRED) -> str:
        return self._get(name, str, "a string", default)

    def text_or_none(self, name: str) -> str | None:
        return self._get(name, str, "a string", None)

    def integer(self, name: str, default: int = _REQUIRED) -> int:
        return self._get(name, int, "an integer", default)

    def integer_or_none(self, name: str) -> int | None:
        return self._get(name, int, "an integer", None)

    def number(self, name: str) -> float | None:
        return None if self.row.get(name) is None else self.real(name)

    def real(self, name: str) -> float:
        return self._float(name, self._get(name, (int, float), "a number", _REQUIRED))

    def flag(self, name: str) -> bool:
        value = self.row.get(name, False)
        if not isinstance(value, bool):
            raise self._wrong(name, "true or false", value)
        return value

    def dictionary(self, name: str) -> dict[str, Any] | None:
        return self._get(name, dict, "an object", None)

    def member(self, name: str, kind: type[E], default: E | None = _REQUIRED) -> E:
        """A value of an enumeration; None only where that is the default."""
        value = self._get(name, str, "a string", default)
        if default is not _REQUIRED and self.row.get(name) is None:
            return value
        try:
            return kind(value)
        except ValueError:
            raise self._wrong(name, f"one of {', '.join(kind)}", value) from None

    def texts(self, name: str, required: bool = False) -> list[str]:
        values = self._list(name, required)
        for value in values:
            if not isinstance(value, str):
                raise self._wrong(name, "a list of strings", value, " in it")
        return values

    def objects(self, name: str, required: bool = False) -> list[_Fields]:
        values = self._list(name, required)
        for i, value in enumerate(values):
            if not isinstance(value, dict):
                raise self._wrong(f"{name}[{i}]", "an object", value)
        return [_Fields(value, f"{self.where}{name}[{i}].") for i, value in enumerate(values)]

    def ids(self, name: str) -> list[int]:
        values = self._list(name, required=True)
        for value in values:
            if type(value) is not int or value < 0:
                raise self._wrong(name, "a list of token ids", value, " in it")
        return values

    def logprobs(self, name: str, length: int) -> list[float] | None:
        if self.row.get(name) is None:
            return None
        values = self._list(name, required=True)
        if len(values) != length:
            raise InvalidRollout(f"{self.where}{name}: {len(values)} values for {length} ids; they must be as many")
        for value in values:
            if type(value) is not float and type(value) is not int:
                raise self._wrong(name, "a list of numbers", value, " in it")
        return [self._float(name, value) for value in values]

    def mapping(self, name: str, kind: type) -> dict[str, Any]:
        values = self.dictionary(name) or {}
        read = _Fields(values, f"{self.where}{name}.")
        return {key: read.integer(key) if kind is int else read.real(key) for key in values}

    def _float(self, name: str, value: float) -> float:
        try:
            return float(value)
        except OverflowError:
            raise self._wrong(name, "a number that a float can hold", value) from None

    def _list(self, name: str, required: bool) -> list[Any]:
        return self._get(name, list, "a list", _REQUIRED if required else [])

    def _get(self, name: str, kind: type | tuple[type, ...], expected: str, default: Any) -> Any:
        value = self.row.get(name)
        if value is None:
            if default is not _REQUIRED:
                return default
            if name not in self.row:
                raise InvalidRollout(f"{self.where}{name}: missing; it must be {expected}")
        # JSON's true and false are Python's integers 1 and 0, which no field here means.
        if isinstance(value, bool) or not isinstance(value, kind):
            raise self._wrong(name, expected, value)
        return value

    def _wrong(self, name: str, expected: str, value: Any, place: str = "") -> InvalidRollout:
        return InvalidRollout(f"{self.where}{name}: must be {expected}, not {_shown(value)}{place}")


def _shown(value: Any) -> str:
    shown = "null" if value is None else f'"{value}"' if isinstance(value, str) else str(value)
    shown = " ".join(shown.split())
    return shown if len(shown) <= 40 else f"{shown[:37]}…"
