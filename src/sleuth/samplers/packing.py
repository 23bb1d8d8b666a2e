"""Packed forwards: the new tokens of many conversations in one row, without padding.

A forward is ``(1, N)``: each token knows its conversation's slot and its position, and attends to what the slot holds
up to that position. Prompts of different lengths, new observations and single decoded tokens are all the same thing,
and a forward costs exactly the tokens that are new. Serving engines run transformers' models this way;
:mod:`sleuth.samplers.attention` plugs it in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from sleuth.samplers.cache import KVStore

_QUERIES = 128
"""Longer segments go through attention in pieces of so many tokens, each over its own past only: half of the square of
a new prompt is not computed, and no mask is larger than a piece's."""

_WORTH_A_CALL = 2000
"""Query-key pairs: padding that wastes fewer of them a row is cheaper than another attention call."""

_ALONE = 16_000
"""Query-key pairs of a row that is worth a call of its own, which reads its keys in place."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive tokens of one conversation, the first of them at position ``start``."""

    slot: int
    start: int
    ids: Sequence[int]

    @property
    def count(self) -> int:
        return len(self.ids)

    @property
    def end(self) -> int:
        return self.start + len(self.ids)


@dataclass(slots=True)
class AttentionGroup:
    """Conversations whose queries go through attention in one call, padded to (rows, queries) where they differ.

    Attributes:
        tokens: the stretch of packed tokens that belongs to the group, as slice bounds.
        rows: slots of the store: a slice (no copy) or an index.
        positions: (rows, queries), of each query; what padding or idle rows get there is never read.
        columns: how many columns of the store any of the queries sees.
        spread: (rows * queries) index of packed tokens, counted within the group; None where that is 0, 1, 2, …
        real: index of the real queries among rows * queries, in packed order; None where all are.
    """

    tokens: tuple[int, int]
    rows: slice | Tensor
    positions: Tensor
    columns: int
    spread: Tensor | None = None
    real: Tensor | None = None
    _bias: dict[tuple[int, torch.dtype, int | None], Tensor] = field(default_factory=dict)
    _lowest: int | None = None

    def first_column(self, window: int | None) -> int:
        """The first column that any of the queries sees through ``window``."""
        if window is None:
            return 0
        if self._lowest is None:
            self._lowest = int(self.positions.min())
        return max(self._lowest - window + 1, 0)

    def bias(self, repeats: int, dtype: torch.dtype, window: int | None = None) -> Tensor:
        """What attention adds to the scores: 0 up to each query's own position, -inf past it and before its window.

        Args:
            window: a query sees so many tokens, itself included; None: all before it.

        Returns:
            (rows, 1, repeats * queries, columns from ``first_column(window)`` on), or 1 where that would be
            ``repeats``; made once a forward and shared by the layers with this window.
        """
        held = self._bias.get((repeats, dtype, window))
        if held is None:
            columns = torch.arange(self.first_column(window), self.columns, device=self.positions.device)
            own = self.positions.unsqueeze(-1)
            hidden = columns > own
            if window is not None:
                hidden |= columns <= own - window
            bias = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device).masked_fill_(hidden, float("-inf"))
            if repeats > 1 and bias.shape[1] > 1:
                bias = bias.repeat(1, repeats, 1)
            held = self._bias[repeats, dtype, window] = bias.unsqueeze(1)
        return held


@dataclass(slots=True)
class Packing:
    """The N tokens of one packed forward and where they belong.

    Attributes:
        tokens, slots, positions: (N,) int64 on the model's device.
        groups: cover the tokens in order.
        windows: of the layers that have attended, how many tokens they see back; None: all.
    """

    store: KVStore
    tokens: Tensor
    slots: Tensor
    positions: Tensor
    groups: list[AttentionGroup]
    windows: dict[int, int | None] = field(default_factory=dict)
    _index: dict[int, Tensor] = field(default_factory=dict)

    @classmethod
    def of_segments(cls, store: KVStore, segments: Sequence[Segment], device: torch.device) -> tuple[Packing, Tensor]:
        """Pack segments, those of like shape side by side: that keeps padding inside attention small.

        Returns:
            the packing, and the (segments,) index of each segment's last token in it.
        """
        pieces: list[Segment] = []
        segment_of: list[int] = []
        for i, segment in enumerate(segments):
            cut = _pieces(segment)
            pieces += cut
            segment_of += [i] * len(cut)
        members = _groups(pieces)
        order = [i for group in members for i in group]
        packed = [pieces[i] for i in order]
        counts = torch.tensor([p.count for p in packed])
        starts = torch.tensor([p.start for p in packed])
        ends = counts.cumsum(0)
        positions = torch.arange(int(ends[-1])) + (starts - ends + counts).repeat_interleave(counts)
        last = torch.empty(len(segments), dtype=torch.long)
        for i, end in zip(order, ends.tolist(), strict=True):
            if pieces[i].end == segments[segment_of[i]].end:
                last[segment_of[i]] = end - 1
        groups: list[AttentionGroup] = []
        for group in members:
            first = groups[-1].tokens[1] if groups else 0
            groups.append(_attention_group([pieces[i] for i in group], first, device))
        tokens = torch.tensor([token for p in packed for token in p.ids])
        slots = torch.tensor([p.slot for p in packed]).repeat_interleave(counts)
        return cls(store, tokens.to(device), slots.to(device), positions.to(device), groups), last.to(device)

    @classmethod
    def of_next_tokens(
        cls, store: KVStore, tokens: Tensor, slots: Tensor, positions: Tensor, span: int, columns: int
    ) -> Packing:
        """One token for each of ``slots`` (ascending, all below ``span``), attended to over the first ``span`` slots.

        Idle slots in the span are carried through attention, and only through attention: taking them out would mean
        copying everybody else's keys and values at each step.
        """
        n = len(slots)
        group = AttentionGroup((0, n), slice(0, span), positions.unsqueeze(1), columns)
        if n < span:
            group.spread = torch.zeros(span, dtype=torch.long, device=slots.device)
            group.spread[slots] = torch.arange(n, device=slots.device)
            group.positions = torch.zeros(span, 1, dtype=torch.long, device=slots.device)
            group.positions[slots, 0] = positions
            group.real = slots
        return cls(store, tokens, slots, positions, [group])

    def write(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Put keys and values, each (N, heads, size), where they belong; return the layer's whole store."""
        keys, values = self.store.layer(layer, key, value)
        for held, new in ((keys, key), (values, value)):
            held.view(-1, held.shape[-1]).index_copy_(0, self._flat_index(new.shape[1]), new.reshape(-1, new.shape[-1]))
        return keys, values

    def _flat_index(self, heads: int) -> Tensor:
        held = self._index.get(heads)
        if held is None:
            rows = self.slots.unsqueeze(1) * heads + torch.arange(heads, device=self.slots.device)
            held = self._index[heads] = (rows * self.store.columns + self.positions.unsqueeze(1)).view(-1)
        return held


def _pieces(segment: Segment) -> list[Segment]:
    if segment.count <= _QUERIES:
        return [segment]
    return [
        Segment(segment.slot, segment.start + first, segment.ids[first : first + _QUERIES])
        for first in range(0, segment.count, _QUERIES)
    ]


def _groups(pieces: Sequence[Segment]) -> list[list[int]]:
    """Which pieces share an attention call: sorted by shape, until padding costs more than one more call."""
    groups: list[list[int]] = []
    rows = queries = columns = needed = 0
    for i in sorted(range(len(pieces)), key=lambda i: (pieces[i].count, pieces[i].start)):
        piece = pieces[i]
        pairs = piece.count * piece.end
        rows, queries, columns, needed = rows + 1, max(queries, piece.count), max(columns, piece.end), needed + pairs
        if not groups or pairs > _ALONE or rows * queries * columns > needed + rows * _WORTH_A_CALL:
            groups.append([])
            rows, queries, columns, needed = 1, piece.count, piece.end, pairs
        groups[-1].append(i)
    # Slots in a row are read in place; any other selection is copied first.
    return [sorted(group, key=lambda i: pieces[i].slot) for group in groups]


def _attention_group(members: Sequence[Segment], first: int, device: torch.device) -> AttentionGroup:
    """The group of the packed tokens from ``first`` on."""
    slots = [p.slot for p in members]
    counts = torch.tensor([p.count for p in members], device=device).unsqueeze(1)
    starts = torch.tensor([p.start for p in members], device=device).unsqueeze(1)
    total, queries = sum(p.count for p in members), max(p.count for p in members)
    query = torch.arange(queries, device=device)
    consecutive = slots == list(range(slots[0], slots[0] + len(slots)))
    group = AttentionGroup(
        tokens=(first, first + total),
        rows=slice(slots[0], slots[-1] + 1) if consecutive else torch.tensor(slots, device=device),
        positions=starts + query,
        columns=max(p.end for p in members),
    )
    if total < queries * len(members):
        offsets = counts.cumsum(0) - counts
        group.spread = torch.where(query < counts, offsets + query, offsets).view(-1)
        group.real = (query < counts).view(-1).nonzero().view(-1)
    return group
