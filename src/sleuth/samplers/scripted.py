"""A sampler that says what it was told to: tests of everything above the model, without a model."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sleuth.types import Completion, SampleRequest, SamplingParams, StopReason


@dataclass(frozen=True, slots=True)
class ScriptedTurn:
    """What one turn samples. Without ``logprobs`` every token gets the sampler's default."""

    ids: Sequence[int]
    logprobs: Sequence[float] | None = None


Turns = Sequence[Sequence[int] | ScriptedTurn]
"""The turns of one conversation, in order."""

Script = Callable[[SampleRequest], Sequence[int] | ScriptedTurn]
"""Decides on a turn when it is asked for."""


class ScriptedSampler:
    """Plays scripts back under the same stop rules as a real sampler.

    A turn is cut after the first token that completes an action, after a token of ``end_ids``, or at
    ``max_new_tokens``. A turn that simply ends is reported as ``END_OF_TURN``, as engines do that hide the end token.

    Args:
        scripts: for each key its turns or a function; or one function for every key.
        logprob: log-prob of tokens whose turn gives none.
        overshoot: don't cut at actions or end tokens, as an engine that notices a stop string late. ``max_new_tokens``
            still holds, and the stop reason is the one that a precise sampler would give.

    Attributes:
        requests: every request seen, in order.
        released: every key that was released, in order.
    """

    def __init__(
        self, scripts: Mapping[Hashable, Turns | Script] | Script, *, logprob: float = -0.5, overshoot: bool = False
    ):
        self.scripts = scripts
        self.logprob = logprob
        self.overshoot = overshoot
        self.requests: list[SampleRequest] = []
        self.released: list[Hashable] = []
        self._played: dict[Hashable, int] = {}

    def sample(self, requests: Sequence[SampleRequest], params: SamplingParams) -> list[Completion]:
        """One scripted completion a request, in order.

        Raises:
            LookupError: a key has no script, or its script has no turn left.
            ValueError: a turn is empty, or its log-probs are not as many as its ids.
        """
        return [self._play(request) for request in requests]

    def release(self, keys: Iterable[Hashable]) -> None:
        self.released.extend(keys)

    def _play(self, request: SampleRequest) -> Completion:
        self.requests.append(request)
        turn = self._next_turn(request)
        ids = list(turn.ids)
        logprobs = [self.logprob] * len(ids) if turn.logprobs is None else list(turn.logprobs)
        if not ids or len(ids) != len(logprobs):
            raise ValueError(f"script of {request.key!r}: {len(ids)} ids with {len(logprobs)} log-probs in a turn")
        end, stop = _first_stop(ids, request)
        if self.overshoot:
            end = request.max_new_tokens
        return Completion(ids[:end], logprobs[:end], stop)

    def _next_turn(self, request: SampleRequest) -> ScriptedTurn:
        script = self.scripts if callable(self.scripts) else self.scripts.get(request.key)
        if script is None:
            raise LookupError(f"no script for {request.key!r}")
        if callable(script):
            turn = script(request)
        else:
            index = self._played.get(request.key, 0)
            if index >= len(script):
                raise LookupError(f"script of {request.key!r} has {len(script)} turns and was asked for one more")
            self._played[request.key] = index + 1
            turn = script[index]
        return turn if isinstance(turn, ScriptedTurn) else ScriptedTurn(turn)


def _first_stop(ids: Sequence[int], request: SampleRequest) -> tuple[int, StopReason]:
    """How many of ``ids`` a precise sampler would have drawn, and why it would have stopped there."""
    rule = request.stop
    for n, token in enumerate(ids[: request.max_new_tokens], start=1):
        if token in rule.end_ids:
            return n, StopReason.END_OF_TURN
        if token in rule.trigger_ids and rule.complete(ids[:n]):
            return n, StopReason.ACTION
    if len(ids) >= request.max_new_tokens:
        return request.max_new_tokens, StopReason.LENGTH
    return len(ids), StopReason.END_OF_TURN
