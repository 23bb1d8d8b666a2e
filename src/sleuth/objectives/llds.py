"""LLDS: a penalty on the likelihood that good rollouts have lost (arXiv 2512.04220, eq. 4-6)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from sleuth.objectives.tokens import Tokens


def llds(tokens: Tokens, *, gate: Literal["token", "response", "action"] = "action", ma: bool = False) -> Tensor:
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


def _sum_by_turn(values: Tensor, turns: Tensor) -> Tensor:
    """(B, T): for every token the sum of ``values`` over its turn."""
    sums = values.new_zeros(values.shape[0], int(turns.max()) + 1 if turns.numel() else 1)
    return sums.scatter_add(1, turns, values).gather(1, turns)
