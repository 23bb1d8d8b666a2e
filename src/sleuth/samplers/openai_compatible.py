"""Any OpenAI-compatible endpoint as a writer: vLLM's server, SGLang, llama.cpp, or a company's API.

Speaks ``POST /chat/completions``. Refusals for now (429, 5xx, time-outs, broken connections) are tried again with
growing waits, those for good (a wrong key, an unknown model) stop the run with one line, and what is left is the
outcome of its own request. What a server wrote in an error goes nowhere but into that line, shortened.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator

from sleuth.errors import UserError
from sleuth.samplers.writer import WriteRequest, Written
from sleuth.types import SamplingParams

_AGAIN = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_SET_UP_WRONGLY = frozenset({401, 402, 403, 404, 405})
_LONGEST_WAIT = 60.0
_SHOWN = 160


class EndpointSettings(BaseModel):
    """Where the endpoint is and how it may be used.

    Attributes:
        url: with its ``/v1``, such as ``http://127.0.0.1:8000/v1``.
        model: its name there.
        key_variable: environment variable with the key for ``Authorization: Bearer``; without one none is sent.
        timeout: seconds of one call.
        attempts: calls made for one message, the first included.
        concurrency: calls at the same time.
        requests_per_minute: at most so many calls, evenly spaced; None: no limit of ours.
        price_in, price_out: of a million tokens read and written, for the cost; None: no cost is stated.
        send_seed: some servers refuse the field ``seed``.
        max_tokens_field: newer OpenAI models want ``max_completion_tokens``.
        extra: further fields of each request, such as ``{"reasoning_effort": "low"}``.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str
    model: str = ""
    key_variable: str = "OPENAI_API_KEY"
    timeout: float = Field(default=120.0, gt=0)
    attempts: int = Field(default=6, ge=1)
    concurrency: int = Field(default=64, ge=1)
    requests_per_minute: float | None = Field(default=None, gt=0)
    price_in: float | None = Field(default=None, ge=0)
    price_out: float | None = Field(default=None, ge=0)
    send_seed: bool = True
    max_tokens_field: str = "max_tokens"
    extra: dict[str, Any] = Field(default_factory=dict)

    @field_validator("url")
    @classmethod
    def _is_http(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("must be the address of an endpoint, such as http://127.0.0.1:8000/v1")
        return value.rstrip("/")

    def cost(self, tokens_in: int, tokens_out: int) -> float | None:
        """In the currency of the prices; None where there are none."""
        if self.price_in is None and self.price_out is None:
            return None
        return (tokens_in * (self.price_in or 0.0) + tokens_out * (self.price_out or 0.0)) / 1e6


@dataclass(slots=True)
class Tally:
    """All that was asked of an endpoint. ``retries``: calls that had to be made again."""

    messages: int = 0
    failed: int = 0
    retries: int = 0
    tokens_in: int = 0
    tokens_out: int = 0


class OpenAIWriter:
    """See the module (:class:`~sleuth.samplers.writer.Writer` and :class:`~sleuth.samplers.writer.AsyncWriter`).

    Attributes:
        tally: what was used so far.

    Raises:
        UserError: httpx or tenacity isn't installed, or no model is named.
    """

    def __init__(self, settings: EndpointSettings):
        try:
            import httpx  # noqa: F401
            import tenacity  # noqa: F401
        except ImportError as error:
            raise UserError(f"an endpoint needs {error.name}; pip install 'sleuth[http]'") from None
        if not settings.model:
            raise UserError(f"name the model that {settings.url} serves: evaluation.endpoint.model=NAME")
        self.settings = settings
        self.tally = Tally()
        self._free: list[Any] = []
        self._slots: asyncio.Semaphore | None = None
        self._next_start = 0.0
        self._pause_until = 0.0

    def write(self, requests: Sequence[WriteRequest], params: SamplingParams) -> list[Written]:
        """One message a request, in order; ``settings.concurrency`` at a time.

        Raises:
            UserError: the endpoint refuses for good: key, model or address are wrong.
        """

        async def together() -> list[Written]:
            async with self, asyncio.TaskGroup() as group:
                tasks = [group.create_task(self.awrite(request, params)) for request in requests]
            return [task.result() for task in tasks]

        try:
            return asyncio.run(together())
        except BaseExceptionGroup as errors:
            raise first_error(errors) from None

    async def __aenter__(self) -> Self:
        import httpx

        # A connection each, since a pool of many looks through all of them for every call: a tenth of the time at 64.
        trusted = httpx.create_ssl_context()
        self._free = [
            httpx.AsyncClient(
                timeout=self.settings.timeout, limits=httpx.Limits(max_connections=1), trust_env=True, verify=trusted
            )
            for _ in range(self.settings.concurrency)
        ]
        self._slots = asyncio.Semaphore(self.settings.concurrency)
        return self

    async def __aexit__(self, *error: object) -> None:
        clients, self._free, self._slots = self._free, [], None
        for client in clients:
            await client.aclose()

    async def awrite(self, request: WriteRequest, params: SamplingParams) -> Written:
        """One message, inside ``async with``.

        Raises:
            UserError: the endpoint refuses for good.
        """
        from tenacity import AsyncRetrying, RetryError, retry_if_exception_type, stop_after_attempt

        if self._slots is None:
            raise RuntimeError("awrite is used inside `async with writer`")
        body = self._body(request, params)
        calls = 0
        async with self._slots:
            try:
                async for attempt in AsyncRetrying(
                    retry=retry_if_exception_type(_TryAgain),
                    stop=stop_after_attempt(self.settings.attempts),
                    wait=_wait,
                ):
                    with attempt:
                        calls += 1
                        await self._take_turn()
                        written = self._read(await self._call(body), calls)
            except RetryError as error:
                reason = error.last_attempt.exception()
                written = Written(error=f"the endpoint gave no message in {calls} calls ({reason})", calls=calls)
            except _Refused as refusal:
                written = Written(error=f"the endpoint refused the request: {refusal}", calls=calls)
        self._count(written)
        return written

    def _body(self, request: WriteRequest, params: SamplingParams) -> bytes:
        settings = self.settings
        body: dict[str, Any] = {
            "model": settings.model,
            "messages": [{"role": m.role, "content": m.content} for m in request.messages],
            settings.max_tokens_field: request.max_tokens,
            "temperature": params.temperature,
            "top_p": params.top_p,
        }
        if params.top_k:
            body["top_k"] = params.top_k
        if request.stop:
            body["stop"] = list(request.stop)
        if settings.send_seed:
            body["seed"] = request.seed & 0x7FFFFFFF
        return json.dumps({**body, **settings.extra}, ensure_ascii=False).encode("utf-8", errors="replace")

    async def _take_turn(self) -> None:
        """Wait for the pause that the server asked for and for the next free place in our rate."""
        now = time.monotonic()
        start = max(now, self._pause_until)
        if self.settings.requests_per_minute is not None:
            start = max(start, self._next_start)
            self._next_start = start + 60.0 / self.settings.requests_per_minute
        if start > now:
            await asyncio.sleep(start - now)

    async def _call(self, body: bytes) -> bytes:
        import httpx

        key = os.environ.get(self.settings.key_variable)
        headers = {"content-type": "application/json", **({"authorization": f"Bearer {key}"} if key else {})}
        client = self._free.pop()  # there is one: calls hold a slot
        try:
            answer = await client.post(f"{self.settings.url}/chat/completions", content=body, headers=headers)
        except httpx.TimeoutException:
            raise _TryAgain(f"no answer in {self.settings.timeout:g} s") from None
        except httpx.InvalidURL as error:
            raise UserError(f"{self.settings.url}: {error}; give the address of an endpoint") from None
        except httpx.HTTPError as error:
            raise _TryAgain(type(error).__name__) from None
        finally:
            self._free.append(client)
        if answer.status_code == 200:
            return answer.content
        reason = f"status {answer.status_code}{_said(answer.content)}"
        if answer.status_code in _SET_UP_WRONGLY:
            what = f"the key in {self.settings.key_variable}" if answer.status_code in (401, 403) else "url and model"
            raise UserError(f"{self.settings.url} refuses {self.settings.model}: {reason}; check {what}")
        if answer.status_code in _AGAIN:
            wait = _retry_after(answer.headers.get("retry-after"))
            self._pause_until = max(self._pause_until, time.monotonic() + wait)
            raise _TryAgain(reason, wait)
        raise _Refused(reason)

    def _read(self, content: bytes, calls: int) -> Written:
        """The message in an answer.

        A message without text (a refusal, a filter, a thought that used up the tokens) is an empty one.
        """
        try:
            answer = json.loads(content)
            choice = answer["choices"][0]
            text = choice["message"].get("content") or ""
            usage = answer.get("usage") or {}
            counts = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")]
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise _TryAgain("an answer that is no chat completion") from None
        if not isinstance(text, str):
            raise _TryAgain("a message that is no text")
        tokens_in, tokens_out = (n if isinstance(n, int) else None for n in counts)
        return Written(text, choice.get("finish_reason") == "length", tokens_in, tokens_out, calls=calls)

    def _count(self, written: Written) -> None:
        tally = self.tally
        tally.messages += 1
        tally.failed += written.failed
        tally.retries += written.calls - 1
        tally.tokens_in += written.tokens_in or 0
        tally.tokens_out += written.tokens_out or 0


class _TryAgain(Exception):
    """A call that may succeed later. ``wait``: seconds that the server asked for."""

    def __init__(self, reason: str, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.wait = wait


class _Refused(Exception):
    """A call that the same request would fail again: too long a context, say."""


def _wait(state: Any) -> float:
    """Half a second, doubled at each attempt, up to a minute; longer where the server says so."""
    error = state.outcome.exception()
    grown = min(0.5 * 2 ** (state.attempt_number - 1), _LONGEST_WAIT)
    return max(grown, getattr(error, "wait", 0.0))


def _retry_after(value: str | None) -> float:
    """Seconds of a Retry-After header; 0 for a date or nonsense, where our own waits do."""
    try:
        seconds = float(value or 0)
    except ValueError:
        return 0.0
    return min(seconds, _LONGEST_WAIT) if math.isfinite(seconds) and seconds > 0 else 0.0


def _said(content: bytes) -> str:
    """What a server says of an error, in brackets and short; nothing where it isn't the usual form."""
    try:
        message = json.loads(content)["error"]["message"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return ""
    said = " ".join(str(message).split())
    return f" ({said if len(said) <= _SHOWN else said[: _SHOWN - 1] + '…'})"


def first_error(errors: BaseExceptionGroup) -> BaseException:
    """The first error of a task group, whose tasks are all stopped by it."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
