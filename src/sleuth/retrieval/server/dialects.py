"""The request and answer shapes of the field's trainers: bytes in, a question to the index, bytes out. No I/O.

Most say what they are by path and field names, and are told apart (docs/retrieval.md has the table). Two can't be:
ZeroSearch and BrowseComp-Plus need ``--dialect`` or their own path.

A passage always has ``id``, ``title``, ``text`` and ``contents``. Its fields come from the store as escaped JSON and go
into the answer as they stand: nothing is decoded or encoded again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sleuth.jsonl import replace_surrogates
from sleuth.retrieval.engine import Hits
from sleuth.retrieval.store import PassageStore
from sleuth.types import Document

try:
    import orjson
except ImportError:  # the standard library's json does the same, more slowly
    orjson = None  # type: ignore[assignment]

DIALECTS = ("auto", "search-r1", "zerosearch", "browsecomp-plus")

SEARCH_PATHS = (
    "/retrieve",
    "/search",
    "/batch_search",
    "/queries",
    "/zerosearch/retrieve",
    "/browsecomp-plus/retrieve",
)

_ID, _TITLE, _TEXT = len(b'{"id":"'), len(b'","title":"'), len(b'","text":"')
"""What stands before an id, a title and a text in a line of the store."""

Answer = Callable[[PassageStore, Sequence[Hits]], bytes]


class BadRequest(Exception):
    """What a client got wrong, with the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


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
    scored = bool(row.get("return_scores", row.get("return_score", False)))
    return Ask(queries, k, _answer(path, row, many=many, scored=scored, dialect=dialect))


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


def dump(value: Any) -> bytes:
    return orjson.dumps(value) if orjson is not None else json.dumps(value, ensure_ascii=False).encode()


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


def _answer(path: str, row: dict[str, Any], *, many: bool, scored: bool, dialect: str) -> Answer:
    """The shape that this client reads."""
    if path == "/zerosearch/retrieve" or (path == "/retrieve" and dialect == "zerosearch"):
        return _shape((_flat, _text))
    if path == "/browsecomp-plus/retrieve" or (path == "/retrieve" and dialect == "browsecomp-plus"):
        return _shape(b'{"result":', (_flat, _item), b"}")
    if path == "/queries":  # R1-Searcher
        return _shape(b'{"answers":', (_nested, _numbered), b"}")
    if path in ("/search", "/batch_search"):  # FlashRAG, ReCall, Tool-Star
        lists = _nested if many else _flat
        return _shape(b"[", (lists, _document), b",", (lists, _score), b"]") if scored else _shape((lists, _document))
    if "query" in row and "top_k" in row and "queries" not in row and dialect == "auto":  # rLLM
        return _shape(b'{"results":', (_flat, _item), b',"result":', (_nested, _item), b"}")
    return _shape(b'{"result":', (_nested, _item if scored else _document), b"}")


# Everything below puts pieces of bytes into one list, which is joined once in the end --------------------------------

_Item = Callable[[list[bytes], PassageStore, int, int, float], None]
_Layout = Callable[[list[bytes], PassageStore, Sequence[Hits], _Item], None]


def _shape(*parts: bytes | tuple[_Layout, _Item]) -> Answer:
    def answer(store: PassageStore, hits: Sequence[Hits]) -> bytes:
        out: list[bytes] = []
        for part in parts:
            if isinstance(part, bytes):
                out.append(part)
            else:
                layout, item = part
                layout(out, store, hits, item)
        return b"".join(out)

    return answer


def _nested(out: list[bytes], store: PassageStore, hits: Sequence[Hits], item: _Item) -> None:
    """A list for each query."""
    comma = b"["
    for found in hits:
        out.append(comma)
        _flat(out, store, [found], item)
        comma = b","
    out.append(b"]" if hits else b"[]")


def _flat(out: list[bytes], store: PassageStore, hits: Sequence[Hits], item: _Item) -> None:
    """One list for all."""
    comma = b"["
    for found in hits:
        for number, (row, score) in enumerate(found, 1):
            out.append(comma)
            item(out, store, number, row, score)
            comma = b","
    out.append(b"[]" if comma == b"[" else b"]")


def _document(out: list[bytes], store: PassageStore, number: int, row: int, score: float) -> None:
    # A line of the store has all but the contents, and ends as they do: with the text, a quote and a brace.
    line, title, text = store.located(row)
    out += (line[:-1], b',"contents":"\\"', line[title : text - _TEXT], b'\\"\\n', line[text:])


def _item(out: list[bytes], store: PassageStore, number: int, row: int, score: float) -> None:
    line, title, text = store.located(row)
    contents = line[title : text - _TEXT], b'\\"\\n', line[text:]
    identity = line[_ID : title - _TITLE]
    out += (b'{"document":', line[:-1], b',"contents":"\\"', *contents)
    out += (b',"score":', repr(score).encode(), b',"docid":"', identity, b'"}')


def _text(out: list[bytes], store: PassageStore, number: int, row: int, score: float) -> None:
    line, title, text = store.located(row)
    out += (b'{"text":"\\"', line[title : text - _TEXT], b'\\"\\n', line[text:])


def _numbered(out: list[bytes], store: PassageStore, number: int, row: int, score: float) -> None:
    # Its client takes off a number and white space from the front.
    _, title, text = store.fields(row)
    out.append(b'"%d\\t\\"%b\\"\\n%b"' % (number, title, text))


def _score(out: list[bytes], store: PassageStore, number: int, row: int, score: float) -> None:
    out.append(repr(score).encode())
