"""Answers of a search as bytes: constant pieces and the store's own fields, put in line without a loop over passages.

The fields come from the store as escaped JSON and go into the answer as they stand. What is written of a passage is
given as a pattern of pieces, and a whole column of a field at a time goes through it, so that a call with hundreds of
queries costs a microsecond a passage.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence, Set
from enum import Enum, auto
from itertools import chain, islice, repeat

from sleuth.retrieval.engine import Hits
from sleuth.retrieval.store import PassageStore

try:
    import orjson
except ImportError:  # the standard library's json does the same, more slowly
    orjson = None  # type: ignore[assignment]

Answer = Callable[[PassageStore, Sequence[Hits]], list[bytes]]
"""Store and hits of each query in, the parts of the body out."""

_PART_PIECES = 1024
"""Pieces in a part of an answer: it stays below 100 kB, where memory is had again and again without the system."""


class Field(Enum):
    """Of a passage that was found; ``NUMBER`` is its rank, from 1, ``LINE`` the store's object of id and contents."""

    LINE = auto()
    ID = auto()
    TITLE = auto()
    TEXT = auto()
    SCORE = auto()
    NUMBER = auto()


Pattern = tuple[bytes | Field, ...]
"""What is written for each passage."""

_CONTENTS: Pattern = (b'\\"', Field.TITLE, b'\\"\\n', Field.TEXT)

# Fields that are written twice are cheaper than a line and its fields.
DOCUMENT: Pattern = (
    *(b'{"id":"', Field.ID, b'","title":"', Field.TITLE, b'","text":"', Field.TEXT),
    *(b'","contents":"', *_CONTENTS, b'"}'),
)
ITEM: Pattern = (b'{"document":', *DOCUMENT, b',"score":', Field.SCORE, b',"docid":"', Field.ID, b'"}')
PLAIN_DOCUMENT: Pattern = (Field.LINE,)
PLAIN_ITEM: Pattern = (b'{"document":', Field.LINE, b',"score":', Field.SCORE, b"}")
ONLY_TEXT: Pattern = (b'{"text":"', *_CONTENTS, b'"}')
# Its client takes off a number and white space from the front.
NUMBERED: Pattern = (b'"', Field.NUMBER, b"\\t", *_CONTENTS, b'"')
SCORE: Pattern = (Field.SCORE,)


def nested(hits: Sequence[Hits]) -> tuple[list[bytes], bytes]:
    """A list for each query: what stands before each passage, and behind the last."""
    before: list[bytes] = []
    pending = b"["
    for found in hits:
        pending += b"["
        if found:
            before.append(pending)
            before += [b","] * (len(found) - 1)
            pending = b""
        pending += b"],"
    return before, pending[:-1] + b"]" if hits else b"[]"


def flat(hits: Sequence[Hits]) -> tuple[list[bytes], bytes]:
    """One list for all, as :func:`nested`."""
    count = sum(map(len, hits))
    return ([b"[", *[b","] * (count - 1)], b"]") if count else ([], b"[]")


Layout = Callable[[Sequence[Hits]], tuple[list[bytes], bytes]]


def shape(*parts: bytes | tuple[Layout, Pattern]) -> Answer:
    """An answer of constant pieces and lists of passages."""
    wanted = {piece for part in parts if not isinstance(part, bytes) for piece in part[1]}

    def answer(store: PassageStore, hits: Sequence[Hits]) -> list[bytes]:
        columns = _columns(store, hits, wanted)
        pieces: list[Iterable[bytes]] = []
        for part in parts:
            if isinstance(part, bytes):
                pieces.append((part,))
            else:
                layout, pattern = part
                before, behind = layout(hits)
                pieces.append(_passages(before, pattern, columns))
                pieces.append((behind,))
        everything = chain.from_iterable(pieces)
        return list(iter(lambda: b"".join(islice(everything, _PART_PIECES)), b""))

    return answer


def _passages(before: list[bytes], pattern: Pattern, columns: dict[Field, list[bytes]]) -> Iterable[bytes]:
    # One constant between two fields, so that there are as few pieces as can be.
    row: list[Iterable[bytes]] = [before]
    constant = b""
    for piece in pattern:
        if isinstance(piece, bytes):
            constant += piece
            continue
        if constant:
            row.append(repeat(constant))
        row.append(columns[piece])
        constant = b""
    if constant:
        row.append(repeat(constant))
    return chain.from_iterable(zip(*row, strict=False))  # the constants have no end


def _columns(store: PassageStore, hits: Sequence[Hits], wanted: Set[bytes | Field]) -> dict[Field, list[bytes]]:
    """The bytes of each wanted field, passage by passage."""
    passages = store.passages([row for found in hits for row, _ in found])

    def scores() -> list[bytes]:
        numbers = [score for found in hits for _, score in found]
        return dump(numbers)[1:-1].split(b",") if numbers else []

    columns: dict[Field, Callable[[], list[bytes]]] = {
        Field.LINE: passages.lines,
        Field.ID: passages.ids,
        Field.TITLE: passages.titles,
        Field.TEXT: passages.texts,
        Field.SCORE: scores,
        Field.NUMBER: lambda: [b"%d" % number for found in hits for number in range(1, len(found) + 1)],
    }
    return {name: column() for name, column in columns.items() if name in wanted}


def dump(value: object) -> bytes:
    """JSON as UTF-8, without white space."""
    if orjson is not None:
        return orjson.dumps(value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
