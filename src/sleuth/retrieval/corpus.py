"""The passages: read from wherever they are kept, checked, and named by a content hash."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sleuth.errors import UserError
from sleuth.jsonl import replace_surrogates
from sleuth.retrieval.chunking import Chunking
from sleuth.retrieval.problems import Problem, Problems
from sleuth.retrieval.sources import read_sources
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


@dataclass(frozen=True, slots=True)
class Passage:
    """A passage on its way into a corpus. ``place`` and ``number`` (of the line or row) say where it came from."""

    document: Document
    part: str | None
    place: str
    number: int


def read_corpus(source: str | os.PathLike[str], *, chunking: Chunking | None = None) -> Corpus:
    """The passages of ``source`` (see :func:`read_passages`) in memory, every one of them sound.

    Raises:
        UserError: names file and line of the first passage that is broken, without text or has an id seen before; or
            there is no passage at all.
    """
    documents: list[Document] = []
    parts: list[str | None] = []
    first_seen: dict[str, int] = {}
    problems = Problems(strict=True)
    for passage in read_passages(source, problems, chunking=chunking):
        identity = passage.document.id
        if identity in first_seen:
            problems.add(Problem.DUPLICATE, passage.place, passage.number, duplicate(identity, first_seen[identity]))
        first_seen[identity] = passage.number
        documents.append(passage.document)
        parts.append(passage.part)
    if not documents:
        raise UserError(f"{source}: no passages; a corpus needs at least one line")
    return Corpus(documents, parts)


def read_passages(
    source: str | os.PathLike[str], problems: Problems, *, chunking: Chunking | None = None
) -> Iterator[Passage]:
    """The passages of a corpus one after another. What can't be used is left out and goes into ``problems``.

    ``source`` is a JSONL file (``.gz`` and ``.zst`` too), a parquet file, a folder of such files, a folder of text or
    Markdown files (cut into passages, see :mod:`sleuth.retrieval.chunking`), or what the ``datasets`` library loads: a
    folder of ``save_to_disk`` or a name such as ``owner/name:config@split``. A row is in one of two forms:

    * ``{"id", "contents"}``, Search-R1's: the first line of ``contents`` is the title in quotes, the rest the text
      (:func:`split_contents`).
    * ``{"id", "title", "text"}``; ``title`` may be absent. Where a row has both forms, these two fields win.

    ``id`` is a string or an integer; that it is unique is left to the caller. An optional ``corpus`` names the part
    that the passage belongs to. Other fields are ignored.

    Raises:
        UserError: there is no such thing or it is damaged; with strict ``problems``, the first one.
    """
    for row in read_sources(source, problems, chunking or Chunking()):
        try:
            document, part = _passage(row.fields, row.place)
        except UserError as error:
            problems.add(Problem.WRONG_FIELD, row.place, row.number, str(error))
            continue
        if not (document.title or document.text):
            problems.add(Problem.EMPTY, row.place, row.number, f"{row.place}: neither title nor text; drop the line")
            continue
        yield Passage(document, part, row.place, row.number)


def duplicate(identity: str, first: int) -> str:
    """What to say of an id that was seen before, on line ``first``."""
    return f'id "{identity}" was used on line {first}; give each passage its own'


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


def joined_contents(document: Document) -> str:
    """Search-R1's ``contents`` of a passage: the title in quotes on the first line, then the text."""
    return f'"{document.title}"\n{document.text}'


def corpus_hash(corpus: Corpus) -> str:
    """SHA-256 (hex) of every passage's id, title, text and part, in order.

    It depends on the content alone: not on the file's name, compression, form or ignored fields.
    """
    digest = CorpusDigest()
    for document, part in zip(corpus.documents, corpus.parts, strict=True):
        digest.add(document, part)
    return digest.hexdigest()


class CorpusDigest:
    """:func:`corpus_hash` of passages that come one after another."""

    def __init__(self, *before: str) -> None:
        self._digest = hashlib.sha256()
        for text in before:
            self.add_text(text)

    def add(self, document: Document, part: str | None = None) -> None:
        for value in (document.id, document.title, document.text, part):
            self.add_text(value)

    def hexdigest(self) -> str:
        return self._digest.hexdigest()

    def add_text(self, value: str | None) -> None:
        # Each field goes in with its length, so that no two lists of fields look the same; None differs from "".
        data = b"" if value is None else value.encode()
        self._digest.update(f"{-1 if value is None else len(data)}:".encode() + data)


def _passage(row: dict[str, Any], where: str) -> tuple[Document, str | None]:
    part = row.get("corpus")
    if part is not None and not isinstance(part, str):
        raise UserError(f'{where}: "corpus" must be a string (the name of the part that the passage belongs to)')
    return _document(row, where), part


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
