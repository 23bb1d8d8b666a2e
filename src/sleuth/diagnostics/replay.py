"""Replay: any objective on saved rollouts, without a model, down to the gradient at every token.

The rollouts are one batch, which is one optimiser step. They go through the objective as the trainers' batches do, in
double precision: advantages of groups, masks, reshapes, token losses, and the derivative by the new log-probs.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from sleuth.diagnostics.saved_batch import DTYPE, SavedBatch, log_probs_of, policy_spans
from sleuth.diagnostics.token_labels import ANSWER, token_labels
from sleuth.errors import UserError
from sleuth.objectives.aggregation import StepTotals
from sleuth.objectives.compose import Objective, TokenLoss
from sleuth.objectives.credit import Credit, assign_credit
from sleuth.objectives.tokens import Tokens
from sleuth.types import PartKind, Trajectory, group_trajectories


class UnfitRollout(ValueError):
    """A rollout that can't be replayed; the message starts with the field. ``row`` counts from 0."""

    def __init__(self, row: int, message: str) -> None:
        super().__init__(message)
        self.row = row


@dataclass(frozen=True, slots=True)
class SpanReplay:
    """One policy span; the lists are as long as its ``ids``.

    Attributes:
        span: its index in the rollout's ``spans``.
        advantages: after all reshapes; 0 in rollouts that failed.
        loss: each token's share of the batch's loss; of a rollout that was copied, with the copies' shares.
        grad: d loss / d new log-prob.
    """

    span: int
    advantages: list[float]
    loss: list[float]
    grad: list[float]


@dataclass(frozen=True, slots=True)
class RolloutReplay:
    """One rollout: an entry for each of its policy spans, in order."""

    id: str
    spans: list[SpanReplay]


@dataclass(frozen=True, slots=True)
class Replay:
    """What an objective makes of a batch.

    Attributes:
        loss: the sum of all token losses.
        stats: counts, ``statistics`` of :class:`sleuth.objectives.credit.Credit`, ``term/NAME`` (each term's part of
            the loss), ``grad_norm``, ``ratio/mean``, ``ratio/clipped``, and ``old_source`` and ``new_source``: where
            those log-probs came from.
        rollouts: in the batch's order.
        notes: what a reader must know to trust the numbers, a sentence each.
    """

    objective: str
    loss: float
    stats: dict[str, float | int | str]
    rollouts: list[RolloutReplay]
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As JSON: ``objective``, ``loss``, ``stats`` and ``rollouts``."""
        out = asdict(self)
        del out["notes"]
        return out


def replay(trajectories: Sequence[Trajectory], objective: Objective) -> Replay:
    """Advantages, losses and gradients of these rollouts, taken as one batch grouped by ``(step, group)``.

    Missing ``new_logprobs`` mean on-policy: they are the old ones. Where ``old_logprobs`` are missing, the sampler's
    ``logprobs`` stand in, which ``notes`` and ``stats["old_source"]`` say. Failed rollouts have no part in anything.
    Tokens whose log-probs aren't finite are dropped and counted, as in training.

    Raises:
        UnfitRollout: a group of one, a reward that is missing or not finite, log-probs or parts that the objective
            needs and a rollout lacks.
        UserError: no rollouts, or an objective that saved rollouts can't feed.
    """
    if not trajectories:
        raise UserError("no rollouts to replay")
    if objective.needs_entropy:
        rest = "+".join(part for part in objective.name.split("+") if part.strip() != "entropy") or "grpo"
        raise UserError(
            f"objective {objective.name}: entropy needs the policy's whole distribution at every token, and rollouts "
            f"hold log-probs of the sampled tokens alone; replay {rest}"
        )
    check(trajectories, objective)
    batch = SavedBatch.of(trajectories)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="sspo: where old_logprobs is missing")  # ours says so for all
        credit = assign_credit(objective, batch.rewards, batch.groups, batch.valid, batch.mask, trajectories)
    mask, rows = batch.mask & credit.kept[:, None], credit.rows
    new = batch.new.clone().requires_grad_()
    ref = log_probs_of(trajectories, mask.shape, "ref_logprobs") if objective.kl_coefficient else None
    answer = token_labels(trajectories, mask.size(1))[0] == ANSWER if objective.needs_answers else None
    searches = torch.tensor([_searches(t) for t in trajectories]) if objective.needs_answers else None
    tokens = Tokens.build(
        new[rows],
        batch.old[rows],
        credit.tokens[rows],
        mask[rows],
        None if ref is None else ref[rows],
        rollout_advantages=credit.rollouts[rows],
        answer=None if answer is None else answer[rows],
        searches=None if searches is None else searches[rows],
    )
    result = objective.token_loss(tokens, StepTotals.of(mask[rows], credit.rollouts[rows]))
    total = result.loss.sum()
    (grad,) = torch.autograd.grad(total, new)
    loss = torch.zeros_like(result.loss).index_add(0, rows, result.loss)  # a copy's loss is its rollout's
    rollouts = [
        RolloutReplay(
            t.id,
            [
                SpanReplay(
                    index,
                    credit.tokens[row, start:end].tolist(),
                    loss[row, start:end].tolist(),
                    grad[row, start:end].tolist(),
                )
                for index, _, start, end in policy_spans(t)
            ],
        )
        for row, t in enumerate(trajectories)
    ]
    stats = _statistics(batch, credit, tokens, result, grad)
    return Replay(objective.name, total.item(), stats, rollouts, batch.notes)


def check(trajectories: Sequence[Trajectory], objective: Objective) -> None:
    """Raise for the first rollout that this objective can't be replayed on.

    Raises:
        UnfitRollout: see :func:`replay`.
    """
    sizes = {(t.step, g.id): len(g.trajectories) for g in group_trajectories(trajectories) for t in g}
    for row, t in enumerate(trajectories):
        if sizes[t.step, t.group] < 2:
            raise UnfitRollout(
                row,
                f'group: "{t.group}" of step {t.step} has this rollout alone; advantages compare the rollouts of a '
                "group, so give it at least two",
            )
        if t.failed:
            continue
        if t.reward is None or not math.isfinite(t.reward):
            found = "missing" if t.reward is None else f"{t.reward} is no finite number"
            raise UnfitRollout(row, f'reward: {found}; give one to every rollout whose status is "{t.status}"')
        for index, span, _, _ in policy_spans(t):
            if span.old_logprobs is None and span.logprobs is None:
                raise UnfitRollout(row, f"spans[{index}].old_logprobs: missing, and so are the sampler's logprobs")
            if objective.kl_coefficient and span.ref_logprobs is None:
                raise UnfitRollout(row, f"spans[{index}].ref_logprobs: missing; the reference KL needs them")
        if objective.needs_answers and t.answer is not None and not _has_answer_part(t):
            index = max((index for index, *_ in policy_spans(t)), default=0)
            raise UnfitRollout(
                row, f'spans[{index}].parts: no part is the answer; llds.ma needs one of kind "answer" in its tokens'
            )


def _has_answer_part(trajectory: Trajectory) -> bool:
    return any(part.kind is PartKind.ANSWER for span in trajectory.policy_spans for part in span.parts)


def _searches(trajectory: Trajectory) -> int:
    return trajectory.counts.get("searches", len(trajectory.queries))


# ---------------------------------------------------------------------------------------------------------------------
# What is told of the whole batch


def _statistics(
    batch: SavedBatch, credit: Credit, tokens: Tokens, result: TokenLoss, grad: Tensor
) -> dict[str, float | int | str]:
    ratios = tokens.ratio.detach()[tokens.mask]
    stats: dict[str, float | int | str] = {
        "rollouts": len(batch.rewards),
        "groups": len(batch.groups.unique()),
        "failed_rollouts": int((~batch.valid).sum()),
        "tokens": int(tokens.policy.sum()),
        "dropped_tokens": tokens.dropped,
        "old_source": batch.old_source,
        "new_source": batch.new_source,
        "grad_norm": grad.norm().item(),
    } | credit.statistics
    if len(ratios):
        stats["ratio/mean"] = ratios.mean().item()
        stats["ratio/clipped"] = result.clipped[tokens.mask].to(DTYPE).mean().item()
    return stats | {f"term/{name}": part.sum().item() for name, part in result.terms.items()}
