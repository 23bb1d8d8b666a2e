"""What a token loss works on, with everything that no loss may see already taken out."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

LOG_RATIO_CLAMP = 20.0
"""Bound of a log-ratio inside ``exp`` only, so that ratios stay finite; a log-ratio itself is never clamped."""


@dataclass(slots=True)
class Tokens:
    """One micro-batch of rollouts, right-padded to T tokens.

    Attributes:
        logp: (B, T) log-probs of the tokens under the policy in training, with gradient; 0 where ``mask`` is False.
        old_logp: (B, T) under the policy that made the batch, by the trainer's own pass; no gradient.
        advantages: (B, T).
        mask: (B, T) bool, True for policy tokens that count.
        ref_logp: (B, T) under the reference policy, or None.
        dropped: number of policy tokens left out because a log-prob of theirs is NaN or infinite.
    """

    logp: Tensor
    old_logp: Tensor
    advantages: Tensor
    mask: Tensor
    ref_logp: Tensor | None = None
    dropped: int = 0

    @classmethod
    def build(
        cls, logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor, ref_logp: Tensor | None = None
    ) -> Tokens:
        """Drop tokens whose log-probs are not finite, and zero everything outside of the mask.

        What stands at a masked place (0, 1, -inf, NaN) changes neither value nor gradient: ``where`` cuts it off
        before any arithmetic.

        Args:
            advantages: (B, T), or (B,) for one value a rollout.
            mask: (B, T) bool or 0/1.
        """
        mask = mask.bool()
        finite = torch.isfinite(logp.detach()) & torch.isfinite(old_logp)
        if ref_logp is not None:
            finite &= torch.isfinite(ref_logp)
        kept = mask & finite
        if advantages.dim() == 1:
            advantages = advantages[:, None].expand_as(logp)
        zero = logp.new_zeros(())
        return cls(
            logp=torch.where(kept, logp, zero),
            old_logp=torch.where(kept, old_logp, zero),
            advantages=torch.where(kept, advantages, zero),
            mask=kept,
            ref_logp=None if ref_logp is None else torch.where(kept, ref_logp, zero),
            dropped=int((mask & ~finite).sum()),
        )

    @property
    def log_ratio(self) -> Tensor:
        """(B, T) ``logp - old_logp``; 0 outside of the mask."""
        return self.logp - self.old_logp

    @property
    def ratio(self) -> Tensor:
        """(B, T) probability ratio; 1 outside of the mask."""
        return self.log_ratio.clamp(-LOG_RATIO_CLAMP, LOG_RATIO_CLAMP).exp()
