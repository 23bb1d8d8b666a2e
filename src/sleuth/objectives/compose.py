"""An objective put together: what the trainers call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

from sleuth.errors import UserError
from sleuth.objectives.aggregation import Aggregation, Normaliser, StepTotals, share_of_tokens
from sleuth.objectives.parameters import ZeroVariance
from sleuth.objectives.tokens import Tokens
from sleuth.objectives.zero_variance import in_mixed_groups
from sleuth.types import Trajectory


class Advantage(Protocol):
    """Advantages (B,) from rewards (B,), groups (B,), valid (B,) and the rollouts' weights in the loss (B,) or None."""

    def __call__(self, rewards: Tensor, groups: Tensor, valid: Tensor, weights: Tensor | None, /) -> Tensor: ...


class Reshaped(Protocol):
    """What a reshape made of a batch."""

    @property
    def advantages(self) -> Tensor:
        """(B, T)."""
        ...

    def statistics(self) -> dict[str, float]:
        """What there is to tell of it, by name."""
        ...


@dataclass(frozen=True, slots=True)
class Reshape:
    """A change of advantages, token by token.

    Attributes:
        name: in the table.
        apply: called with advantages (B, T), mask (B, T), the batch's B trajectories and their groups (B,). Whole
            groups are at hand. Column t is ``completion_ids[t]`` of each trajectory, right-padded. One that wants a
            teacher also takes ``old_logp`` and ``teacher_logp``, (B, T), from the trajectories unless they are given.
        wants_teacher: (B,) bool from advantages (B,) and trajectories: the rollouts that a teacher has to score; None
            for a reshape without a teacher.
    """

    name: str
    apply: Callable[..., Reshaped]
    wants_teacher: Callable[[Tensor, Sequence[Trajectory]], Tensor] | None = None


Surrogate = Callable[[Tokens], tuple[Tensor, Tensor]]
"""Loss (B, T), not reduced, 0 outside of the mask, and which tokens a clip has cut off (B, T) bool."""


@dataclass(frozen=True, slots=True)
class Term:
    """A loss added to the surrogate.

    Attributes:
        name: in the table.
        loss: (B, T), not reduced and not weighted, 0 outside of the mask.
        weight: factor of the loss.
        normaliser: what it is divided by, counted over the whole optimiser step.
    """

    name: str
    loss: Callable[[Tokens], Tensor]
    weight: float
    normaliser: Normaliser = "aggregation"


@dataclass(slots=True)
class TokenLoss:
    """The loss of a micro-batch, not reduced.

    Attributes:
        loss: (B, T) each token's share of the step's loss; all shares of a step sum to its loss.
        clipped: (B, T) bool: tokens whose gradient the surrogate's clip has cut off.
        kl: (B, T) estimate of the KL to the reference, without its weight, or None.
        terms: by name, (B, T) each term's part of ``loss``, without gradient.
    """

    loss: Tensor
    clipped: Tensor
    kl: Tensor | None
    terms: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Objective:
    """Advantage, reshapes, surrogate, terms and aggregation of one run; made by :func:`sleuth.objectives.resolve`.

    Attributes:
        name: as it was asked for.
        kl_coefficient: weight of the reference KL; 0 for none, and then no reference is needed.
        needs_entropy: a term takes the policy's entropy.
        needs_answers: a term takes the answer tokens and the numbers of searches.
        needs_drift: names of the parts that do nothing (or not what they are for) while every ratio is 1.
        needs_teacher: a reshape reads ``teacher_logprobs`` of the trajectories.
        zero_variance: what becomes of rollouts of groups without signal: ``mask``: they leave the step and all its
            counts; ``copy``: copies of other groups take their places, where there are any; ``keep``: nothing.
    """

    name: str
    advantage: Advantage
    surrogate: Surrogate
    reshapes: tuple[Reshape, ...] = ()
    terms: tuple[Term, ...] = ()
    aggregation: Aggregation = field(default_factory=Aggregation)
    kl_coefficient: float = 0.0
    needs_entropy: bool = False
    needs_answers: bool = False
    needs_drift: tuple[str, ...] = ()
    needs_teacher: bool = False
    zero_variance: ZeroVariance = "keep"

    def advantages(self, rewards: Tensor, groups: Tensor, valid: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Advantages from the rewards of whole groups.

        Args:
            rewards: (B,) float. ``groups``: (B,) integer, equal numbers are rollouts of one prompt.
            valid: (B,) bool, False for failed rollouts.
            lengths: (B,) policy tokens of each rollout, for what is balanced under the aggregation; None: all alike.

        Returns:
            (B,) in the dtype of ``rewards``.
        """
        weights = None if lengths is None else self.aggregation.of_rollouts(lengths).to(rewards.device)
        return self.advantage(rewards, groups, valid, weights)

    def kept(self, rewards: Tensor, groups: Tensor, valid: Tensor) -> Tensor:
        """(B,) bool: the rollouts that enter the loss. Mask the others before anything is counted."""
        return valid.bool() if self.zero_variance == "keep" else in_mixed_groups(rewards, groups, valid)

    def token_loss(self, tokens: Tokens, totals: StepTotals) -> TokenLoss:
        """Every token's share of the loss of an optimiser step with these totals.

        Raises:
            ValueError: a term needs something (``ref_logp``, ``entropy``, …) that the tokens or totals don't have.
        """
        per_token, clipped = self.surrogate(tokens)
        if tokens.weights is not None:
            per_token = per_token * tokens.weights
        weights = self.aggregation.weights(tokens.mask, totals, per_token.dtype)
        loss = per_token * weights
        result = TokenLoss(loss, clipped, None)
        for term in self.terms:
            unweighted = term.loss(tokens)
            if term.name == "reference_kl":
                result.kl = unweighted
            share = weights
            if term.normaliser != "aggregation":
                share = share_of_tokens(tokens.mask, totals, term.normaliser, per_token.dtype)
            part = unweighted * (term.weight * share)
            result.terms[term.name] = part.detach()
            result.loss = result.loss + part
        return result

    def check_training(self, updates_per_batch: int) -> None:
        """Refuse training that leaves a part without anything to work on.

        Raises:
            UserError: one update a batch, and a part that needs the policy to have moved since the rollout.
        """
        if self.needs_drift and updates_per_batch < 2:
            parts = " and ".join(self.needs_drift)
            verb = "needs" if len(self.needs_drift) == 1 else "need"
            raise UserError(
                f"objective {self.name}: {parts} {verb} the policy to move between the updates of one batch, but "
                f"trainer.updates_per_batch={updates_per_batch} keeps every ratio at 1; set it to 2 or more"
            )
