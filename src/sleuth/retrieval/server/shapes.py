"""Answers of a search as bytes: constant pieces and the store's own fields, put in line without a loop over passages.

The fields come from the store as escaped JSON and go into the answer as they stand. What is written of a passage is
given as a pattern of pieces, and a whole column of a field at a time goes through it, so that a call with hundreds of
queries costs a microsecond a passage.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, islice, repeat

from sleuth.retrieval.engine import Hits
from sleuth.retrieval.store import Passages, PassageStore

try:
    import orjson
except ImportError:  # the standard library's json does the same, more slowly
    orjson = None  # type: ignore[assignment]

Answer = Callable[[PassageStore, Sequence[Hits]], list[bytes]]
"""Store and hits of each query in, the parts of the body out."""

_PART_PIECES = 512
"""Pieces in a part of an answer: it stays below 100 kB, where memory is had again and again without the system."""


Column = Callable[[Passages, Sequence[Hits]], list[bytes]]
"""Bytes of one kind for each passage that was found, in order."""


def _id(passages: Passages, hits: Sequence[Hits]) -> list[bytes]:
    return passages.ids()


def _title(passages: Passages, hits: Sequence[Hits]) -> list[bytes]:
    return passages.titles()


def _text(passages: Passages, hits: Sequence[Hits]) -> list[bytes]:
    return passages.texts()


def _line(passages: Passages, hits: Sequence[Hits]) -> list[bytes]:
    return passages.lines()


def _score(passages: Passages, hits: Sequence[Hits]) -> list[bytes]:
    scores = [score for found in hits for _, score in found]
    return dump(scores)[1:-1].split(b",") if scores else []


def _number(passages: Passages, hits: Sequence[Hits]) -> list[bytes]:
    return [b"%d" % number for found in hits for number in range(1, len(found) + 1)]


Pattern = tuple[bytes | Column, ...]
"""What is written for each passage."""

_CONTENTS: Pattern = (b'\\"', _title, b'\\"\\n', _text)

# Fields that are written twice are cheaper than a line and its fields.
DOCUMENT: Pattern = (
    *(b'{"id":"', _id, b'","title":"', _title, b'","text":"', _text),
    *(b'","contents":"', *_CONTENTS, b'"}'),
)
ITEM: Pattern = (b'{"document":', *DOCUMENT, b',"score":', _score, b',"docid":"', _id, b'"}')
PLAIN_DOCUMENT: Pattern = (_line,)
PLAIN_ITEM: Pattern = (b'{"document":', _line, b',"score":', _score, b"}")
ONLY_TEXT: Pattern = (b'{"text":"', *_CONTENTS, b'"}')
# Its client takes off a number and white space from the front.
NUMBERED: Pattern = (b'"', _number, b"\\t", *_CONTENTS, b'"')
SCORE: Pattern = (_score,)


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
    pieces = [piece for part in parts if not isinstance(part, bytes) for piece in part[1]]
    columns = list(dict.fromkeys(piece for piece in pieces if not isinstance(piece, bytes)))
    plan = [part if isinstance(part, bytes) else (part[0], _places(part[1], columns)) for part in parts]

    def answer(store: PassageStore, hits: Sequence[Hits]) -> list[bytes]:
        passages = store.passages([row for found in hits for row, _ in found])
        made = [column(passages, hits) for column in columns]
        lists: list[Iterable[bytes]] = []
        for part in plan:
            if isinstance(part, bytes):
                lists.append((part,))
                continue
            layout, places = part
            before, behind = layout(hits)
            row = [repeat(place) if isinstance(place, bytes) else made[place] for place in places]
            lists.append(chain.from_iterable(zip(before, *row, strict=False)))  # the constants have no end
            lists.append((behind,))
        everything = chain.from_iterable(lists)
        return list(iter(lambda: b"".join(islice(everything, _PART_PIECES)), b""))

    return answer


def _places(pattern: Pattern, columns: list[Column]) -> list[bytes | int]:
    """Constants and places of columns; one constant between two columns, so that there are as few as can be."""
    places: list[bytes | int] = []
    for piece in pattern:
        if not isinstance(piece, bytes):
            places.append(columns.index(piece))
        elif places and isinstance(last := places[-1], bytes):
            places[-1] = last + piece
        else:
            places.append(piece)
    return places


def dump(value: object) -> bytes:
    """JSON as UTF-8, without white space."""
    if orjson is not None:
        return orjson.dumps(value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
