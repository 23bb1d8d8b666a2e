"""Advantages from rewards: one number a rollout, compared within its group."""

from __future__ import annotations

import torch
from torch import Tensor


def grpo(rewards: Tensor, groups: Tensor, valid: Tensor, *, ddof: int = 1, eps: float = 1e-6) -> Tensor:
    """Group-relative advantages ``(R - mean) / (std + eps)`` (GRPO, arXiv 2402.03300, §4.1.2).

    Args:
        rewards: (B,) float.
        groups: (B,) integer; equal numbers are rollouts of one prompt.
        valid: (B,) bool; failed rollouts are False: they leave mean and std, and their advantage is 0.
        ddof: 1 for the sample standard deviation (verl), 0 for the population's.
        eps: added to the standard deviation.

    Returns:
        (B,) in the dtype of ``rewards``. A group whose valid rewards are all equal, or of which fewer than two are
        valid, gets exactly 0: rounding in the mean can't leave a residue that division by ``eps`` would blow up.
    """
    advantages = torch.zeros_like(rewards)
    for group in torch.unique(groups[valid]).tolist():
        rows = ((groups == group) & valid).nonzero(as_tuple=True)[0]
        r = rewards[rows]
        if len(rows) < 2 or bool(r.max() == r.min()):
            continue
        advantages[rows] = (r - r.mean()) / (r.std(correction=ddof) + eps)
    return advantages


def zero_variance_groups(rewards: Tensor, groups: Tensor, valid: Tensor) -> int:
    """Number of groups that carry no signal: all valid rewards equal, or fewer than two valid."""
    count = 0
    for group in torch.unique(groups).tolist():
        r = rewards[(groups == group) & valid]
        count += int(len(r) < 2 or bool(r.max() == r.min()))
    return count
