"""How token losses become one number: as weights, so that a step may be split in any way.

A weight is a share of a total that is counted over the *whole optimiser step* (all micro-batches, all ranks). The loss
of a micro-batch is ``(loss * weights).sum()``; summed over the step this is the loss of the step, however it was split.
An engine that averages gradients over ranks or passes, where these must be summed, needs each loss times their number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor

Normaliser = Literal["aggregation", "all_tokens", "positive_tokens", "nonnegative_tokens"]
"""What a term is divided by: as the surrogate, or by a count of the step's tokens (see :class:`StepTotals`)."""


@dataclass(frozen=True, slots=True)
class StepTotals:
    """Counts over one optimiser step.

    Attributes:
        tokens: policy tokens that count.
        rollouts: rollouts with at least one such token.
        positive_tokens: those of rollouts with A > 0. ``nonnegative_tokens``: with A >= 0. None: not counted.
    """

    tokens: int
    rollouts: int
    positive_tokens: int | None = 0
    nonnegative_tokens: int | None = 0

    @classmethod
    def of(cls, mask: Tensor, rollout_advantages: Tensor | None = None) -> StepTotals:
        """Of a step that is this one batch; ``mask`` (B, T), ``rollout_advantages`` (B,) as the rewards gave them."""
        per_row = mask.bool().sum(-1)
        positive = nonnegative = None
        if rollout_advantages is not None:
            positive = int(per_row[rollout_advantages > 0].sum())
            nonnegative = int(per_row[rollout_advantages >= 0].sum())
        return cls(int(per_row.sum()), int((per_row > 0).sum()), positive, nonnegative)

    def __add__(self, other: StepTotals) -> StepTotals:
        return StepTotals(
            self.tokens + other.tokens,
            self.rollouts + other.rollouts,
            _sum(self.positive_tokens, other.positive_tokens),
            _sum(self.nonnegative_tokens, other.nonnegative_tokens),
        )

    def all_reduce(self, device: torch.device | str = "cpu", group: dist.ProcessGroup | None = None) -> StepTotals:
        """The sum over all ranks of the default process group, or of ``group``. Every rank must call it.

        Args:
            device: where the group's backend wants its tensors: ``cuda`` for NCCL.

        Raises:
            ValueError: some ranks have counted by advantages, and others have not.
        """
        counted = self.positive_tokens is not None and self.nonnegative_tokens is not None
        local = [self.tokens, self.rollouts, self.positive_tokens or 0, self.nonnegative_tokens or 0, int(counted)]
        summed = torch.tensor(local, dtype=torch.int64, device=device)
        dist.all_reduce(summed, group=group)
        tokens, rollouts, positive, nonnegative, ranks = summed.tolist()
        if ranks == 0:
            return StepTotals(tokens, rollouts, None, None)
        if ranks != dist.get_world_size(group):
            raise ValueError(
                "some ranks have totals without the rollouts' advantages; give StepTotals.of them everywhere"
            )
        return StepTotals(tokens, rollouts, positive, nonnegative)


@dataclass(frozen=True, slots=True)
class Aggregation:
    """A way to aggregate, by name.

    Attributes:
        name: one of :data:`AGGREGATIONS`.
        max_length: tokens that ``sum_over_max_length`` divides by; None for the others.
    """

    name: str = "token_mean"
    max_length: int | None = None

    def weights(self, mask: Tensor, totals: StepTotals, dtype: torch.dtype = torch.float32) -> Tensor:
        """Each token's share in ``dtype``, of a shape that broadcasts to (B, T); outside of the mask losses are 0."""
        if self.name == "token_mean":
            return token_mean(mask, totals, dtype)
        if self.name == "seq_mean_token_mean":
            return seq_mean_token_mean(mask, totals, dtype)
        return sum_over_max_length(mask, totals, dtype, self.max_length or 0)

    def of_rollouts(self, lengths: Tensor) -> Tensor:
        """(B,) the weight of whole rollouts in the loss relative to each other, from their policy tokens (B,)."""
        return (lengths > 0).to(torch.float32) if self.name == "seq_mean_token_mean" else lengths.to(torch.float32)


def token_mean(mask: Tensor, totals: StepTotals, dtype: torch.dtype = torch.float32) -> Tensor:
    """Every token of the step weighs the same: 1 / tokens. (1, 1); Search-R1's, verl's and TRL's default."""
    return _one_share(mask, totals.tokens, dtype)


def seq_mean_token_mean(mask: Tensor, totals: StepTotals, dtype: torch.dtype = torch.float32) -> Tensor:
    """Every rollout weighs the same, its tokens share that: 1 / (rollouts · length). (B, 1); GRPO's paper."""
    lengths = mask.sum(-1, keepdim=True).to(dtype).clamp(min=1)
    return 1 / lengths / max(totals.rollouts, 1)


def sum_over_max_length(mask: Tensor, totals: StepTotals, dtype: torch.dtype, max_length: int) -> Tensor:
    """Every token weighs 1 / (rollouts · max_length), whatever the lengths are. (1, 1); Dr. GRPO.

    Raises:
        ValueError: ``max_length`` is not positive.
    """
    if max_length < 1:
        raise ValueError("sum_over_max_length needs a positive max_length")
    return _one_share(mask, totals.rollouts * max_length, dtype)


def share_of_tokens(mask: Tensor, totals: StepTotals, normaliser: Normaliser, dtype: torch.dtype) -> Tensor:
    """(1, 1) ``1 / count`` with the step's count that ``normaliser`` names; 1 if that count is 0.

    Raises:
        ValueError: the totals were taken without the rollouts' advantages.
    """
    count = {
        "all_tokens": totals.tokens,
        "positive_tokens": totals.positive_tokens,
        "nonnegative_tokens": totals.nonnegative_tokens,
    }[normaliser]
    if count is None:
        raise ValueError(f"{normaliser} were not counted: StepTotals.of needs the rollouts' advantages")
    return _one_share(mask, count, dtype)


AGGREGATIONS = ("token_mean", "seq_mean_token_mean", "sum_over_max_length")
"""Aggregations by name."""


def _one_share(mask: Tensor, count: int, dtype: torch.dtype) -> Tensor:
    return mask.new_full((1, 1), 1 / max(count, 1), dtype=dtype)


def _sum(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b
