"""Anchors and the file that holds them, schema ``sleuth.anchors/1``: one question a line.

``{"schema", "id", "question", "anchors": [{"title", "explanation", "passage"}], "source", "problems": […]}``, where
``passage`` is the id of the passage in the corpus. A question whose ``anchors`` are empty has none that is sound, and
``problems`` says why.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sleuth.errors import UserError
from sleuth.jsonl import read_jsonl

SCHEMA = "sleuth.anchors/1"


@dataclass(frozen=True, slots=True)
class Anchor:
    """One piece of evidence: where it stands, and what it says in a few words.

    Attributes:
        passage: id of the passage; None where it is not known.
    """

    title: str
    explanation: str
    passage: str | None = None


@dataclass(frozen=True, slots=True)
class AnchorRow:
    """The anchors of one question.

    Attributes:
        source: ``supporting`` (the data set names the evidence) or ``collected`` (a model looked for it).
        problems: what was wrong with anchors that were left out, a line each.
    """

    id: str
    question: str
    anchors: tuple[Anchor, ...] = ()
    source: str = "supporting"
    problems: tuple[str, ...] = field(default=())

    def as_json(self) -> dict[str, Any]:
        row: dict[str, Any] = {"schema": SCHEMA, "id": self.id, "question": self.question}
        row["anchors"] = [anchor_as_json(anchor) for anchor in self.anchors]
        row["source"] = self.source
        if self.problems:
            row["problems"] = list(self.problems)
        return row


def anchor_as_json(anchor: Anchor) -> dict[str, Any]:
    """An anchor as it stands in files."""
    row = {"title": anchor.title, "explanation": anchor.explanation}
    return row if anchor.passage is None else row | {"passage": anchor.passage}


def read_anchor_rows(path: str | os.PathLike[str]) -> Iterator[AnchorRow]:
    """The rows of an anchors file.

    Raises:
        UserError: names file and line of the first row that can't be read.
    """
    for line, row in read_jsonl(path):
        where = f"{path}, line {line}"
        if row.get("schema") != SCHEMA:
            raise UserError(f'{where}: "schema" is not {SCHEMA}; make the file with sleuth anchors build')
        for name in ("id", "question"):
            if not isinstance(row.get(name), str):
                raise UserError(f'{where}: "{name}" must be text')
        if not isinstance(row.get("anchors"), list):
            raise UserError(f'{where}: "anchors" must be a list')
        anchors = tuple(_anchor(item, f"{where}, anchor {n}") for n, item in enumerate(row["anchors"], 1))
        yield AnchorRow(
            row["id"], row["question"], anchors, str(row.get("source", "supporting")), tuple(row.get("problems", ()))
        )


def read_anchors(path: str | os.PathLike[str]) -> dict[str, AnchorRow]:
    """An anchors file by question id.

    Raises:
        UserError: a broken row, or two of one id.
    """
    rows: dict[str, AnchorRow] = {}
    for row in read_anchor_rows(path):
        if row.id in rows:
            raise UserError(f'{path}: id "{row.id}" stands there twice; keep one of the rows')
        rows[row.id] = row
    return rows


def anchors_hash(rows: Iterable[AnchorRow] | Mapping[str, AnchorRow]) -> str:
    """SHA-256 (hex) of what a teacher reads of these rows, in the order of their ids."""
    listed = rows.values() if isinstance(rows, Mapping) else rows
    digest = hashlib.sha256()
    for row in sorted(listed, key=lambda r: r.id):
        digest.update(json.dumps([row.id, [[a.title, a.explanation] for a in row.anchors]]).encode())
    return digest.hexdigest()


def _anchor(item: Any, where: str) -> Anchor:
    if not isinstance(item, dict) or not all(isinstance(item.get(name), str) for name in ("title", "explanation")):
        raise UserError(f'{where}: must be {{"title", "explanation"}}, both text')
    passage = item.get("passage")
    if passage is not None and not isinstance(passage, str):
        raise UserError(f'{where}: "passage" must be the passage\'s id')
    return Anchor(item["title"], item["explanation"], passage)
