"""Search engines of the web as retrievers: Serper (Google), Brave, and SearXNG, which one can run oneself.

What they give are snippets; a passage is one result, its id the address, so that ``visit`` can read on. Time-outs,
retries, circuit breaker and cache are those of :mod:`sleuth.retrieval.client.http`. The web changes, so that results
are kept in a cache only under a ``cache_key`` of the user's own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from sleuth.errors import UserError
from sleuth.jsonl import replace_surrogates
from sleuth.retrieval.client.answers import WrongAnswer
from sleuth.retrieval.client.http import HTTPRetriever, HTTPSettings
from sleuth.retrieval.client.web_pages import WebPages
from sleuth.types import Document

_ADDRESSES = {
    "serper": "https://google.serper.dev/search",
    "brave": "https://api.search.brave.com/res/v1/web/search",
    "searxng": "http://127.0.0.1:8080/search",
}
_KEYS = {"serper": "SERPER_API_KEY", "brave": "BRAVE_API_KEY"}


class WebSettings(HTTPSettings):
    """As :class:`sleuth.retrieval.client.http.HTTPSettings`, and

    Attributes:
        url: of the engine; "" is its public address (SearXNG: port 8080 of this machine).
        key_variable: environment variable with the key; "": the engine's usual one.
        read_pages: let ``visit`` read the pages of results (:mod:`sleuth.retrieval.client.web_pages`).
    """

    key_variable: str = ""
    read_pages: bool = False
    queries_per_call: int = 1


class WebRetriever(HTTPRetriever):
    """Serper, Brave or SearXNG.

    Raises:
        UserError: no key in the environment.
    """

    def __init__(self, engine: str, settings: WebSettings) -> None:
        super().__init__(settings, _WIRES[engine](settings.url, _key(engine, settings)))
        self._reader = WebPages(seconds=settings.timeout) if settings.read_pages else None

    def page(self, name: str) -> list[Document]:
        """The page at an address, where ``read_pages`` allows it."""
        return self._reader.page(name) if self._reader is not None else []


class _Serper:
    def __init__(self, url: str, key: str) -> None:
        self._url, self._key = url, key

    def request(self, queries: Sequence[str], k: int) -> tuple[str, str, dict[str, Any]]:
        content = json.dumps({"q": queries[0], "num": k}, ensure_ascii=False).encode()
        return (
            "POST",
            self._url,
            {
                "content": content,
                "headers": {"content-type": "application/json", "x-api-key": self._key},
            },
        )

    def read(self, content: bytes, queries: int, k: int) -> list[list[Document]]:
        said = _object(content)
        if "organic" not in said and "searchParameters" in said:
            return [[]]
        return [_results(said.get("organic"), "title", "link", "snippet", k)]

    def quota_used_up(self, status: int, content: bytes) -> bool:
        return status in (402, 429) or (status == 400 and b"credit" in content.lower())


class _Brave:
    def __init__(self, url: str, key: str) -> None:
        self._url, self._key = url, key

    def request(self, queries: Sequence[str], k: int) -> tuple[str, str, dict[str, Any]]:
        asked = urlencode({"q": queries[0], "count": min(k, 20), "text_decorations": "false"})
        headers = {"accept": "application/json", "x-subscription-token": self._key}
        return "GET", f"{self._url}?{asked}", {"headers": headers}

    def read(self, content: bytes, queries: int, k: int) -> list[list[Document]]:
        said = _object(content)
        if "web" not in said and "query" in said:
            return [[]]
        web = said.get("web")
        return [_results(web.get("results") if isinstance(web, dict) else None, "title", "url", "description", k)]

    def quota_used_up(self, status: int, content: bytes) -> bool:
        return status in (402, 429)


class _SearXNG:
    def __init__(self, url: str, key: str) -> None:
        self._url = url

    def request(self, queries: Sequence[str], k: int) -> tuple[str, str, dict[str, Any]]:
        return "GET", f"{self._url}?{urlencode({'q': queries[0], 'format': 'json'})}", {}

    def read(self, content: bytes, queries: int, k: int) -> list[list[Document]]:
        said = _object(content)
        found = _results(said.get("results"), "title", "url", "content", k)
        silent = said.get("unresponsive_engines")
        if not found and silent:
            # It asks others; when none of them answered, that is no answer to the query.
            raise WrongAnswer(f"none of the engines behind it answered ({len(silent)} failed)")
        return [found]

    def quota_used_up(self, status: int, content: bytes) -> bool:
        return status == 429


_WIRES: dict[str, Any] = {"serper": _Serper, "brave": _Brave, "searxng": _SearXNG}


def web_retriever(engine: str, settings: dict[str, Any], *, where: str, prefix: str) -> WebRetriever:
    """The engine called ``engine``, its settings checked.

    Raises:
        UserError: a wrong setting, or no key.
    """
    return WebRetriever(engine, web_settings(engine, settings, where=where, prefix=prefix))


def web_settings(engine: str, settings: dict[str, Any], *, where: str, prefix: str) -> WebSettings:
    """What the engine called ``engine`` is asked by, once there is a key.

    Raises:
        UserError: a wrong setting, or no key.
    """
    from sleuth.recipes.validation import validated

    given = {"url": _ADDRESSES[engine], **settings}
    if given.get("queries_per_call", 1) != 1:
        raise UserError(f"{where}: {prefix}.queries_per_call: {engine} takes one query a call; drop it")
    checked = validated(WebSettings, given, where=where, prefix=prefix)
    _key(engine, checked)
    return checked


def _key(engine: str, settings: WebSettings) -> str:
    """From the environment; "" for an engine that wants none."""
    if engine not in _KEYS:
        return ""
    variable = settings.key_variable or _KEYS[engine]
    key = os.environ.get(variable, "").strip()
    if not key:
        raise UserError(f"retriever.kind={engine} needs a key: set the environment variable {variable}")
    return key


def _object(content: bytes) -> dict[str, Any]:
    try:
        said = json.loads(content)
    except (ValueError, RecursionError):
        raise WrongAnswer(f"no JSON ({len(content):,} bytes)") from None
    if not isinstance(said, dict):
        raise WrongAnswer("the answer is no object")
    return said


def _results(found: Any, title: str, address: str, text: str, k: int) -> list[Document]:
    if not isinstance(found, list):
        raise WrongAnswer("the answer has no list of results")
    documents: dict[str, Document] = {}
    for item in found:
        url = item.get(address) if isinstance(item, dict) else None
        if isinstance(url, str) and url not in documents:
            name, heading, body = (replace_surrogates(str(v or "")) for v in (url, item.get(title), item.get(text)))
            documents[url] = Document(name, heading, body)
    return list(documents.values())[:k]
