"""Which rollouts a report shows when there are more than it can hold: whole groups, spread evenly, by no outcome."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

GroupKey = tuple[int, str]
"""Step and group."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Attributes:
    groups: those shown. ``shown``, ``total``: their rollouts, and all. ``rule``: how they were chosen; empty where
        nothing was left out.
    """

    groups: frozenset[GroupKey]
    shown: int
    total: int
    rule: str = ""


def select(sizes: Mapping[GroupKey, int], limit: int, wanted: Collection[GroupKey] = ()) -> Selection:
    """Choose groups of at most ``limit`` rollouts: the ``wanted`` ones first, then as many of every step.

    Within a step the groups are taken at even distances, in their order in the file. Rewards and statuses have no say,
    so that shares among the shown rollouts are those of all, up to chance.
    """
    total = sum(sizes.values())
    if total <= limit:
        return Selection(frozenset(sizes), total, total)
    kept: set[GroupKey] = set()
    room = limit
    for key in _unique(wanted):
        if key in sizes and sizes[key] <= room:
            kept.add(key)
            room -= sizes[key]
    named = len(kept)
    steps: dict[int, list[GroupKey]] = {}
    for key in sizes:
        if key not in kept:
            steps.setdefault(key[0], []).append(key)
    queues = [iter(_evenly(groups)) for groups in steps.values()]
    while queues:
        still = []
        for queue in _evenly(queues):
            key = next(queue, None)
            if key is None:
                continue
            if sizes[key] <= room:
                kept.add(key)
                room -= sizes[key]
            still.append(queue)
        queues = still
    rule = "whole groups, as many of every step, at even distances"
    if named:
        rule = f"the {named} groups that alarms name, then {rule}"
    return Selection(frozenset(kept), sum(sizes[key] for key in kept), total, rule)


def _evenly(items: Iterable[T]) -> list[T]:
    """All items, ordered so that every beginning of the list is spread over all of it: halves, quarters, eighths, …"""
    items = list(items)
    bits = max(len(items) - 1, 1).bit_length()
    order = (int(f"{i:0{bits}b}"[::-1], 2) for i in range(1 << bits))
    return [items[i] for i in order if i < len(items)]


def _unique(keys: Iterable[GroupKey]) -> list[GroupKey]:
    return list(dict.fromkeys(keys))
