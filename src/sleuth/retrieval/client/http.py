"""A retriever behind a URL: our own server, any that speaks Search-R1's ``POST /retrieve``, or what a Wire speaks to.

A search ends within its budget, whatever the server does, and each request has one of three outcomes: passages, nothing
found, or failed with a reason. Reasons are short and ours: what a broken server wrote never goes anywhere.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator

from sleuth.errors import UserError
from sleuth.retrieval.analysis import clean_query
from sleuth.retrieval.client.answers import WrongAnswer, read_answer, read_page
from sleuth.retrieval.client.cache import ResultCache
from sleuth.retrieval.client.circuit import CircuitBreaker
from sleuth.types import Document, SearchRequest, SearchResult

TOKEN = "SLEUTH_RETRIEVER_TOKEN"
CORPUS_HEADER = "x-sleuth-corpus"
"""Our server's answers carry the hash of the corpus that they come from."""

_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
_LONGEST_WAIT = 10.0

T = TypeVar("T")


class HTTPSettings(BaseModel):
    """How a server is asked.

    Attributes:
        url: of the server, or of its search path.
        timeout: seconds of one call, from the first byte sent to the last one read.
        budget: seconds of one search of a whole batch, with all retries and waits.
        attempts: calls made for the same queries, the first one included.
        queries_per_call: queries sent together.
        connections: calls at the same time.
        circuit_failures, circuit_seconds: after so many failed calls in a row, for so long, every call fails at once.
        cache: folder for results; None: none are kept. Results are kept under the corpus hash that the server states.
        cache_key: instead of that hash, for a server that states none.
        cache_megabytes: the least used results go when there are more.
        token_variable: environment variable with a token for ``Authorization: Bearer``.
        max_megabytes: of one answer; a longer one has failed.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str
    timeout: float = Field(default=20.0, gt=0)
    budget: float = Field(default=60.0, gt=0)
    attempts: int = Field(default=5, ge=1)
    queries_per_call: int = Field(default=32, ge=1)
    connections: int = Field(default=16, ge=1)
    circuit_failures: int = Field(default=3, ge=1)
    circuit_seconds: float = Field(default=30.0, gt=0)
    cache: str | None = None
    cache_key: str | None = None
    cache_megabytes: int = Field(default=4096, ge=1)
    token_variable: str = TOKEN
    max_megabytes: int = Field(default=64, ge=1)

    @field_validator("url")
    @classmethod
    def _is_http(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("must be the address of a server, such as http://127.0.0.1:8000")
        return value.rstrip("/")


class Wire(Protocol):
    """How one kind of server is asked and read."""

    def request(self, queries: Sequence[str], k: int) -> tuple[str, str, dict[str, Any]]:
        """Method, URL and httpx's arguments of one call."""
        ...

    def read(self, content: bytes, queries: int, k: int) -> list[list[Document]]:
        """The passages for each query; raises :class:`sleuth.retrieval.client.answers.WrongAnswer`."""
        ...

    def quota_used_up(self, status: int, content: bytes) -> bool:
        """Whether a refusal means that no more calls may be made, or not now."""
        ...


class SearchR1Wire:
    """``POST /retrieve`` with a batch of queries."""

    def __init__(self, url: str, token_variable: str) -> None:
        self.url, self._token_variable = url, token_variable

    def headers(self) -> dict[str, str]:
        token = os.environ.get(self._token_variable)
        sent = {"authorization": f"Bearer {token}"} if token else {}
        return {"content-type": "application/json", **sent}

    def request(self, queries: Sequence[str], k: int) -> tuple[str, str, dict[str, Any]]:
        body = {"queries": list(queries), "topk": k, "return_scores": True}
        content = json.dumps(body, ensure_ascii=False).encode()
        return "POST", self.url, {"content": content, "headers": self.headers()}

    def read(self, content: bytes, queries: int, k: int) -> list[list[Document]]:
        return read_answer(content, queries, k)

    def quota_used_up(self, status: int, content: bytes) -> bool:
        return status == 429


class CallFailed(Exception):
    """A call that brought no passages.

    Attributes:
        again: the same call may succeed later.
        wait: seconds that the server asked to be left alone.
        status: of HTTP; 0 where no answer came.
    """

    def __init__(self, reason: str, *, again: bool, wait: float = 0.0, status: int = 0) -> None:
        super().__init__(reason)
        self.again, self.wait, self.status = again, wait, status


class HTTPRetriever:
    """See the module (:class:`sleuth.types.Retriever`). Safe to use from several threads.

    Attributes:
        corpus_hash: as the server stated it last; None before the first answer, and of a server that states none.

    Raises:
        UserError: httpx, tenacity or diskcache isn't installed, or the cache can't be used.
    """

    def __init__(self, settings: HTTPSettings, wire: Wire | None = None) -> None:
        try:
            import anyio
            import httpx
            import tenacity
        except ImportError as error:
            raise UserError(f"retriever.kind=http needs {error.name}; pip install 'sleuth[http]'") from None
        self._anyio, self._httpx, self._tenacity = anyio, httpx, tenacity
        self.settings = settings
        base = settings.url.removesuffix("/retrieve")
        self.url, self._health, self._access = f"{base}/retrieve", f"{base}/health", f"{base}/access"
        self._ours = SearchR1Wire(self.url, settings.token_variable)
        self._wire = wire or self._ours
        self.corpus_hash: str | None = None
        self._cache = (
            ResultCache(Path(settings.cache).expanduser(), settings.cache_megabytes) if settings.cache else None
        )
        self._circuit = CircuitBreaker(settings.circuit_failures, settings.circuit_seconds)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        self._client: Any = None
        self._slots = asyncio.Semaphore(settings.connections)

    def search(self, requests: Sequence[SearchRequest], k: int) -> list[SearchResult]:
        """At most ``k`` passages for each request, within the budget.

        Raises:
            ValueError: ``k`` is below 1.
        """
        return self._run(self.search_async(requests, k))

    async def search_async(self, requests: Sequence[SearchRequest], k: int) -> list[SearchResult]:
        """:meth:`search` for callers with an event loop; to be used from one loop only."""
        if k < 1:
            raise ValueError(f"k must be at least 1, not {k}")
        results = [SearchResult() for _ in requests]
        rows: dict[str, list[int]] = {}
        for position, request in enumerate(requests):
            if request.corpus is not None:
                results[position].error = f'a server has no parts, so "{request.corpus}" can\'t be searched by itself'
            else:
                rows.setdefault(clean_query(request.query), []).append(position)
        for query, found in (await self._find(list(rows), k)).items():
            for position in rows[query]:
                if isinstance(found, str):
                    results[position].error = found
                else:
                    results[position].documents = list(found)
        return results

    def page(self, name: str) -> list[Document]:
        """The page behind a passage, by ``POST /access``; nothing if the server has no such page.

        Raises:
            CallFailed: the server failed.
        """
        return self._run(self._page(name))

    def check(self) -> None:
        """Make sure that there is a server that answers.

        Raises:
            UserError: it can't be reached, isn't ready, or gives no passages in the right shape.
        """
        self._run(self._check())

    def close(self) -> None:
        """Close connections and cache; the retriever can't be used any more."""
        if self._loop is not None:
            if self._client is not None:
                self._run(self._client.aclose())
            self._loop.call_soon_threadsafe(self._loop.stop)
        if self._cache is not None:
            self._cache.close()

    # One search ------------------------------------------------------------------------------------------------------

    async def _find(self, queries: list[str], k: int) -> dict[str, list[Document] | str]:
        """Passages, or the reason of a failure, for each query."""
        found: dict[str, list[Document] | str] = {}
        corpus = self._corpus_key() if self._cache is not None else None
        if corpus is None and self._cache is not None and queries and self._wire is self._ours:
            await self._learn_corpus()
            corpus = self._corpus_key()
        if self._cache is not None and corpus is not None:
            for query in queries:
                if (kept := self._cache.get(corpus, query, k)) is not None:
                    found[query] = kept
        missing = [query for query in queries if query not in found]
        size = self.settings.queries_per_call
        deadline = asyncio.get_running_loop().time() + self.settings.budget
        calls = [self._call(missing[start : start + size], k, deadline) for start in range(0, len(missing), size)]
        for answers in await asyncio.gather(*calls):
            found |= answers
        return found

    async def _call(self, queries: list[str], k: int, deadline: float) -> dict[str, list[Document] | str]:
        """One call with its retries. Where it is refused as a whole, each query is sent by itself."""
        if self._circuit.refuses():
            return dict.fromkeys(queries, self._circuit.message())
        last = "no answer"

        async def attempt() -> list[list[Document]]:
            nonlocal last
            try:
                return await self._post(queries, k)
            except CallFailed as failure:
                last = str(failure)
                raise

        retrying = self._tenacity.AsyncRetrying(
            stop=self._tenacity.stop_after_attempt(self.settings.attempts),
            wait=self._wait,
            retry=self._tenacity.retry_if_exception(lambda error: isinstance(error, CallFailed) and error.again),
            reraise=True,
        )
        try:
            with self._anyio.fail_after(deadline - asyncio.get_running_loop().time()):
                answers: list[list[Document]] = await retrying(attempt)
        except CallFailed as failure:
            if not failure.again and len(queries) > 1:
                alone = await asyncio.gather(*(self._call([query], k, deadline) for query in queries))
                return {query: found for answer in alone for query, found in answer.items()}
            if failure.again:
                self._circuit.failed(str(failure))
            else:
                self._circuit.succeeded()  # it works; it only didn't want this
            return dict.fromkeys(queries, str(failure))
        except TimeoutError:
            reason = f"the budget of {self.settings.budget:g} s is used up (last: {last})"
            self._circuit.failed(reason)
            return dict.fromkeys(queries, reason)
        self._circuit.succeeded()
        corpus = self._corpus_key()
        if self._cache is not None and corpus is not None:
            for query, documents in zip(queries, answers, strict=True):
                self._cache.put(corpus, query, k, documents)
        return dict(zip(queries, answers, strict=True))

    def _wait(self, state: Any) -> float:
        """Seconds before the next attempt: random, doubling, and at least what the server asked for."""
        failure = state.outcome.exception()
        jitter = self._tenacity.wait_random_exponential(multiplier=0.25, max=_LONGEST_WAIT)(state)
        return max(jitter, getattr(failure, "wait", 0.0))

    async def _post(self, queries: list[str], k: int) -> list[list[Document]]:
        """One attempt, in its own time.

        Raises:
            CallFailed: no passages came of it.
        """
        method, url, what = self._wire.request(queries, k)
        status, sent, content = await self._request(method, url, **what)
        if status != 200:
            wait = sent.get("retry-after", "")
            seconds = min(float(wait), _LONGEST_WAIT) if wait.isdigit() else 0.0
            quota = self._wire.quota_used_up(status, content)
            said = f"quota used up (HTTP {status})" if quota else f"HTTP {status}"
            raise CallFailed(f"{said} from the server", again=status in _AGAIN, wait=seconds, status=status)
        try:
            answers = self._wire.read(content, len(queries), k)
        except WrongAnswer as wrong:
            raise CallFailed(str(wrong), again=True, status=status) from None
        self.corpus_hash = sent.get(CORPUS_HEADER, self.corpus_hash)
        return answers

    async def _request(self, method: str, url: str, **what: Any) -> tuple[int, Any, bytes]:
        """Status, headers and body.

        The time-out is the whole call's: a server that sends a byte a second is as good as silent. It is anyio's, since
        the pool loses a connection for good when a call is cancelled in asyncio's own way.
        """
        limit = self.settings.max_megabytes << 20
        try:
            async with self._slots:
                with self._anyio.fail_after(self.settings.timeout):
                    async with self._connected().stream(method, url, **what) as response:
                        parts: list[bytes] = []
                        size = 0
                        async for part in response.aiter_bytes():
                            size += len(part)
                            if size > limit:
                                raise CallFailed(f"an answer of more than {limit >> 20} MB", again=False)
                            parts.append(part)
                        return response.status_code, response.headers, b"".join(parts)
        except TimeoutError:
            raise CallFailed(f"no whole answer within {self.settings.timeout:g} s", again=True) from None
        except (self._httpx.HTTPError, self._httpx.InvalidURL, OSError) as error:
            raise CallFailed(f"{type(error).__name__} from {urlsplit(url).netloc}", again=True) from None

    async def _page(self, name: str) -> list[Document]:
        body = json.dumps({"urls": [clean_query(name)]}, ensure_ascii=False).encode()
        with self._anyio.fail_after(self.settings.budget):
            status, _, content = await self._request("POST", self._access, content=body, headers=self._ours.headers())
        if status != 200:
            raise CallFailed(f"HTTP {status} from the server", again=status in _AGAIN)
        try:
            return read_page(content)
        except WrongAnswer as wrong:
            raise CallFailed(str(wrong), again=True) from None

    # The server as such ----------------------------------------------------------------------------------------------

    async def _check(self) -> None:
        await self._learn_corpus()
        try:
            with self._anyio.fail_after(self.settings.budget):
                await self._post(["test"], 1)
        except (CallFailed, TimeoutError) as error:
            raise UserError(
                f"retriever.settings.url={self.settings.url}: {self._advice(error, getattr(error, 'status', 0))}"
            ) from None

    def _advice(self, error: Exception, status: int) -> str:
        """What is wrong with the server, for whoever can mend it."""
        if status in (401, 403):
            variable = self.settings.token_variable
            if os.environ.get(variable):
                return f"the server refuses the token in the environment variable {variable} ({error})"
            return f"the server wants a token ({error}); set the environment variable {variable} to it"
        if status == 200:
            return (
                f"what answers there doesn't speak Search-R1's /retrieve ({error}); "
                f"name another address, or start sleuth serve without --dialect zerosearch or browsecomp-plus"
            )
        return f"no search engine answers there ({error}); start one: sleuth serve DIR"

    async def _learn_corpus(self) -> None:
        try:
            status, _, content = await self._request("GET", self._health, headers=self._ours.headers())
            said = json.loads(content)
            if status == 200 and isinstance(said, dict) and isinstance(said.get("corpus_hash"), str):
                self.corpus_hash = said["corpus_hash"]
        except (CallFailed, ValueError):
            return  # a server without this path; the first search tells whether there is one at all

    def _corpus_key(self) -> str | None:
        return self.settings.cache_key or self.corpus_hash

    def _connected(self) -> Any:
        if self._client is None:
            host = urlsplit(self.url).hostname
            limits = self._httpx.Limits(
                max_connections=self.settings.connections, max_keepalive_connections=self.settings.connections
            )
            # A proxy for the outside world has nothing to do with a server on this machine.
            self._client = self._httpx.AsyncClient(
                limits=limits, timeout=None, trust_env=host not in ("127.0.0.1", "localhost", "::1")
            )
        return self._client

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="http retriever", daemon=True).start()
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise
