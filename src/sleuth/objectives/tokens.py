"""What a token loss works on, with everything that no loss may see already taken out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

LOG_RATIO_CLAMP = 20.0
"""Bound of a log-ratio where it meets ``exp``, so that ratios stay finite; ``-log r`` itself is never clamped."""


@dataclass(frozen=True)
class Tokens:
    """One micro-batch of rollouts, right-padded to T tokens. Every (B, T) of floats is 0 where ``mask`` is False.

    Attributes:
        logp: (B, T) log-probs of the tokens under the policy in training, with gradient.
        old_logp: (B, T) under the policy that made the batch, by the trainer's own pass; no gradient.
        advantages: (B, T).
        mask: (B, T) bool, True for policy tokens that count.
        rollout_advantages: (B,) one value a rollout, as the rewards gave it, before any reshaping.
        policy: (B, T) bool, the mask as it was given, dropped tokens included; its runs are the policy's turns.
        ref_logp: (B, T) under the reference policy, or None.
        entropy: (B, T) of the policy's distribution at each token, in nats, with gradient, or None.
        answer: (B, T) bool, True for tokens of the final answer, or None.
        searches: (B,) number of searches of each rollout, or None.
        weights: (B, T) by which the surrogate's losses are multiplied, no gradient, or None. They correct for a sampler
            that isn't quite the policy.
    """

    logp: Tensor
    old_logp: Tensor
    advantages: Tensor
    mask: Tensor
    rollout_advantages: Tensor
    policy: Tensor
    ref_logp: Tensor | None = None
    entropy: Tensor | None = None
    answer: Tensor | None = None
    searches: Tensor | None = None
    weights: Tensor | None = None

    @classmethod
    def build(
        cls,
        logp: Tensor,
        old_logp: Tensor,
        advantages: Tensor,
        mask: Tensor,
        ref_logp: Tensor | None = None,
        *,
        rollout_advantages: Tensor | None = None,
        entropy: Tensor | None = None,
        answer: Tensor | None = None,
        searches: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> Tokens:
        """Drop tokens whose log-probs are not finite, and zero everything outside of the mask.

        What stands at a masked place (0, 1, -inf, NaN) changes neither value nor gradient: ``where`` cuts it off
        before any arithmetic.

        Args:
            advantages: (B, T), or (B,) for one value a rollout.
            mask: (B, T) bool or 0/1. Each run of True is a policy turn.
            rollout_advantages: (B,); None: ``advantages`` if that has one value a rollout, else the value at each
                rollout's first policy token.
        """
        mask = mask.bool()
        finite = _finite(logp.detach() - old_logp)
        if ref_logp is not None:
            finite &= _finite(ref_logp)
        kept = mask & finite
        if rollout_advantages is None:
            rollout_advantages = advantages if advantages.dim() == 1 else first_value(advantages, mask)
        if advantages.dim() == 1:
            advantages = advantages[:, None].expand_as(logp)
        zero = logp.new_zeros(())
        return cls(
            logp=torch.where(kept, logp, zero),
            old_logp=torch.where(kept, old_logp, zero),
            advantages=torch.where(kept, advantages, zero),
            mask=kept,
            rollout_advantages=rollout_advantages,
            policy=mask,
            ref_logp=None if ref_logp is None else torch.where(kept, ref_logp, zero),
            entropy=None if entropy is None else torch.where(kept, entropy, zero),
            answer=None if answer is None else answer.bool(),
            searches=searches,
            weights=None if weights is None else torch.where(kept, weights, zero),
        )

    @cached_property
    def log_ratio(self) -> Tensor:
        """(B, T) ``logp - old_logp``; 0 outside of the mask."""
        return self.logp - self.old_logp

    @cached_property
    def ratio(self) -> Tensor:
        """(B, T) probability ratio; 1 outside of the mask."""
        return clamped_exp(self.log_ratio)

    @property
    def turns(self) -> Tensor:
        """(B, T) integer: the number of the policy turn that a token belongs to, from 1; 0 for none."""
        return turn_numbers(self.policy)

    @property
    def dropped(self) -> int:
        """Number of policy tokens left out because a log-prob of theirs is NaN or infinite. Waits for the device."""
        return int((self.policy & ~self.mask).sum())

    def protected(self, *, nonnegative: bool) -> Tensor:
        """(B,) bool: rollouts with advantage above 0, or with ``nonnegative`` at least 0."""
        return self.rollout_advantages >= 0 if nonnegative else self.rollout_advantages > 0


def clamped_exp(log_ratio: Tensor) -> Tensor:
    """``exp`` within ±:data:`LOG_RATIO_CLAMP`: finite in value and gradient."""
    return log_ratio.clamp(-LOG_RATIO_CLAMP, LOG_RATIO_CLAMP).exp()


def turn_numbers(mask: Tensor) -> Tensor:
    """(B, T) from a mask (B, T): its runs of True numbered from 1 in each row, 0 elsewhere."""
    mask = mask.bool()
    starts = mask.clone()
    starts[:, 1:] &= ~mask[:, :-1]
    return torch.where(mask, starts.cumsum(-1), 0)


def first_value(values: Tensor, mask: Tensor) -> Tensor:
    """(B,) each row's value at its first True of ``mask``; 0 for a row without one."""
    first = mask.int().argmax(-1, keepdim=True)
    return torch.where(mask.any(-1), values.gather(1, first)[:, 0], 0.0)


def _finite(values: Tensor) -> Tensor:
    """``isfinite`` in half of its time; a comparison with NaN is False."""
    return values.abs() < torch.inf
