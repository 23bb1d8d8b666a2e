"""Search Agent Policy Optimization's penalty on good tokens that became unlikely (arXiv 2603.10069, eq. 9-11)."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from sleuth.objectives.tokens import Tokens


def conditional_kl(
    tokens: Tokens,
    *,
    tau: float = 1.0,
    arm: Literal["full", "ratio", "advantage", "unconditional"] = "full",
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
