"""Keys and values of many conversations, each in a slot of its own."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

_COLUMNS = 64
"""Room grows in multiples of this many tokens."""


class KVStore:
    """For each layer, keys and values of shape (slots, heads, columns, size): position p of a conversation at column p.

    Columns past a conversation's length hold leftovers of earlier ones: finite numbers that no query may see. Memory
    is taken on the first write and grows by half when it has to.
    """

    def __init__(self) -> None:
        self.slots = 0
        self.columns = 0
        self._layers: dict[int, tuple[Tensor, Tensor]] = {}

    def reserve(self, slots: int, columns: int) -> None:
        """Make room for at least so many conversations of at least so many tokens."""
        if slots <= self.slots and columns <= self.columns:
            return
        if columns > self.columns:
            columns = max(columns, self.columns + self.columns // 2)
            self.columns = -(-columns // _COLUMNS) * _COLUMNS
        self.slots = max(slots, self.slots)
        self._layers = {layer: (self._grown(k), self._grown(v)) for layer, (k, v) in self._layers.items()}

    def layer(self, index: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """The keys and values of one layer, made on its first use for such as ``key`` and ``value``.

        They follow their number type and device: what is held is converted.
        """
        held = self._layers.get(index)
        if held is None:
            held = self._layers[index] = (self._empty(key), self._empty(value))
        elif held[0].dtype != key.dtype or held[0].device != key.device:
            held = self._layers[index] = (held[0].to(key), held[1].to(value))
        return held

    def move(self, sources: Sequence[int], targets: Sequence[int], length: int) -> None:
        """Let each target slot hold the first ``length`` tokens of its source, all at once: slots may trade places."""
        for pair in self._layers.values():
            for held in pair:
                used = held[:, :, :length]
                used.index_copy_(
                    0,
                    torch.tensor(targets, device=held.device),
                    used.index_select(0, torch.tensor(sources, device=held.device)),
                )

    def clear(self) -> None:
        """Give the memory back."""
        self.slots = self.columns = 0
        self._layers = {}

    def _empty(self, like: Tensor) -> Tensor:
        # Zeros, not uninitialised memory: a hidden column still enters attention, with weight 0, and 0 x NaN is NaN.
        return torch.zeros(
            self.slots, like.shape[-2], self.columns, like.shape[-1], dtype=like.dtype, device=like.device
        )

    def _grown(self, held: Tensor) -> Tensor:
        slots, heads, columns, size = held.shape
        grown = held.new_zeros(self.slots, heads, self.columns, size)
        grown[:slots, :, :columns] = held
        return grown
