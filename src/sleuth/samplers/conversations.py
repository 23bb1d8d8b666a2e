"""Who holds which slot of the store, and which part of each context is in it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from sleuth.samplers.cache import KVStore

_COMPACT_BELOW = 0.8
"""Share of busy slots under which the busy ones move together, so that attention stops reading the idle ones."""


@dataclass(slots=True, eq=False)
class Conversation:
    """``slot`` of the store holds keys and values of ``ids``; whatever follows them there is void."""

    slot: int
    ids: list[int] = field(default_factory=list)

    def keep_prefix_of(self, ids: Sequence[int]) -> None:
        """Void all that differs from ``ids``, and the last of those in any case: its logits are still to be had."""
        del self.ids[min(common_length(self.ids, ids), len(ids) - 1) :]


def common_length(a: Sequence[int], b: Sequence[int]) -> int:
    """How many ids two contexts have in common at the beginning."""
    shorter = min(len(a), len(b))
    if a[:shorter] == b[:shorter]:
        return shorter
    return next(i for i in range(shorter) if a[i] != b[i])


class Conversations:
    """The slots of a :class:`~sleuth.samplers.cache.KVStore` by conversation key."""

    def __init__(self, store: KVStore):
        self.store = store
        self._held: dict[Hashable, Conversation] = {}  # least recently used first
        self._owners: list[Conversation | None] = []  # by slot

    def __contains__(self, key: Hashable) -> bool:
        return key in self._held

    def __len__(self) -> int:
        return len(self._held)

    def admit(
        self, keys: Sequence[Hashable], limit: int | None = None, spare: Iterable[Hashable] = ()
    ) -> list[Conversation]:
        """The conversation of each key, new ones with nothing in their slots.

        With a ``limit`` (at least ``len(keys)``) others give up their slots for it: first the least recently used,
        those of ``spare`` last.
        """
        wanted = set(keys)
        for key in keys:
            if key in self._held:
                self._held[key] = self._held.pop(key)
        fresh = [key for key in keys if key not in self._held]
        if limit is not None:
            excess = max(0, len(self._held) + len(fresh) - limit)
            spared = set(spare)
            self.release(sorted((k for k in self._held if k not in wanted), key=lambda k: k in spared)[:excess])
        total = len(self._held) + len(fresh)
        self._owners += [None] * (total - len(self._owners))
        free = (slot for slot, owner in enumerate(self._owners) if owner is None)
        for key, slot in zip(fresh, list(free), strict=False):
            self._owners[slot] = self._held[key] = Conversation(slot)
        return [self._held[key] for key in keys]

    def release(self, keys: Iterable[Hashable]) -> None:
        for key in keys:
            if (conversation := self._held.pop(key, None)) is not None:
                self._owners[conversation.slot] = None

    def clear(self) -> None:
        self._held.clear()
        self._owners.clear()

    def move_together(self, busy: Sequence[Conversation], longest: int) -> int:
        """How many leading slots hold all of ``busy``, after moving them to the front if too many others are between.

        Args:
            longest: tokens that any of ``busy`` has in the store by now, those after its ``ids`` included.
        """
        span = 1 + max(c.slot for c in busy)
        if len(busy) > _COMPACT_BELOW * span:
            return span
        span = len(busy)
        length = max(longest, max(len(c.ids) for c in self._held.values()))
        taken = {c.slot for c in busy}
        holes = (slot for slot in range(span) if slot not in taken)
        sources: list[int] = []
        targets: list[int] = []
        for conversation in busy:
            if conversation.slot >= span:
                here, hole = conversation.slot, next(holes)
                sources.append(here)
                targets.append(hole)
                if (other := self._owners[hole]) is not None:
                    sources.append(hole)
                    targets.append(here)
                    other.slot = here
                self._owners[here], self._owners[hole] = other, conversation
                conversation.slot = hole
        self.store.move(sources, targets, length)
        return span
