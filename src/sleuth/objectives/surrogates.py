"""Policy-gradient surrogates: a loss for every token, not reduced."""

from __future__ import annotations

import torch
from torch import Tensor

from sleuth.objectives.tokens import Tokens


def ppo_clip(tokens: Tokens, *, clip_low: float = 0.2, clip_high: float = 0.2) -> tuple[Tensor, Tensor]:
    """PPO's clipped surrogate, ``-min(r·A, clip(r, 1-clip_low, 1+clip_high)·A)`` (arXiv 1707.06347, eq. 7).

    Returns:
        loss (B, T), 0 outside of the mask, and clipped (B, T) bool: tokens whose gradient the clip has cut off.
    """
    ratio = tokens.ratio
    free = -ratio * tokens.advantages
    bounded = -ratio.clamp(1 - clip_low, 1 + clip_high) * tokens.advantages
    return torch.where(tokens.mask, torch.maximum(free, bounded), 0.0), (bounded > free) & tokens.mask
