"""An objective put together: what the trainers call."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from sleuth.objectives import GRPOParameters, advantages, surrogates, terms
from sleuth.objectives.aggregation import AGGREGATIONS, StepTotals
from sleuth.objectives.tokens import Tokens


@dataclass(slots=True)
class TokenLoss:
    """The loss of a micro-batch, not reduced.

    Attributes:
        loss: (B, T) each token's share of the step's loss; all shares of a step sum to its loss.
        clipped: (B, T) bool: tokens whose gradient the surrogate's clip has cut off.
        kl: (B, T) estimate of the KL to the reference, or None.
    """

    loss: Tensor
    clipped: Tensor
    kl: Tensor | None


@dataclass(frozen=True, slots=True)
class Objective:
    """Advantage, surrogate, terms and aggregation of one run.

    Attributes:
        kl_coefficient: weight of the reference KL; 0 for none.
    """

    name: str
    grpo: GRPOParameters
    aggregation: str = "token_mean"
    kl_coefficient: float = 0.0

    def advantages(self, rewards: Tensor, groups: Tensor, valid: Tensor) -> Tensor:
        """(B,) from rewards (B,), groups (B,) and valid (B,): see :func:`sleuth.objectives.advantages.grpo`."""
        ddof = 1 if self.grpo.std == "sample" else 0
        return advantages.grpo(rewards, groups, valid, ddof=ddof, eps=self.grpo.eps)

    def token_loss(self, tokens: Tokens, totals: StepTotals) -> TokenLoss:
        """Every token's share of the loss of an optimiser step with these totals."""
        loss, clipped = surrogates.ppo_clip(tokens, clip_low=self.grpo.clip_low, clip_high=self.grpo.clip_high)
        kl = None
        if self.kl_coefficient:
            kl = terms.reference_kl(tokens)
            loss = loss + self.kl_coefficient * kl
        weights = AGGREGATIONS[self.aggregation](tokens.mask, totals).to(loss.dtype)
        return TokenLoss(loss * weights, clipped, kl)
