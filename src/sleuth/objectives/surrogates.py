"""Policy-gradient surrogates: a loss for every token, not reduced.

All return loss (B, T), 0 outside of the mask since advantages are, and clipped (B, T) bool: tokens whose gradient a
clip has cut off (for ``cispo``, whose gradient is never cut, tokens whose weight was bounded).
"""

from __future__ import annotations

import torch
from torch import Tensor

from sleuth.objectives.tokens import Tokens, clamped_exp


def ppo_clip(tokens: Tokens, *, clip_low: float = 0.2, clip_high: float = 0.2) -> tuple[Tensor, Tensor]:
    """PPO's clipped surrogate, ``-min(r·A, clip(r, 1-clip_low, 1+clip_high)·A)`` (arXiv 1707.06347, eq. 7).

    With ``clip_high`` above ``clip_low`` it is DAPO's clip-higher (arXiv 2503.14476, §3.1).
    """
    return _clip(tokens, tokens.ratio, clip_low, clip_high)


def dual_clip(
    tokens: Tokens, *, clip_low: float = 0.2, clip_high: float = 0.2, clip_max: float = 3.0
) -> tuple[Tensor, Tensor]:
    """PPO's surrogate, for A < 0 bounded by ``clip_max·|A|`` too (arXiv 1912.09729, eq. 5).

    Without the bound a token of a bad rollout that became likely (r ≫ 1) has no limit to its gradient.
    """
    loss, clipped = ppo_clip(tokens, clip_low=clip_low, clip_high=clip_high)
    bound = -clip_max * tokens.advantages
    cut = (tokens.advantages < 0) & (loss > bound)
    return torch.where(cut, bound, loss), clipped | cut


def gspo(tokens: Tokens, *, clip_low: float = 3e-4, clip_high: float = 4e-4) -> tuple[Tensor, Tensor]:
    """PPO's surrogate on the sequence's ratio, the geometric mean of its tokens' (GSPO, arXiv 2507.18071, eq. 5-7).

    The ratio's gradient reaches a token through that token alone (the paper's GSPO-token, §4.3), which for one
    advantage a rollout is the same objective and with reshaped advantages keeps every token's own.
    """
    d = tokens.log_ratio
    mean = d.detach().sum(-1, keepdim=True) / tokens.mask.sum(-1, keepdim=True).clamp(min=1)
    return _clip(tokens, clamped_exp(mean + (d - d.detach())), clip_low, clip_high)


def cispo(tokens: Tokens, *, ratio_min: float = 0.0, ratio_max: float = 5.0) -> tuple[Tensor, Tensor]:
    """``-sg(clip(r, ratio_min, ratio_max))·A·log π``: bounded weights, no gradient cut (arXiv 2506.13585, eq. 4).

    The value means nothing by itself (it holds log π); only its gradient does.
    """
    ratio = tokens.ratio.detach()
    weight = ratio.clamp(ratio_min, ratio_max)
    return -weight * tokens.advantages * tokens.logp, (weight != ratio) & tokens.mask


def soft_sapo(tokens: Tokens, *, temperature_pos: float = 1.0, temperature_neg: float = 1.05) -> tuple[Tensor, Tensor]:
    """``-(4/t)·sigmoid(t·(r - 1))·A`` in place of a clip (Soft Adaptive Policy Optimization, arXiv 2511.20347).

    Not Search Agent Policy Optimization, which is :func:`sleuth.objectives.search_sapo.conditional_kl`.
    """
    t = torch.where(tokens.advantages > 0, temperature_pos, temperature_neg).to(tokens.logp.dtype)
    gate = torch.sigmoid(t * (tokens.ratio - 1)) * 4 / t
    return -gate * tokens.advantages, torch.zeros_like(tokens.mask)


def _clip(tokens: Tokens, ratio: Tensor, clip_low: float, clip_high: float) -> tuple[Tensor, Tensor]:
    free = ratio.detach()
    bounded = free.clamp(1 - clip_low, 1 + clip_high)
    clipped = (bounded - free) * tokens.advantages < 0  # where the bound is the smaller gain
    return -torch.where(clipped, bounded, ratio) * tokens.advantages, clipped
