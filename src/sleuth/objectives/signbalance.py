"""SIGNBALANCE: an advantage that does not grow with the rarity of success (arXiv 2609.04063, Algorithm 2)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def signbalance(
    rewards: Tensor,
    groups: Tensor,
    valid: Tensor,
    weights: Tensor | None = None,
    *,
    c: float = 1.0,
    threshold: float = 1.0,
    all_correct: float = 0.0,
    max_negative: float | None = None,
) -> Tensor:
    """``+c`` for right rollouts and ``-c · n₊/n₋`` for wrong ones, so that a group's advantages sum to 0.

    GRPO gives the one right rollout among sixteen the weight 3.9, although guessing explains it as well as knowing.

    Args:
        rewards: (B,) float; at least ``threshold`` counts as right, everything else as wrong.
        groups: (B,) integer; equal numbers are rollouts of one prompt.
        valid: (B,) bool; failed rollouts are counted on neither side and get 0.
        weights: (B,) a rollout's weight in the loss; with them ``n₊`` and ``n₋`` are sums of weights, and the weighted
            advantages sum to 0. None: every rollout counts 1, as in the paper.
        all_correct: advantage in a group without a wrong rollout. The paper's algorithm returns ``c`` there, though
            only 0 keeps the mean at zero.
        max_negative: bound on the size of a wrong rollout's advantage. One wrong among G gets ``-c·(G-1)`` without it.

    Returns:
        (B,) in the dtype of ``rewards``; 0 in groups without a right rollout.
    """
    advantages = torch.zeros_like(rewards)
    weights = torch.ones_like(rewards) if weights is None else weights.to(rewards.dtype)
    for group in torch.unique(groups[valid]).tolist():
        rows = (groups == group) & valid
        right, wrong = rows & (rewards >= threshold), rows & (rewards < threshold)
        n_right, n_wrong = weights[right].sum(), weights[wrong].sum()
        if not n_right > 0:
            continue
        if not n_wrong > 0:
            advantages[rows] = all_correct
            continue
        negative = c * n_right / n_wrong
        advantages[right] = c
        advantages[wrong] = -negative if max_negative is None else -negative.clamp(max=max_negative)
    return advantages


def signbalance_advantages(
    rewards: Tensor, groups: Tensor, valid: Tensor | None = None, weights: Tensor | None = None, **settings: Any
) -> Tensor:
    """:func:`signbalance` for a loop of your own, all rollouts valid unless said otherwise::

        advantages = signbalance_advantages(rewards, groups)

    Args:
        rewards: (B,) float. ``groups``: (B,) integer, equal numbers are rollouts of one prompt.
        weights: (B,): under a token mean give each rollout's number of policy tokens, else the balance fails there.
        settings: ``c``, ``threshold``, ``all_correct``, ``max_negative``.

    Returns:
        (B,).
    """
    if valid is None:
        valid = torch.ones_like(rewards, dtype=torch.bool)
    return signbalance(rewards, groups, valid.bool(), weights, **settings)
