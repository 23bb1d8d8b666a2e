"""Search Agent Policy Optimization's penalty on good tokens that became unlikely (arXiv 2603.10069, eq. 9-11)."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from sleuth.objectives.tokens import Tokens

Arm = Literal["full", "ratio", "advantage", "unconditional"]


def conditional_kl_tokens(
    tokens: Tokens,
    *,
    tau: float = 1.0,
    arm: Arm = "full",
    nonnegative: bool = False,
    closed: bool = False,
) -> Tensor:
    """``-log r`` where ``r < tau`` and the rollout's advantage is positive; 0 elsewhere.

    PPO's gradient of such a token is A·r and fades as r falls; this one is constant and pulls the token back up.

    Args:
        tau: threshold of the ratio.
        arm: ``full``; ``ratio`` or ``advantage``: only that condition; ``unconditional``: every token.
        nonnegative: protect rollouts with A = 0 as well, as the released code does.
        closed: penalise a ratio of exactly ``tau`` as well, as the released code does. With ``tau=1`` its value is 0
            but its gradient is full.

    Returns:
        (B, T); negative where 1 < r < tau. The log-ratio is never clamped.
    """
    penalised = tokens.mask
    if arm in ("full", "advantage"):
        penalised = penalised & tokens.protected(nonnegative=nonnegative)[:, None]
    if arm in ("full", "ratio"):
        log_tau = math.log(tau)
        low = tokens.log_ratio <= log_tau if closed else tokens.log_ratio < log_tau
        penalised = penalised & low
    return torch.where(penalised, -tokens.log_ratio, 0.0)


def conditional_kl(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    gamma: float = 0.1,
    tau: float = 1.0,
    *,
    preset: Literal["paper", "released"] = "paper",
    arm: Arm = "full",
    normalizer: float | Tensor | None = None,
) -> Tensor:
    """The penalty as one number, for a loop of your own (arXiv 2603.10069)::

        loss = loss + conditional_kl(logp, old_logp, advantages, mask, gamma=0.1, tau=1.0)

    Args:
        logp: (B, T) log-probs of the tokens under the policy in training, with gradient.
        old_logp: (B, T) under the policy that made the batch, by the same engine: where the policy hasn't moved yet,
            differences between engines alone would set the penalty off.
        advantages: (B,), or (B, T) whose value at a row's first policy token tells if the rollout is good.
        mask: (B, T) bool or 0/1, 1 for policy tokens. Nothing at masked places is read.
        preset: ``paper`` protects A > 0 and r < tau; ``released`` A >= 0 and r <= tau.
        arm: leave conditions out, for ablations.
        normalizer: what the sum over tokens is divided by. None: the policy tokens of this call, with ``released``
            those of protected rollouts. With gradient accumulation give the count of the whole optimiser step, divided
            by what your engine divides the loss by (passes, ranks).

    Returns:
        A scalar; 0 where no token is penalised.

    Raises:
        ValueError: an unknown preset.
    """
    if preset not in ("paper", "released"):
        raise ValueError(f"preset={preset!r}: write 'paper' or 'released'")
    released = preset == "released"
    tokens = Tokens.build(logp, old_logp.detach(), advantages, mask)
    per_token = conditional_kl_tokens(tokens, tau=tau, arm=arm, nonnegative=released, closed=released)
    if normalizer is None:
        counted = tokens.mask
        if released and arm in ("full", "advantage"):
            counted = counted & tokens.protected(nonnegative=True)[:, None]
        normalizer = counted.sum().clamp(min=1)
    return gamma * per_token.sum() / normalizer
