"""Advantages from rewards: one number a rollout, compared within its group or batch.

All take ``rewards`` (B,) float, ``groups`` (B,) integer (equal numbers are rollouts of one prompt) and ``valid`` (B,)
bool, and return (B,) in the dtype of ``rewards``. Rollouts that are not valid leave every statistic and get 0. Rewards
that are all equal give exactly 0: rounding in a mean can't leave a residue that a tiny deviation would blow up.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor


def grpo(rewards: Tensor, groups: Tensor, valid: Tensor, *, ddof: int = 1, eps: float = 1e-6) -> Tensor:
    """Group-relative advantages ``(R - mean) / (std + eps)`` (GRPO, arXiv 2402.03300, §4.1.2).

    Args:
        ddof: 1 for the sample standard deviation (verl), 0 for the population's.
        eps: added to the standard deviation.
    """
    advantages = torch.zeros_like(rewards)
    for rows in mixed_groups(rewards, groups, valid):
        r = rewards[rows]
        advantages[rows] = (r - r.mean()) / (r.std(correction=ddof) + eps)
    return advantages


def dr_grpo(rewards: Tensor, groups: Tensor, valid: Tensor) -> Tensor:
    """``R - mean`` of the group: no division, so easy and hard prompts weigh alike (Dr. GRPO, arXiv 2503.20783, §3)."""
    advantages = torch.zeros_like(rewards)
    for rows in mixed_groups(rewards, groups, valid):
        advantages[rows] = rewards[rows] - rewards[rows].mean()
    return advantages


def rloo(rewards: Tensor, groups: Tensor, valid: Tensor) -> Tensor:
    """``R - mean of the others`` in the group (RLOO, arXiv 2402.14740, eq. 10)."""
    advantages = torch.zeros_like(rewards)
    for rows in mixed_groups(rewards, groups, valid):
        r = rewards[rows]
        advantages[rows] = r - (r.sum() - r) / (len(r) - 1)
    return advantages


def reinforce_pp(
    rewards: Tensor, groups: Tensor, valid: Tensor, *, group_baseline: bool = False, eps: float = 1e-8
) -> Tensor:
    """``(R - baseline) / (std + eps)`` with the statistics of the whole batch (REINFORCE++, arXiv 2501.03262, §3).

    Args:
        group_baseline: subtract the group's mean instead of the batch's, then divide by the batch's deviation of what
            is left (the paper's variant for several rollouts a prompt).
        eps: added to the sample standard deviation, which is taken over rollouts.
    """
    one_group = torch.zeros_like(groups)
    centred = dr_grpo(rewards, groups if group_baseline else one_group, valid)
    advantages = torch.zeros_like(rewards)
    for rows in mixed_groups(centred, one_group, valid):
        advantages[rows] = centred[rows] / (centred[rows].std(correction=1) + eps)
    return advantages


def mixed_groups(rewards: Tensor, groups: Tensor, valid: Tensor) -> Iterator[Tensor]:
    """Row numbers of every group that carries signal: at least two valid rollouts whose rewards are not all equal."""
    for group in torch.unique(groups[valid]).tolist():
        rows = ((groups == group) & valid).nonzero(as_tuple=True)[0]
        r = rewards[rows]
        if len(rows) >= 2 and not bool(r.max() == r.min()):
            yield rows


def zero_variance_groups(rewards: Tensor, groups: Tensor, valid: Tensor) -> int:
    """Number of groups that carry no signal: all valid rewards equal, or fewer than two valid."""
    return len(torch.unique(groups)) - sum(1 for _ in mixed_groups(rewards, groups, valid))
