"""Which rows a batch has, and how they are dealt to updates, passes and processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def at_rows(batch: dict[str, Any], rows: Tensor) -> dict[str, Any]:
    """The batch with these rows, (n,) long, in their order; a row may come more than once.

    Values are (B, …) tensors, lists of B, or the same for all rows.
    """
    numbers = rows.tolist()

    def taken(value: Any) -> Any:
        if isinstance(value, Tensor) and value.dim():
            return value[rows.to(value.device)]
        return [value[i] for i in numbers] if isinstance(value, list) else value

    return {key: taken(value) for key, value in batch.items()}


PADDING = -1
"""A place that no rollout takes: it fills the last passes where the rollouts don't divide by processes."""


def deal(lengths: Sequence[int], updates: int, size: int, processes: int, seed: int) -> list[list[list[int]]]:
    """Which places of a batch each pass of each process works on.

    The batch is shuffled by ``seed`` and cut into updates, so that an update's rollouts don't depend on the number of
    processes. Within an update, whose order changes nothing but rounding, rows of like length go together, so that a
    pass has little padding and the processes are done at about the same time.

    Args:
        lengths: (B,) tokens of each place's completion; B divides by ``updates``.
        size: rows of a pass.

    Returns:
        process → pass → places, ``PADDING`` among them where B / updates doesn't divide by ``size`` × ``processes``.
    """
    order = torch.randperm(len(lengths), generator=torch.Generator().manual_seed(seed)).tolist()
    per_update = len(order) // updates
    together = size * processes
    dealt: list[list[list[int]]] = [[] for _ in range(processes)]
    for start in range(0, len(order), per_update):
        places = sorted(order[start : start + per_update], key=lambda place: lengths[place])
        places = [PADDING] * (-len(places) % together) + places
        for first in range(0, len(places), together):
            for process, passes in enumerate(dealt):
                passes.append(places[first : first + together][process::processes])
    return dealt


def joined(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Micro-batches as one; values are (B, …) tensors, lists of B, or the same for all."""
    whole: dict[str, Any] = {}
    for key, value in parts[0].items():
        if isinstance(value, Tensor) and value.dim():
            whole[key] = torch.cat([part[key] for part in parts])
        elif isinstance(value, list):
            whole[key] = [x for part in parts for x in part[key]]
        else:
            whole[key] = value
    return whole
