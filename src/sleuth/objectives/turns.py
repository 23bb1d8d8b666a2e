"""Which turn of the policy a token belongs to."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sleuth.objectives.tokens import turn_numbers
from sleuth.types import SpanKind, Trajectory


def turns_of(trajectories: Sequence[Trajectory], mask: Tensor) -> Tensor:
    """(B, T) long: the index of the turn whose policy span a token belongs to, -1 outside of policy spans.

    Column t is ``completion_ids[t]``. The mask may leave out policy tokens, but nothing else may be in it.

    Raises:
        ValueError: not one row a trajectory, policy tokens beyond T, or a token in the mask that the policy didn't
            sample.
    """
    if mask.dim() != 2 or len(mask) != len(trajectories):
        raise ValueError(
            f"{len(trajectories)} trajectories need a mask (B, T) of as many rows, not {tuple(mask.shape)}"
        )
    turns = torch.full(mask.shape, -1, dtype=torch.long)
    for row, trajectory in enumerate(trajectories):
        for turn, (start, end) in enumerate(policy_stretches(trajectory)):
            if end > mask.shape[1]:
                raise ValueError(f"rollout {trajectory.id!r}: policy tokens up to {end}, but rows have {mask.shape[1]}")
            turns[row, start:end] = turn
    turns = turns.to(mask.device)
    foreign = (mask.bool() & (turns < 0)).any(-1)
    if foreign.any():
        row = int(foreign.nonzero()[0, 0])
        raise ValueError(f"rollout {trajectories[row].id!r}: the mask counts tokens that the policy didn't sample")
    return turns


def turns_in_mask(mask: Tensor) -> Tensor:
    """(B, T) long: the index of the run of ones that a token belongs to, -1 where ``mask`` is 0.

    The same as :func:`turns_of` where the mask has every policy token and the environment wrote between the turns.
    """
    return turn_numbers(mask) - 1


def policy_stretches(trajectory: Trajectory) -> list[tuple[int, int]]:
    """Start and end (exclusive) of each policy span in ``completion_ids``."""
    stretches: list[tuple[int, int]] = []
    at = 0
    for span in trajectory.spans:
        if span.kind is SpanKind.POLICY:
            stretches.append((at, at + len(span.ids)))
        elif not stretches:
            continue  # belongs to the prompt
        at += len(span.ids)
    return stretches
