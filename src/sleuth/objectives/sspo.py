"""SSPO: a teacher that has seen the evidence weighs the steps of wrong rollouts (arXiv 2608.12764).

The teacher is the policy itself under a prompt with privileged information, forced over the rollout's own tokens. A
step (one policy turn) that it finds likelier than the policy does keeps less of the rollout's penalty; one that it
finds less likely gets up to ``1 + eps`` of it. The teacher's pass is not part of this module: log-probs come in.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from math import log1p
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from sleuth.errors import UserError
from sleuth.objectives.turns import policy_stretches, turns_in_mask, turns_of
from sleuth.types import Trajectory

if TYPE_CHECKING:
    from sleuth.objectives.parameters import SSPO, Granularity


GAIN_EDGES = (-5.0, -1.0, -0.1, 0.0, 0.1, 1.0, 5.0)
"""Between the bins of the histogram of Δ, in nats; a value on an edge is in the bin above it."""

GAIN_BINS = (
    "below_-5", "-5_to_-1", "-1_to_-0.1", "-0.1_to_0", "0_to_0.1", "0.1_to_1", "1_to_5", "above_5",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class StepWeights:
    """The weights of a batch and what they came from.

    Attributes:
        advantages: (B, T) weighed; where nothing is weighed as they were, bit for bit.
        weights: (B, T) in [0, 1 + eps]; exactly 1 where nothing is weighed.
        gains: (B, T) Δ in nats of the token's step, or of the token itself; 0 where nothing is weighed.
        weighed: (B, T) bool: policy tokens that count, of incorrect rollouts that the teacher has scored.
        turns: (B, T) long, the step that a token belongs to.
        unscored: number of incorrect rollouts with an advantage that the teacher has not scored: their weights stay 1.
        cap: 1 + eps; None where gains are no weights.
        granularity: what one gain belongs to.
    """

    advantages: Tensor
    weights: Tensor
    gains: Tensor
    weighed: Tensor
    turns: Tensor
    unscored: int
    cap: float | None
    granularity: Granularity

    def statistics(self) -> dict[str, float]:
        """What the teacher did; the sum in Δ makes weights nearly binary, which these show.

        Of weighed tokens: ``capped`` (at 1 + eps), ``exempt`` (weight below 0.1), ``weight`` (mean), quantiles
        ``gain/q05``, ``gain/q50`` and ``gain/q95``. Of weighed steps (tokens, with a gain each): ``steps`` (number),
        ``amplified`` (share with a weight above 1), ``final_amplified`` (the same of the rollouts' last steps), and the
        histogram of Δ, ``gains/<bin>`` for :data:`GAIN_BINS` (shares). And ``unscored`` (rollouts). Without weighed
        tokens only that is there.
        """
        out = {"unscored": float(self.unscored)}
        weights, gains = self.weights[self.weighed], self.gains[self.weighed].double()
        if not len(gains):
            return out
        first, final = self._steps()
        of_steps = self.gains[first].double()
        out["steps"] = float(len(of_steps))
        if self.cap is not None:
            out["capped"] = float((weights >= self.cap * (1 - 1e-6)).double().mean())
            out["exempt"] = float((weights < 0.1).double().mean())
            out["weight"] = float(weights.double().mean())
            amplified = self.weights > 1
            out["amplified"] = float(amplified[first].double().mean())
            out["final_amplified"] = float(amplified[first & final].double().mean())
        ordered = gains.sort().values  # torch.quantile refuses more than 16 million values
        for percent in (5, 50, 95):
            out[f"gain/q{percent:02d}"] = float(ordered[round((len(ordered) - 1) * percent / 100)])
        edges = torch.tensor(GAIN_EDGES, dtype=of_steps.dtype, device=of_steps.device)
        counts = torch.bucketize(of_steps, edges, right=True).bincount(minlength=len(GAIN_BINS))
        for name, count in zip(GAIN_BINS, counts.tolist(), strict=True):
            out[f"gains/{name}"] = count / len(of_steps)
        return out

    def _steps(self) -> tuple[Tensor, Tensor]:
        """(B, T) bool each: one weighed token of every step (every one, by token), and tokens of the last steps."""
        turns = torch.where(self.weighed, self.turns, -1)
        final = self.weighed & (turns == turns.max(-1, keepdim=True).values) if turns.numel() else self.weighed
        if self.granularity == "token":
            return self.weighed, final
        # A step's first weighed token is the first one whose turn is above all before it.
        before = torch.cat([torch.full_like(turns[:, :1], -1), turns.cummax(-1).values[:, :-1]], dim=-1)
        return self.weighed & (turns > before), final


def step_weights(
    advantages: Tensor,
    logp: Tensor,
    teacher_logp: Tensor,
    mask: Tensor,
    incorrect: Tensor,
    *,
    turns: Tensor | None = None,
    eps: float = 0.2,
    granularity: Granularity = "step",
) -> Tensor:
    """Weights ``min(exp(sign(A)·Δ), 1 + eps)`` of the steps of incorrect rollouts (arXiv 2608.12764).

    Δ is the sum of ``teacher_logp - logp`` over the policy tokens of a step, or that difference of a single token.
    Weights are never negative, so no sign changes, and equal log-probs give exactly 1. In a loop of your own::

        advantages = advantages * step_weights(advantages, logp, teacher_logp, mask, incorrect)

    Args:
        advantages: (B, T), or (B,) for one value a rollout; only signs are read.
        logp: (B, T) under the policy before the first update on this batch. Take both log-probs from the same engine,
            in the same precision and at the same temperature: the sum collects every difference between engines.
        teacher_logp: (B, T) of the same tokens under the teacher; NaN where it has not scored. No gradient goes to
            either.
        mask: (B, T) bool or 0/1, 1 for policy tokens that count. Nothing at masked places is read.
        incorrect: (B,) bool; other rollouts keep weight 1.
        turns: (B, T) long, which turn a token belongs to, -1 outside: :func:`turns_of`. None: runs of ones in ``mask``.
        eps: cap of the weights, minus 1.

    Returns:
        (B, T) in [0, 1 + eps], in the dtype of ``advantages``; exactly 1 for tokens of other rollouts, outside of the
        mask and where the teacher has not scored. A token without two finite log-probs adds nothing to Δ.
    """
    return weigh_steps(
        advantages, logp, teacher_logp, mask, incorrect, turns=turns, eps=eps, granularity=granularity
    ).weights


def weigh_steps(
    advantages: Tensor,
    logp: Tensor,
    teacher_logp: Tensor,
    mask: Tensor,
    incorrect: Tensor,
    *,
    turns: Tensor | None = None,
    eps: float = 0.2,
    granularity: Granularity = "step",
    gain_as: Literal["weight", "advantage"] = "weight",
) -> StepWeights:
    """:func:`step_weights` with the gains that they came from.

    Args:
        gain_as: with ``advantage`` the gain of a token takes its advantage's place (weights are then all 1, and
            ``granularity`` says nothing).
    """
    if gain_as == "advantage":
        granularity = "token"
    mask = mask.bool()
    if turns is None:
        turns = turns_in_mask(mask)
    if advantages.dim() == 1:
        advantages = advantages[:, None].expand(mask.shape)
    candidates = mask & incorrect[:, None] & (turns >= 0)
    dtype = torch.promote_types(torch.promote_types(logp.dtype, teacher_logp.dtype), torch.float32)
    gains = teacher_logp.detach().to(dtype) - logp.detach().to(dtype)
    finite = torch.isfinite(gains)
    scored = candidates & finite
    gains = torch.where(scored, gains, 0.0)
    reached = scored.any(-1)
    weighed = candidates & reached[:, None]
    if granularity == "step" and turns.numel():
        of = turns.clamp(min=0)
        per_step = gains.new_zeros(len(gains), int(of.max()) + 1).scatter_add_(1, of, gains)
        gains = torch.where(weighed, per_step.gather(1, of), 0.0)
    if gain_as == "advantage":
        weights = torch.ones_like(advantages)
        changed = gains.to(advantages.dtype)
    else:
        signs = torch.where(weighed, advantages.sign().to(dtype), 0.0)
        # The cap goes inside of exp, where it can't overflow.
        weights = (signs * gains).clamp(max=log1p(eps)).exp()
        weights = torch.where(weighed, weights, 1.0).to(advantages.dtype)
        changed = advantages * weights
    return StepWeights(
        advantages=torch.where(weighed, changed, advantages),
        weights=weights,
        gains=gains,
        weighed=weighed,
        turns=turns,
        unscored=int(((candidates & (advantages != 0)).any(-1) & ~reached).sum()),
        cap=1 + eps if gain_as == "weight" else None,
        granularity=granularity,
    )


def weigh(
    advantages: Tensor,
    mask: Tensor,
    trajectories: Sequence[Trajectory],
    groups: Tensor | None = None,
    parameters: SSPO | None = None,
    *,
    old_logp: Tensor | None = None,
    teacher_logp: Tensor | None = None,
) -> StepWeights:
    """The weights of these rollouts; arguments and errors are those of :func:`reshape`."""
    if parameters is None:
        # Not above: `step_weights` in a loop of one's own needs torch alone.
        from sleuth.objectives.parameters import SSPO

        parameters = SSPO()
    mask = mask.bool()
    turns = turns_of(trajectories, mask)
    incorrect = [_is_incorrect(t, parameters.correct_reward) for t in trajectories]
    from_spans = teacher_logp is None
    dtype = torch.promote_types(advantages.dtype, torch.float32)
    if teacher_logp is None:
        teacher_logp = _from_spans(trajectories, mask, dtype, "teacher_logprobs")
    if old_logp is None:
        old_logp = _from_spans(trajectories, mask, dtype, "old_logprobs", "logprobs")
        if any(wrong and _has_only_sampler(t) for wrong, t in zip(incorrect, trajectories, strict=True)):
            warnings.warn("sspo: where old_logprobs is missing, the sampler's own log-probs stand in", stacklevel=2)
    out = weigh_steps(
        advantages,
        old_logp,
        teacher_logp,
        mask,
        torch.tensor(incorrect, dtype=torch.bool, device=mask.device),
        turns=turns,
        eps=parameters.eps,
        granularity=parameters.granularity,
        gain_as=parameters.gain_as,
    )
    if from_spans and out.unscored and not out.weighed.any():
        first = trajectories[incorrect.index(True)].id
        raise UserError(
            f"sspo: no incorrect rollout (the first is {first!r}) has teacher_logprobs and old_logprobs on its policy "
            "spans; run the teacher's pass first, or leave sspo out"
        )
    return out


def reshape(
    advantages: Tensor,
    mask: Tensor,
    trajectories: Sequence[Trajectory],
    groups: Tensor | None = None,
    parameters: SSPO | None = None,
    *,
    old_logp: Tensor | None = None,
    teacher_logp: Tensor | None = None,
) -> Tensor:
    """Advantages with the steps of incorrect rollouts weighed (arXiv 2608.12764).

    Args:
        advantages: (B, T).
        mask: (B, T) bool or 0/1, 1 for policy tokens that count; column t is ``completion_ids[t]``.
        trajectories: B rollouts with rewards, in row order.
        groups: not read; here because every reshape is called alike.
        parameters: None for the defaults.
        old_logp: (B, T) log-probs before the first update on this batch. None: the policy spans' ``old_logprobs``,
            and where there are none the sampler's, with a warning.
        teacher_logp: (B, T), NaN where the teacher has not scored. None: the policy spans' ``teacher_logprobs``.

    Returns:
        (B, T). Correct, failed and unscored rollouts and masked tokens keep their values bit for bit.

    Raises:
        UserError: log-probs come from the spans, and no incorrect rollout has the teacher's.
        ValueError: mask and trajectories don't fit together.
    """
    return weigh(
        advantages, mask, trajectories, groups, parameters, old_logp=old_logp, teacher_logp=teacher_logp
    ).advantages


def wants_teacher(advantages: Tensor, trajectories: Sequence[Trajectory], parameters: SSPO | None = None) -> Tensor:
    """(B,) bool: the rollouts whose weights depend on a teacher: incorrect ones with an advantage (B,) other than 0."""
    if parameters is None:
        from sleuth.objectives.parameters import SSPO

        parameters = SSPO()
    incorrect = [_is_incorrect(t, parameters.correct_reward) for t in trajectories]
    return torch.tensor(incorrect, dtype=torch.bool, device=advantages.device) & (advantages != 0)


def _is_incorrect(trajectory: Trajectory, correct_reward: float) -> bool:
    """False also for a reward that is missing or NaN: nothing says that such a rollout is wrong."""
    return not trajectory.failed and trajectory.reward is not None and trajectory.reward < correct_reward


def _has_only_sampler(trajectory: Trajectory) -> bool:
    return any(s.ids and s.old_logprobs is None and s.logprobs is not None for s in trajectory.policy_spans)


def _from_spans(trajectories: Sequence[Trajectory], mask: Tensor, dtype: torch.dtype, *fields: str) -> Tensor:
    """(B, T) from the first of these fields that a policy span has; NaN elsewhere."""
    out = torch.full(mask.shape, torch.nan, dtype=dtype)
    for row, trajectory in enumerate(trajectories):
        for span, (start, end) in zip(trajectory.policy_spans, policy_stretches(trajectory), strict=True):
            values = next((v for field in fields if (v := getattr(span, field)) is not None), None)
            if values is not None:
                out[row, start:end] = torch.tensor(values, dtype=dtype)
    return out.to(mask.device)
