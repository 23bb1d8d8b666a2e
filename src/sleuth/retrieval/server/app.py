"""The server: an ASGI application over an index that is opened once and looked after."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sleuth.errors import UserError
from sleuth.retrieval.engine import Hits
from sleuth.retrieval.index import IndexRetriever, open_index
from sleuth.retrieval.manifest import MANIFEST
from sleuth.retrieval.server.batching import Batcher, QueueFull
from sleuth.retrieval.server.dialects import (
    SEARCH_PATHS,
    BadRequest,
    Limits,
    dump,
    pages_answer,
    read_ask,
    read_pages,
)
from sleuth.retrieval.server.metrics import Metrics

TOKEN = "SLEUTH_RETRIEVER_TOKEN"
"""Environment variable with the token that clients have to send, if there is one."""

_RELOAD_SECONDS = 2.0
_PROBE_SECONDS = 5.0
_JSON = [(b"content-type", b"application/json")]
_MORE = {401: [(b"www-authenticate", b"Bearer")]}
_PATHS = frozenset((*SEARCH_PATHS, "/access", "/health", "/healthz", "/metrics"))

Send = Callable[[dict[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """How an index is served.

    Attributes:
        folder: the index.
        settings: of the search, see :func:`sleuth.retrieval.index.open_index`.
        k: passages where a request names no number.
        dialect: of ``/retrieve``, see :mod:`sleuth.retrieval.server.dialects`.
        token: clients send it as ``Authorization: Bearer …``; None: everybody may search.
        threads: searches at the same time. ``largest``: queries in one. ``waiting``: queries that may wait for one.
    """

    folder: Path
    settings: dict[str, Any] = field(default_factory=dict)
    k: int = 3
    dialect: str = "auto"
    limits: Limits = field(default_factory=Limits)
    token: str | None = None
    threads: int = 2
    largest: int = 128
    waiting: int = 4096


class RetrievalApp:
    """Answers requests (ASGI 3). Opening the index may raise :class:`sleuth.errors.UserError`."""

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self._token = settings.token.encode() if settings.token else None
        self._stopping = False
        self._index = open_index(settings.folder, settings.settings)
        self._read_at = self._manifest_time()
        self._batcher = Batcher(
            self._search, threads=settings.threads, largest=settings.largest, waiting=settings.waiting
        )
        self._batcher.on_batch = self.metrics.batch.observe
        self.metrics.passages.set(len(self._index))
        self._healthy_until = 0.0
        self._watching: asyncio.Task[None] | None = None

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)

    async def _http(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        path = scope["path"].rstrip("/") or "/"
        body: bytes | list[bytes]
        try:
            status, body, headers = await self._answer(scope, path, receive)
        except BadRequest as error:
            status, body, headers = error.status, dump({"error": str(error)}), [*_JSON, *_MORE.get(error.status, ())]
            if error.allow:
                headers.append((b"allow", error.allow.encode()))
        except QueueFull:
            text = f"{self._batcher.waiting:,} queries wait already; try again"
            status, body, headers = 503, dump({"error": text}), [*_JSON, (b"retry-after", b"1")]
        except Exception:
            logging.getLogger("sleuth.server").exception("a search failed")
            status, body, headers = 500, dump({"error": "the search failed; the server's log says why"}), _JSON
        self.metrics.answered(path if path in _PATHS else "other", status, time.perf_counter() - started)
        parts = body if isinstance(body, list) else [body]
        head = [*headers, (b"content-length", str(sum(map(len, parts))).encode())]
        await send({"type": "http.response.start", "status": status, "headers": head})
        for part in parts[:-1]:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": parts[-1]})

    async def _answer(
        self, scope: dict[str, Any], path: str, receive: Receive
    ) -> tuple[int, bytes | list[bytes], list[tuple[bytes, bytes]]]:
        method = scope["method"]
        if path in ("/health", "/healthz"):
            _check_method(path, method, "GET", "HEAD")
            return await self._health()
        if path not in (*SEARCH_PATHS, "/access", "/metrics"):
            raise BadRequest(404, f"no such path: {path}; search with POST /retrieve")
        self._check_token(scope)
        if path == "/metrics":
            _check_method(path, method, "GET", "HEAD")
            self.metrics.waiting.set(self._batcher.waiting)
            return 200, self.metrics.text(), [(b"content-type", b"text/plain; version=0.0.4; charset=utf-8")]
        _check_method(path, method, "POST")
        body = await self._body(scope, receive)
        index = self._index
        if path == "/access":
            names = read_pages(body, self.settings.limits)
            pages = await asyncio.to_thread(lambda: [index.page(name) for name in names])
            return 200, pages_answer(pages), _JSON
        s = self.settings
        ask = read_ask(path, body, default_k=s.k, limits=s.limits, dialect=s.dialect)
        # Rollouts of one question often send the same query; the parts of a large call don't know of each other.
        distinct = list(dict.fromkeys(ask.queries))
        found = await self._batcher.submit(distinct, ask.k)
        index = found[0][0] if found else index
        if len(distinct) < len(ask.queries):
            by_query = dict(zip(distinct, found, strict=True))
            found = [by_query[query] for query in ask.queries]
        hits = [hits for _, hits in found]
        self.metrics.queries.inc(len(ask.queries))
        if empty := hits.count([]):
            self.metrics.empty.inc(empty)
        return 200, ask.answer(index.store, hits), [*_JSON, (b"x-sleuth-corpus", index.corpus_hash.encode())]

    def _search(self, queries: Sequence[str], k: int) -> list[tuple[IndexRetriever, Hits]]:
        # Rows mean something in their own index only, and it may be exchanged before they are looked up.
        index = self._index
        return [(index, hits) for hits in index.rows(queries, k)]

    async def _body(self, scope: dict[str, Any], receive: Receive) -> bytes:
        packed = next((value for name, value in scope["headers"] if name == b"content-encoding"), b"identity")
        if packed.lower() != b"identity":
            raise BadRequest(415, f"a body packed as {packed.decode('latin-1')} isn't read; send it as it is")
        parts: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise BadRequest(400, "the client went away")
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self.settings.limits.body:
                raise BadRequest(413, f"the body is larger than {self.settings.limits.body:,} bytes")
            if not message.get("more_body"):
                return b"".join(parts)

    def _check_token(self, scope: dict[str, Any]) -> None:
        if self._token is None:
            return
        sent = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        scheme, _, token = sent.partition(b" ")
        if scheme.lower() != b"bearer" or not hmac.compare_digest(token.strip(), self._token):
            raise BadRequest(401, "a token is needed: Authorization: Bearer …")

    async def _health(self) -> tuple[int, bytes, list[tuple[bytes, bytes]]]:
        """Ready only when a real search comes back, through the same queue as everybody's."""
        index = self._index
        said: dict[str, Any] = {
            "kind": index.manifest.kind,
            "passages": len(index),
            "corpus_hash": index.corpus_hash,
            "settings": index.manifest.settings,
            "waiting": self._batcher.waiting,
        }
        if self._stopping:
            return 503, dump({"status": "stopping", **said}), _JSON
        if time.monotonic() > self._healthy_until and len(index.store):
            try:
                title = index.store.document(0).title or "probe"
                await asyncio.wait_for(self._batcher.submit([title], 1), _PROBE_SECONDS)
            except (TimeoutError, QueueFull):
                return 503, dump({"status": "overloaded", **said}), [*_JSON, (b"retry-after", b"1")]
            self._healthy_until = time.monotonic() + 1.0
        return 200, dump({"status": "ok", **said}), _JSON

    # The index may change under a server: what was added to it is taken up ------------------------------------------

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self._watching = asyncio.create_task(self._watch())
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                self._stopping = True
                if self._watching is not None:
                    self._watching.cancel()
                self._batcher.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_RELOAD_SECONDS)
            changed = self._manifest_time()
            if changed == self._read_at:
                continue
            with contextlib.suppress(UserError):
                self._index = await asyncio.to_thread(open_index, self.settings.folder, self.settings.settings)
                self.metrics.passages.set(len(self._index))
                self._read_at = changed

    def _manifest_time(self) -> int | None:
        try:
            return os.stat(self.settings.folder / MANIFEST).st_mtime_ns
        except OSError:
            return None


def _check_method(path: str, method: str, *allowed: str) -> None:
    if method not in allowed:
        raise BadRequest(405, f"{path} wants {allowed[0]}, not {method}", allow=", ".join(allowed))
