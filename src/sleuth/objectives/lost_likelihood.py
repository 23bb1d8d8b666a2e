"""LLDS: a penalty on the likelihood that good rollouts have lost (arXiv 2512.04220, eq. 4-6)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from sleuth.objectives.tokens import Tokens

Gate = Literal["token", "response", "action"]


def lost_likelihood(tokens: Tokens, *, gate: Gate = "action", ma: bool = False) -> Tensor:
    """``max(0, log π_old - log π)`` on rollouts with A >= 0, where what the gate looks at lost likelihood as a whole.

    Args:
        gate: ``action``: the tokens of a turn count only if their sum fell; ``response``: the same of the whole
            rollout; ``token``: no gate.
        ma: weigh answer tokens by min(searches / 2, 1), so that answers without searching are not held up.

    Returns:
        (B, T), at least 0. Exactly where nothing moved (r = 1) the gradient is 0.

    Raises:
        ValueError: ``ma`` without ``answer`` and ``searches``.
    """
    lost = -tokens.log_ratio
    penalised = tokens.mask & tokens.protected(nonnegative=True)[:, None]
    if gate == "response":
        penalised = penalised & (lost.detach().sum(-1, keepdim=True) > 0)
    elif gate == "action":
        penalised = penalised & (_sum_by_turn(lost.detach(), tokens.turns) > 0)
    loss = torch.where(penalised, torch.relu(lost), 0.0)
    if ma:
        if tokens.answer is None or tokens.searches is None:
            raise ValueError("llds with ma needs the answer tokens and the numbers of searches")
        share = (tokens.searches.to(loss.dtype) / 2).clamp(max=1)
        loss = torch.where(tokens.answer, loss * share[:, None], loss)
    return loss


def llds(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    weight: float = 0.2,
    *,
    gate: Gate = "action",
    preset: Literal["paper", "released"] = "paper",
    answer: Tensor | None = None,
    searches: Tensor | None = None,
    normalizer: float | Tensor | None = None,
) -> Tensor:
    """The penalty as one number, for a loop of your own (arXiv 2512.04220)::

        loss = loss + llds(logp, old_logp, advantages, mask, weight=0.2)

    Args:
        logp: (B, T) log-probs of the tokens under the policy in training, with gradient.
        old_logp: (B, T) under the policy that made the batch, by the same engine.
        advantages: (B,), or (B, T) whose value at a row's first policy token tells if the rollout is good.
        mask: (B, T) bool or 0/1, 1 for policy tokens; each run of ones is a turn. Nothing at masked places is read.
        gate: see :func:`lost_likelihood`.
        preset: what ``normalizer`` is if not given: ``paper`` the tokens of rollouts with A >= 0, ``released`` all.
        answer: (B, T) bool, tokens of the answer, and ``searches`` (B,): given both, the variant MA.
        normalizer: what the sum over tokens is divided by. With gradient accumulation give the count of the whole
            optimiser step, of the tokens that ``preset`` names, divided by what your engine divides the loss by
            (passes, ranks).

    Returns:
        A scalar, at least 0.

    Raises:
        ValueError: one of ``answer`` and ``searches`` without the other.
    """
    if preset not in ("paper", "released"):
        raise ValueError(f"preset={preset!r}: write 'paper' or 'released'")
    tokens = Tokens.build(logp, old_logp.detach(), advantages, mask, answer=answer, searches=searches)
    per_token = lost_likelihood(tokens, gate=gate, ma=answer is not None or searches is not None)
    if normalizer is None:
        counted = tokens.mask
        if preset == "paper":
            counted = counted & tokens.protected(nonnegative=True)[:, None]
        normalizer = counted.sum().clamp(min=1)
    return weight * per_token.sum() / normalizer


def _sum_by_turn(values: Tensor, turns: Tensor) -> Tensor:
    """(B, T): for every token the sum of ``values`` over its turn."""
    rows, length = values.shape
    # A column for every turn that could be: looking how many there are would wait for the device.
    sums = values.new_zeros(rows, (length + 1) // 2 + 1)
    return sums.scatter_add(1, turns, values).gather(1, turns)
