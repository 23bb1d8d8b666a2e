"""Text in, text out: what an endpoint can do, and what a method that only talks needs.

A :class:`~sleuth.types.Sampler` gives the ids and log-probs that it sampled, which training must have. An endpoint has
only text. So there are two seams: whatever trains or replays asks for a Sampler, whatever only reads answers takes a
:class:`Writer`, and a local model serves as both (:class:`sleuth.samplers.local_writer.LocalWriter`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from sleuth.types import SamplingParams


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """The next assistant message of a conversation.

    Attributes:
        max_tokens: that it may have.
        stop: the message ends before the first of these strings, which isn't part of it.
        seed: of the draw. A local model's draw depends on it alone; endpoints promise less or nothing.
    """

    messages: tuple[Message, ...]
    max_tokens: int
    stop: tuple[str, ...] = ()
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Written:
    """What came: a message, or a reason why none did.

    Attributes:
        cut: it was still going on at its token limit (or its context was full).
        tokens_in, tokens_out: of this call, as the model counts them; None where an endpoint doesn't say.
        ids, logprobs: what was sampled, of a local model alone; None from an endpoint.
        error: why there is no message. Ours, short, and never shown to a model.
        calls: made for it, those included that failed.
    """

    text: str = ""
    cut: bool = False
    tokens_in: int | None = None
    tokens_out: int | None = None
    ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    error: str | None = None
    calls: int = 1

    @property
    def failed(self) -> bool:
        return self.error is not None


@runtime_checkable
class Writer(Protocol):
    """Writes messages. Called with a whole batch; failures are results, a wrong set-up is a UserError."""

    def write(self, requests: Sequence[WriteRequest], params: SamplingParams) -> list[Written]:
        """One message a request, in order."""
        ...


@runtime_checkable
class AsyncWriter(Protocol):
    """The same for an event loop, one request a call. Used inside ``async with``."""

    async def __aenter__(self) -> AsyncWriter: ...

    async def __aexit__(self, *error: object) -> None: ...

    async def awrite(self, request: WriteRequest, params: SamplingParams) -> Written: ...
