"""A local model as a writer: messages through the chat template, sampled by any :class:`~sleuth.types.Sampler`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sleuth.agent.codec import TokenCodec, valid_text
from sleuth.samplers.writer import Message, WriteRequest, Written
from sleuth.types import SampleRequest, SamplingParams, StopReason, StopRule

if TYPE_CHECKING:
    from sleuth.types import Sampler


class LocalWriter:
    """A :class:`~sleuth.samplers.writer.Writer` over token ids.

    Without a chat template the contents of the messages are written one under the other, with an empty line before
    each of the user's, and the message ends at the next empty line: what a base model goes on with by itself.

    Args:
        window: tokens of context that the model has; None: as many as are asked for.
    """

    def __init__(self, sampler: Sampler, codec: TokenCodec, window: int | None = None):
        self._sampler, self._codec, self._window = sampler, codec, window
        self._rules: dict[tuple[str, ...], StopRule] = {}

    def write(self, requests: Sequence[WriteRequest], params: SamplingParams) -> list[Written]:
        contexts = [self.ids(request.messages) for request in requests]
        rooms = [self._room(ids, request.max_tokens) for ids, request in zip(contexts, requests, strict=True)]
        stops = [self._stop(request.stop) for request in requests]
        asked = [
            SampleRequest(number, ids, room, self._rule(stop), request.seed)
            for number, (request, ids, room, stop) in enumerate(zip(requests, contexts, rooms, stops, strict=True))
            if room > 0
        ]
        try:
            sampled = dict(
                zip((r.key for r in asked), self._sampler.sample(asked, params) if asked else [], strict=True)
            )
        finally:
            self._sampler.release([request.key for request in asked])
        written = []
        for number, ids in enumerate(contexts):
            if number not in sampled:  # no token fits behind this context
                written.append(Written(cut=True, tokens_in=len(ids), tokens_out=0, ids=(), logprobs=(), calls=0))
                continue
            completion = sampled[number]
            text = self._codec.decode([i for i in completion.ids if i not in self._codec.end_ids])
            ends = [at for stop in stops[number] if (at := text.find(stop)) >= 0]
            written.append(
                Written(
                    text[: min(ends)] if ends else text,
                    cut=completion.stop is StopReason.LENGTH and not ends,
                    tokens_in=len(ids),
                    tokens_out=len(completion.ids),
                    ids=tuple(completion.ids),
                    logprobs=tuple(completion.logprobs),
                )
            )
        return written

    def ids(self, messages: Sequence[Message]) -> list[int]:
        """The context of the next assistant message. What users wrote is text, whatever special tokens it spells."""
        codec = self._codec
        said = valid_text(messages[-1].content)
        if codec.chat_template is None:
            text = "".join(_plain(message) for message in messages)
            return codec.encode_start(text, bos=True, foreign=said)
        text = codec.tokenizer.apply_chat_template(
            [{"role": m.role, "content": valid_text(m.content)} for m in messages],
            tokenize=False,
            add_generation_prompt=True,
        )
        return codec.encode_start(text, bos=False, foreign=said.strip())

    def _room(self, ids: Sequence[int], wanted: int) -> int:
        return wanted if self._window is None else min(wanted, self._window - len(ids))

    def _stop(self, wanted: tuple[str, ...]) -> tuple[str, ...]:
        return wanted if self._codec.chat_template is not None else (*wanted, "\n\n")

    def _rule(self, stop: tuple[str, ...]) -> StopRule:
        if stop not in self._rules:
            codec = self._codec
            strings = [s.encode() for s in stop]
            last = [set(codec.ids_containing(s[-1:])) for s in strings]

            def complete(ids: Sequence[int]) -> bool:
                text = b"".join(codec.pieces(ids))
                return any(s in text for s in strings)

            self._rules[stop] = StopRule(complete, frozenset().union(*last), codec.end_ids, stop)
        return self._rules[stop]


def _plain(message: Message) -> str:
    content = valid_text(message.content).strip()
    return f"\n{content}\n" if message.role == "user" else f"{content}\n"
