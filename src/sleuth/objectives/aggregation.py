"""How token losses become one number: as weights, so that a step may be split in any way.

A weight is a share of a total that is counted over the *whole optimiser step* (all micro-batches, all ranks). The loss
of a micro-batch is ``(loss * weights).sum()``; summed over the step this is the loss of the step, however it was split.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class StepTotals:
    """Counts over one optimiser step.

    Attributes:
        tokens: policy tokens that count.
        rollouts: rollouts with at least one such token.
    """

    tokens: int
    rollouts: int

    @classmethod
    def of(cls, mask: Tensor) -> StepTotals:
        """Of a step that is this one batch; ``mask`` (B, T)."""
        per_row = mask.bool().sum(-1)
        return cls(int(per_row.sum()), int((per_row > 0).sum()))

    def __add__(self, other: StepTotals) -> StepTotals:
        return StepTotals(self.tokens + other.tokens, self.rollouts + other.rollouts)


def token_mean(mask: Tensor, totals: StepTotals) -> Tensor:
    """Every token of the step weighs the same: 1 / tokens. (B, T); Search-R1's, verl's and TRL's default."""
    return mask.to(torch.float32) / max(totals.tokens, 1)


def seq_mean_token_mean(mask: Tensor, totals: StepTotals) -> Tensor:
    """Every rollout weighs the same, its tokens share that: 1 / (rollouts · length). (B, T); GRPO's paper."""
    weights = mask.to(torch.float32)
    return weights / weights.sum(-1, keepdim=True).clamp(min=1) / max(totals.rollouts, 1)


AGGREGATIONS = {"token_mean": token_mean, "seq_mean_token_mean": seq_mean_token_mean}
"""Aggregations by name."""
