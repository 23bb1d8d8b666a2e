"""What a server's answer says, read strictly: anything but one list of passages for each query is a failure."""

from __future__ import annotations

import json
from typing import Any

from sleuth.jsonl import replace_surrogates
from sleuth.retrieval.corpus import split_contents
from sleuth.types import Document


class WrongAnswer(Exception):
    """The server answered, but not with passages."""


def read_answer(body: bytes, queries: int, k: int) -> list[list[Document]]:
    """The passages for each query, at most ``k``, distinct, in the server's order.

    Search-R1's shape: ``{"result": [[{"document": …, "score": …}, …], …]}``, or the documents without their wrapper. A
    document is an object with ``contents`` or ``title`` and ``text``, or its contents as a string.

    Raises:
        WrongAnswer: anything else.
    """
    result = _result(body)
    if len(result) != queries:
        raise WrongAnswer(f"{len(result)} lists for {queries} queries")
    return [_documents(found, k) for found in result]


def read_page(body: bytes) -> list[Document]:
    """The page in an answer to ``POST /access`` with one name: one document, or none where there is no such page.

    Raises:
        WrongAnswer: anything else.
    """
    result = _result(body)
    if len(result) != 1:
        raise WrongAnswer(f"{len(result)} pages for one name")
    page = result[0]
    if page is None:
        return []
    page = {"page": page} if isinstance(page, str) else page
    text = page.get("page") if isinstance(page, dict) else None
    if not isinstance(text, str):
        raise WrongAnswer("a page has no text")
    return [Document(str(page.get("id", "")), str(page.get("title", "")), replace_surrogates(text))]


def _result(body: bytes) -> list[Any]:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        start = body.lstrip()[:1]
        what = "HTML" if start == b"<" else "nothing" if not start else "no JSON, or JSON that was cut off"
        raise WrongAnswer(f"the server sent {what} ({len(body):,} bytes)") from None
    result = content.get("result") if isinstance(content, dict) else None
    if not isinstance(result, list):
        raise WrongAnswer('the answer has no list under "result"')
    return result


def _documents(found: Any, k: int) -> list[Document]:
    if not isinstance(found, list):
        raise WrongAnswer(f"a query got a {type(found).__name__}, not a list of passages")
    documents: list[Document] = []
    seen: set[tuple[str, str, str]] = set()
    for item in found:
        document = _document(item)
        key = (document.id, "", "") if document.id else ("", document.title, document.text)
        if key not in seen:
            seen.add(key)
            documents.append(document)
    return documents[:k]


def _document(item: Any) -> Document:
    inner = item.get("document", item) if isinstance(item, dict) else item
    if isinstance(inner, str):
        inner = {"contents": inner}
    if not isinstance(inner, dict):
        raise WrongAnswer(f"a passage is a {type(inner).__name__}")
    outer = item if isinstance(item, dict) else {}
    score = outer.get("score")
    if isinstance(score, bool) or not isinstance(score, int | float | None):
        raise WrongAnswer(f"a score is {score!r}")
    if isinstance(inner.get("text"), str):
        title, text = inner.get("title") or "", inner["text"]
    elif isinstance(inner.get("contents"), str):
        title, text = split_contents(inner["contents"])
    else:
        raise WrongAnswer("a passage has neither contents nor text")
    identity = inner.get("id", outer.get("docid", ""))
    if not isinstance(identity, str | int) or not isinstance(title, str):
        raise WrongAnswer("a passage's id or title is no text")
    clean = replace_surrogates
    return Document(clean(str(identity)), clean(title), clean(text), None if score is None else float(score))
