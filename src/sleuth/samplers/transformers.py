"""Sampling from a transformers model in process: packed, cached across turns, on whatever device the model is."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from sleuth.errors import RunFailed
from sleuth.samplers.attention import check_supported, packed_forward, sampling_mode
from sleuth.samplers.cache import KVStore
from sleuth.samplers.conversations import Conversation, Conversations, common_length
from sleuth.samplers.draw import draw, uniforms
from sleuth.samplers.packing import Packing, Segment
from sleuth.samplers.turn import Turn
from sleuth.types import Completion, SampleRequest, SamplingParams

_WORTH_SHARING = 32
"""Tokens that new contexts have in common, from which on a forward of their own pays."""

_ROOM = 128
"""Tokens of a turn that room is made for at once; a longer turn makes more as it goes."""


class TransformersSampler:
    """Samples one turn for a whole batch of conversations and keeps their keys and values for the next.

    A context that extends what was computed for its key costs its new tokens only; of any other, the part that it
    shares with it is kept and the rest computed again. What several contexts of one call have in common is computed
    once: the whole prompt of one question's rollouts, the instructions before different questions. Ids and log-probs
    are those that were sampled: nothing is decoded or tokenised.

    A draw depends on its own logits and its own seed, never on who else is in the batch. Logits themselves may differ
    in their last bits between batch shapes, as floating point does; no more than that.

    Changed weights are noticed and void what was computed, so that a trainer may share its model. (Writes through
    ``.data`` and those of a fused optimiser go unseen: release the conversations or call :meth:`clear` after one.) The
    model may be in training mode, and is put back into it.

    Memory is conversations x longest context x 2 x layers x key heads x head size numbers, given back when the last
    conversation is released.

    Args:
        model: decoder-only with causal attention, full or in sliding windows; LoRA and the like are fine.
        max_rows: how many conversations are held and decoded at a time. With more in one call they are sampled in
            several batches, and one that had to give up its slot is computed again at its next turn; so a driver
            should keep no more open than that. None: no limit.
        prefill_tokens: the most context tokens in one forward, which bounds its memory.
        autocast: run the forwards in this lower precision over fp32 weights, as a mixed-precision trainer does.
            Log-probs are computed in fp32 either way.

    Raises:
        UserError: a model that it can't run, see :func:`~sleuth.samplers.attention.check_supported`.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        max_rows: int | None = None,
        prefill_tokens: int = 4096,
        autocast: torch.dtype | None = None,
    ):
        if prefill_tokens < 1 or (max_rows is not None and max_rows < 1):
            raise ValueError("max_rows and prefill_tokens are at least 1")
        check_supported(model)
        self.model = model
        self.max_rows = max_rows
        self.prefill_tokens = prefill_tokens
        self.autocast = autocast
        self._store = KVStore()
        self._conversations = Conversations(self._store)
        self._weights: list[tuple[int, int]] = []

    def sample(self, requests: Sequence[SampleRequest], params: SamplingParams) -> list[Completion]:
        """One turn of each conversation, in the order of the requests.

        Raises:
            ValueError: two requests for one key, an empty context, or ``max_new_tokens`` below 1.
            RunFailed: the model's logits are NaN, or +∞.
        """
        keys = {r.key for r in requests}
        if len(keys) < len(requests):
            raise ValueError("two requests of one call have the same key")
        for request in requests:
            if not request.ids or request.max_new_tokens < 1:
                raise ValueError(f"request {request.key!r} has an empty context or may not sample a single token")
        self._notice_new_weights()
        # Those that still hold a slot go first, before others can take it from them.
        order = sorted(range(len(requests)), key=lambda i: requests[i].key not in self._conversations)
        size = self.max_rows or max(1, len(requests))
        completions: dict[int, Completion] = {}
        lower = torch.autocast(self.model.device.type, self.autocast, enabled=self.autocast is not None)
        with sampling_mode(self.model), lower:
            for first in range(0, len(order), size):
                batch = order[first : first + size]
                turn = self._turn([requests[i] for i in batch], params, keys)
                completions.update(zip(batch, turn, strict=True))
        return [completions[i] for i in range(len(requests))]

    def release(self, keys: Iterable[Hashable]) -> None:
        self._conversations.release(keys)
        if not len(self._conversations):
            self._store.clear()

    def clear(self) -> None:
        """Forget every conversation and give the memory back."""
        self._conversations.clear()
        self._store.clear()

    def _notice_new_weights(self) -> None:
        weights = [(p.data_ptr(), 0 if p.is_inference() else p._version) for p in self.model.parameters()]
        if weights != self._weights:
            self._conversations.clear()
            self._weights = weights

    def _turn(
        self, requests: Sequence[SampleRequest], params: SamplingParams, called: Iterable[Hashable]
    ) -> list[Completion]:
        conversations = self._conversations.admit([r.key for r in requests], self.max_rows, called)
        for conversation, request in zip(conversations, requests, strict=True):
            conversation.keep_prefix_of(request.ids)
        self._store.reserve(
            1 + max(c.slot for c in conversations), max(len(r.ids) + min(r.max_new_tokens, _ROOM) for r in requests)
        )
        self._conversations.move_together(conversations, longest=0)
        self._share_beginning(requests, conversations)
        logits = self._prefill(requests, conversations)
        return self._decode(requests, conversations, logits, params)

    def _share_beginning(self, requests: Sequence[SampleRequest], conversations: Sequence[Conversation]) -> None:
        """Compute what all new contexts begin with once, if it is worth a forward of its own."""
        new = [row for row, conversation in enumerate(conversations) if not conversation.ids]
        contexts = [requests[row].ids for row in new]
        # In lexicographic order, what the first and the last begin with is what all begin with.
        lowest, highest = min(contexts, default=[]), max(contexts, default=[])
        if lowest == highest:  # one question or none: its rollouts are the same context, which is computed once anyway
            return
        common = lowest[: min(common_length(lowest, highest), *(len(ids) - 1 for ids in contexts))]
        if len(common) < _WORTH_SHARING:
            return
        first, *others = (conversations[row] for row in new)
        for start in range(0, len(common), self.prefill_tokens):
            segment = Segment(first.slot, start, common[start : start + self.prefill_tokens])
            packing, last = Packing.of_segments(self._store, [segment], self.model.device)
            packed_forward(self.model, packing, last)
        self._store.move([first.slot] * len(others), [c.slot for c in others], len(common))
        for row in new:
            conversations[row].ids = list(common)

    def _prefill(self, requests: Sequence[SampleRequest], conversations: Sequence[Conversation]) -> Tensor:
        """Compute what is new in the contexts, once for those that are the same.

        Returns:
            (B, V) logits after the last token of each context.
        """
        computed_by: dict[tuple[int, tuple[int, ...]], int] = {}
        source = [
            computed_by.setdefault((len(conversation.ids), tuple(request.ids)), row)
            for row, (request, conversation) in enumerate(zip(requests, conversations, strict=True))
        ]
        logits: list[Tensor] = []
        row_of: dict[int, int] = {}  # of ``logits``
        for chunk in self._chunks(sorted(set(source)), requests, conversations):
            packing, last = Packing.of_segments(self._store, [segment for _, segment in chunk], self.model.device)
            ending = [n for n, (row, segment) in enumerate(chunk) if segment.end == len(requests[row].ids)]
            # Only the last token of a context needs logits; where no context ends, one is computed and left.
            keep = last[torch.tensor(ending or [0], device=last.device)]
            logits.append(packed_forward(self.model, packing, keep)[: len(ending)])
            for n in ending:
                row_of[chunk[n][0]] = len(row_of)
        copies = [row for row in range(len(requests)) if source[row] != row]
        if copies:
            self._store.move(
                [conversations[source[row]].slot for row in copies],
                [conversations[row].slot for row in copies],
                max(len(requests[row].ids) for row in copies),
            )
        for request, conversation in zip(requests, conversations, strict=True):
            conversation.ids = list(request.ids)
        return torch.cat(logits)[torch.tensor([row_of[row] for row in source], device=logits[0].device)]

    def _chunks(
        self, rows: Sequence[int], requests: Sequence[SampleRequest], conversations: Sequence[Conversation]
    ) -> Iterator[list[tuple[int, Segment]]]:
        """The new tokens of ``rows`` as (row, segment), at most ``prefill_tokens`` of them at a time."""
        chunk: list[tuple[int, Segment]] = []
        room = self.prefill_tokens
        for row in rows:
            ids, start = requests[row].ids, len(conversations[row].ids)
            while start < len(ids):
                segment = Segment(conversations[row].slot, start, ids[start : start + room])
                chunk.append((row, segment))
                start, room = segment.end, room - segment.count
                if room == 0:
                    yield chunk
                    chunk, room = [], self.prefill_tokens
        if chunk:
            yield chunk

    def _decode(
        self,
        requests: Sequence[SampleRequest],
        conversations: Sequence[Conversation],
        logits: Tensor,
        params: SamplingParams,
    ) -> list[Completion]:
        """Sample from (B, V) logits on until every conversation has stopped; who has stopped takes no further part."""
        device = logits.device
        drawn_on = torch.device("cpu") if device.type == "mps" else device  # Apple's GPUs have no double precision
        turn = Turn(requests, logits.shape[-1])
        completions: dict[int, Completion] = {}
        # From here on one entry for each row that still samples, in the order of the rows of ``logits``.
        rows = np.arange(len(requests))
        lengths = torch.tensor([len(r.ids) for r in requests], device=drawn_on)
        numbers = uniforms([r.seed for r in requests], max(r.max_new_tokens for r in requests)).to(drawn_on)
        slots, span, longest = lengths, 0, 0
        while True:
            tokens, logprobs = draw(logits.to(drawn_on), numbers[:, turn.step], params)
            drawn = logprobs.cpu().numpy()
            if np.isnan(drawn).any():
                raise RunFailed(
                    "the model gives no probabilities for the next token (NaN): its weights or activations have grown "
                    "out of range; train again with a lower trainer.lr, or on from an earlier checkpoint"
                )
            stopped = turn.add(rows, tokens.cpu().numpy(), drawn)
            for row, completion in stopped.items():
                # The last token is never fed: its keys and values come with the next turn's context.
                conversations[row].ids += completion.ids[:-1]
            completions.update(stopped)
            if len(completions) == len(requests):
                return [completions[row] for row in range(len(requests))]
            if stopped or turn.step == 1:
                busy = {n: conversations[row] for n, row in enumerate(rows.tolist()) if row not in stopped}
                span = self._conversations.move_together(list(busy.values()), int(lengths.max()) + turn.step - 1)
                left = sorted(busy, key=lambda n: busy[n].slot)
                slots = torch.tensor([busy[n].slot for n in left], device=device)
                index = torch.tensor(left, device=drawn_on)
                rows, tokens, lengths, numbers = rows[left], tokens[index], lengths[index], numbers[index]
                longest = int(lengths.max())
            columns = longest + turn.step
            self._store.reserve(0, columns)
            positions = (lengths + (turn.step - 1)).to(device)
            packing = Packing.of_next_tokens(self._store, tokens.to(device), slots, positions, span, columns)
            logits = packed_forward(self.model, packing)
