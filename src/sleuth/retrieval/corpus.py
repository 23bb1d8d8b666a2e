"""The passages: read from JSONL, checked, and named by a content hash."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from sleuth.errors import UserError
from sleuth.jsonl import read_jsonl, replace_surrogates
from sleuth.types import Document


@dataclass(slots=True)
class Corpus:
    """Passages in the order of their file.

    Attributes:
        documents: the passages, ids distinct, ``score`` None.
        parts: for each passage the name of the part of the corpus that it belongs to, or None; as long as
            ``documents``. A search may be kept inside one part (:class:`sleuth.types.SearchRequest`).
    """

    documents: list[Document]
    parts: list[str | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.parts:
            self.parts = [None] * len(self.documents)
        if len(self.parts) != len(self.documents):
            raise ValueError(f"{len(self.parts)} parts for {len(self.documents)} documents")

    def __len__(self) -> int:
        return len(self.documents)

    def members(self) -> dict[str, list[int]]:
        """Positions of each named part's passages, in file order."""
        members: dict[str, list[int]] = {}
        for position, part in enumerate(self.parts):
            if part is not None:
                members.setdefault(part, []).append(position)
        return members

    @property
    def hash(self) -> str:
        """See :func:`corpus_hash`."""
        return corpus_hash(self)


def read_corpus(path: str | os.PathLike[str]) -> Corpus:
    """Read passages from a JSONL file (``.gz`` and ``.zst`` too), one a line, in either of two forms.

    * ``{"id", "contents"}``, Search-R1's: the first line of ``contents`` is the title in quotes, the rest the text
      (:func:`split_contents`).
    * ``{"id", "title", "text"}``; ``title`` may be absent. Where a row has both forms, these two fields win.

    ``id`` is a string or an integer, and unique. An optional ``corpus`` names the part that the passage belongs to.
    Other fields are ignored.

    Raises:
        UserError: names file and line: unreadable file, broken line, missing or ill-typed field, an id seen before, or
            no passage at all.
    """
    documents: list[Document] = []
    parts: list[str | None] = []
    first_seen: dict[str, int] = {}
    for line, row in read_jsonl(path):
        where = f"{path}, line {line}"
        document = _document(row, where)
        if document.id in first_seen:
            raise UserError(
                f'{where}: id "{document.id}" was used on line {first_seen[document.id]}; give each passage its own'
            )
        first_seen[document.id] = line
        documents.append(document)
        part = row.get("corpus")
        if part is not None and not isinstance(part, str):
            raise UserError(f'{where}: "corpus" must be a string (the name of the part that the passage belongs to)')
        parts.append(part)
    if not documents:
        raise UserError(f"{path}: no passages; a corpus needs at least one line")
    return Corpus(documents, parts)


def split_contents(contents: str) -> tuple[str, str]:
    """Title and text of Search-R1's ``contents``: the title stands on the first line, the text is the rest.

    One pair of quotes around the title is removed, quotes inside it stay (``"The "Globus" device"``), and quotes
    doubled inside it, as CSV writes them, become one. A single line without quotes around it is text without a title.
    """
    first, newline, rest = contents.partition("\n")
    first = first.strip()
    if len(first) >= 2 and first[0] == first[-1] == '"':
        return first[1:-1].replace('""', '"').strip(), rest.strip()
    return (first, rest.strip()) if newline else ("", first)


def corpus_hash(corpus: Corpus) -> str:
    """SHA-256 (hex) of every passage's id, title, text and part, in order.

    It depends on the content alone: not on the file's name, compression, form or ignored fields.
    """
    digest = hashlib.sha256()
    for document, part in zip(corpus.documents, corpus.parts, strict=True):
        _add_fields(digest, (document.id, document.title, document.text, part))
    return digest.hexdigest()


def _add_fields(digest: Any, fields: Iterable[str | None]) -> None:
    # Each field goes in with its length, so that no two lists of fields look the same; None differs from "".
    for value in fields:
        data = b"" if value is None else value.encode()
        digest.update(f"{-1 if value is None else len(data)}:".encode())
        digest.update(data)


def _document(row: dict[str, Any], where: str) -> Document:
    identity = row.get("id")
    if isinstance(identity, bool) or not isinstance(identity, str | int) or identity == "":
        raise UserError(f'{where}: "id" must be a string or an integer')
    if "text" in row:
        title, text = row.get("title") or "", row["text"]
    elif "contents" in row:
        if not isinstance(row["contents"], str):
            raise UserError(f'{where}: "contents" must be a string')
        title, text = split_contents(row["contents"])
    else:
        raise UserError(
            f'{where}: neither "contents" nor "text"; a passage is {{"id", "contents"}} or {{"id", "title", "text"}}'
        )
    for name, value in (("title", title), ("text", text)):
        if not isinstance(value, str):
            raise UserError(f'{where}: "{name}" must be a string')
    return Document(
        replace_surrogates(str(identity)), replace_surrogates(title).strip(), replace_surrogates(text).strip()
    )
