"""The request and answer shapes of the field's trainers: bytes in, a question to the index, bytes out. No I/O.

Most say what they are by path and field names, and are told apart (docs/retrieval.md has the table). Two can't be:
ZeroSearch and BrowseComp-Plus need ``--dialect`` or their own path.

A passage has ``id``, ``contents``, ``title`` and ``text``. ``--dialect search-r1`` leaves out what Search-R1's own
server doesn't send, which makes the answers a third smaller.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sleuth.jsonl import replace_surrogates
from sleuth.retrieval.server.shapes import (
    DOCUMENT,
    ITEM,
    NUMBERED,
    ONLY_TEXT,
    PLAIN_DOCUMENT,
    PLAIN_ITEM,
    SCORE,
    Answer,
    dump,
    flat,
    nested,
    orjson,
    shape,
)
from sleuth.types import Document

DIALECTS = ("auto", "search-r1", "zerosearch", "browsecomp-plus")

SEARCH_PATHS = (
    "/retrieve",
    "/search",
    "/batch_search",
    "/queries",
    "/zerosearch/retrieve",
    "/browsecomp-plus/retrieve",
)


class BadRequest(Exception):
    """What a client got wrong, with the HTTP status; ``allow``: the right methods, where it was the method."""

    def __init__(self, status: int, message: str, *, allow: str = "") -> None:
        super().__init__(message)
        self.status, self.allow = status, allow


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one request: queries, characters of a query, passages a query, bytes of the body."""

    queries: int = 1024
    characters: int = 8192
    k: int = 100
    body: int = 16 << 20


@dataclass(frozen=True, slots=True)
class Ask:
    """What a request asks for; ``answer`` makes the body from the store and the hits of each query."""

    queries: list[str]
    k: int
    answer: Answer = field(repr=False)


def read_ask(path: str, body: bytes, *, default_k: int, limits: Limits, dialect: str = "auto") -> Ask:
    """The search that a request to one of :data:`SEARCH_PATHS` asks for.

    Args:
        default_k: passages where the request names no number.

    Raises:
        BadRequest: 400 for what is no JSON object, 422 for wrong fields and limits.
    """
    row = read_object(body)
    many, queries = _queries(row)
    if len(queries) > limits.queries:
        raise BadRequest(422, f"{len(queries):,} queries in one call; at most {limits.queries:,} are answered")
    for number, query in enumerate(queries):
        if len(query) > limits.characters:
            raise BadRequest(422, f"query {number} has {len(query):,} characters; at most {limits.characters:,} may be")
    k = _number(row, limits.k) or default_k
    return Ask(queries, k, _answer(path, row, many=many, scored=_scored(row), dialect=dialect))


def read_pages(body: bytes, limits: Limits) -> list[str]:
    """The names of the pages that a request to ``/access`` wants: ``urls`` (ASearcher), ``ids`` or ``titles``."""
    row = read_object(body)
    names = next((row[name] for name in ("urls", "ids", "titles") if name in row), None)
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise BadRequest(422, '"urls" must be a list of strings: ids or titles of passages')
    if len(names) > limits.queries:
        raise BadRequest(422, f"{len(names):,} pages in one call; at most {limits.queries:,} are given")
    return names


def pages_answer(pages: Sequence[list[Document]]) -> bytes:
    """ASearcher's form: a page, or null, for each name."""
    rows = [
        {"id": page[0].id, "title": page[0].title, "page": "\n\n".join(d.text for d in page)} if page else None
        for page in pages
    ]
    return dump({"result": rows})


def read_object(body: bytes) -> dict[str, Any]:
    try:
        # orjson refuses lone surrogates, which language models do write; the standard library reads them.
        row = orjson.loads(body) if orjson is not None else json.loads(body)
    except ValueError:
        try:
            row = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise BadRequest(400, f"the body is not JSON ({error})") from None
    if not isinstance(row, dict):
        raise BadRequest(400, "the body must be a JSON object")
    return row


def _queries(row: dict[str, Any]) -> tuple[bool, list[str]]:
    """Whether a list was sent, and the queries."""
    value = row.get("queries")
    value = row.get("query") if value is None else value
    if isinstance(value, str):
        return False, [replace_surrogates(value)]
    if isinstance(value, list) and all(isinstance(query, str) for query in value):
        return True, [replace_surrogates(query) for query in value]
    raise BadRequest(422, '"queries" must be a list of strings, or "query" a string')


def _number(row: dict[str, Any], most: int) -> int | None:
    for name in ("topk", "top_k", "k", "top_n"):
        value = row.get(name)
        if value is None or value == 0:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise BadRequest(422, f'"{name}" must be an integer from 1 to {most}')
        return value
    return None


def _scored(row: dict[str, Any]) -> bool:
    for name in ("return_scores", "return_score"):
        value = row.get(name)
        if value is None:
            continue
        if not isinstance(value, bool):
            raise BadRequest(422, f'"{name}" must be true or false')
        return value
    return False


def _answer(path: str, row: dict[str, Any], *, many: bool, scored: bool, dialect: str) -> Answer:
    """The shape that this client reads."""
    if path == "/zerosearch/retrieve" or (path == "/retrieve" and dialect == "zerosearch"):
        return _ZEROSEARCH
    if path == "/browsecomp-plus/retrieve" or (path == "/retrieve" and dialect == "browsecomp-plus"):
        return _BROWSECOMP_PLUS
    if path == "/queries":
        return _R1_SEARCHER
    if path in ("/search", "/batch_search"):
        return _FLASHRAG[many, scored]
    if "query" in row and "top_k" in row and "queries" not in row and dialect == "auto":
        return _RLLM
    return (_PLAIN if dialect == "search-r1" else _SEARCH_R1)[scored]


_ZEROSEARCH = shape((flat, ONLY_TEXT))
_BROWSECOMP_PLUS = shape(b'{"result":', (flat, ITEM), b"}")
_R1_SEARCHER = shape(b'{"answers":', (nested, NUMBERED), b"}")
_RLLM = shape(b'{"results":', (flat, ITEM), b',"result":', (nested, ITEM), b"}")
_SEARCH_R1, _PLAIN = (
    {True: shape(b'{"result":', (nested, item), b"}"), False: shape(b'{"result":', (nested, document), b"}")}
    for item, document in ((ITEM, DOCUMENT), (PLAIN_ITEM, PLAIN_DOCUMENT))
)
# FlashRAG, ReCall, Tool-Star: whether a list of queries was sent, whether scores are wanted.
_FLASHRAG = {
    (many, scored): shape(b"[", (lists, DOCUMENT), b",", (lists, SCORE), b"]") if scored else shape((lists, DOCUMENT))
    for many, lists in ((True, nested), (False, flat))
    for scored in (True, False)
}
