"""Importance weights between the trainer's policy and a sampler that computes it otherwise."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


def importance_weights(old_logp: Tensor, sampled_logp: Tensor, mask: Tensor, most: float) -> Tensor:
    """(B, T) ``min(exp(old_logp - sampled_logp), most)``, and 1 outside of ``mask`` and where either isn't finite.

    What a sampler with other kernels drew is off-policy by the gap between the two; the weights make the expectation of
    a token's loss that of the trainer's own policy again, but for the cut, which bounds their variance.

    Args:
        old_logp: (B, T) of the trainer's pass over the batch, before any update. ``sampled_logp``: (B, T) as drawn.
    """
    gap = old_logp.detach() - sampled_logp
    known = mask.bool() & torch.isfinite(gap)
    return torch.where(known, gap, 0.0).exp().clamp(max=most)


@dataclass
class SamplerGap:
    """Sums over the policy tokens of a step's passes; the metrics ``sampler/…``."""

    tokens: int = 0
    unknown: int = 0
    size: float = 0.0
    largest: float = 0.0
    weight: float = 0.0
    cut: int = 0

    def add(self, old_logp: Tensor, sampled_logp: Tensor, mask: Tensor, most: float) -> None:
        """One pass; see :func:`importance_weights`."""
        gap = (old_logp.detach() - sampled_logp)[mask.bool()].double()
        known = gap[torch.isfinite(gap)]
        self.unknown += gap.numel() - known.numel()
        if not known.numel():
            return
        weights = known.exp()
        self.tokens += known.numel()
        self.size += float(known.abs().sum())
        self.largest = max(self.largest, float(known.abs().max()))
        self.weight += float(weights.clamp(max=most).sum())
        self.cut += int((weights > most).sum())

    def absorb(self, other: SamplerGap) -> None:
        """Take over what another process has summed of the same step."""
        self.tokens += other.tokens
        self.unknown += other.unknown
        self.size += other.size
        self.largest = max(self.largest, other.largest)
        self.weight += other.weight
        self.cut += other.cut

    def metrics(self) -> dict[str, float]:
        """By the names of :mod:`sleuth.diagnostics.names`; nothing where no pass was added."""
        if not self.tokens and not self.unknown:
            return {}
        n = max(self.tokens, 1)
        return {
            "sampler/gap/mean": self.size / n,
            "sampler/gap/max": self.largest,
            "sampler/weight": self.weight / n,
            "sampler/cut": self.cut / n,
            "sampler/unknown": self.unknown,
        }
