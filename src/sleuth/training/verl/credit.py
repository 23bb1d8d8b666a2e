"""Credit for a batch of verl's: from its rows back to rollouts, and from rollouts to the fields that the loss reads."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor
from verl.utils import tensordict_utils

from sleuth.diagnostics.behaviour import behaviour
from sleuth.errors import UserError
from sleuth.objectives.compose import Objective
from sleuth.objectives.credit import Credit, assign_credit
from sleuth.objectives.groups import group_numbers
from sleuth.rollouts import from_dict
from sleuth.training.verl.losses import ANSWER, ROLLOUT_ADVANTAGES, SEARCHES, data_padded
from sleuth.training.verl.registration import AGENT_LOOP, TRAINER
from sleuth.training.verl.teacher_pass import VerlTeacher
from sleuth.types import SpanKind, Trajectory

FIELDS = ("uid", "response_mask", "rm_scores", "old_log_probs", "extra_fields")
"""What :func:`credit_batch` reads of a batch."""

TRAJECTORY = "search_trajectory"
"""Name of the rollout in ``extra_fields``: JSON, a line of a rollouts file."""


@dataclass(frozen=True)
class CreditedBatch:
    """Attributes:
    fields: what the loss reads, for every row.
    rollouts: with old log-probs; rows that only fill verl's batch up are left out.
    statistics: of credit, behaviour and teacher.
    """

    fields: TensorDict
    rollouts: list[Trajectory]
    statistics: dict[str, float]


def credit_batch(
    objective: Objective, data: Any, padding: Sequence[bool], teacher: VerlTeacher | None = None
) -> CreditedBatch:
    """Credit for whole groups, whatever order their rows are in.

    Args:
        data: :data:`FIELDS`, nested; ``response_mask`` without the tokens that verl has rejected.
        padding: rows of verl's that only fill the batch up; they count nowhere.

    Raises:
        UserError: a row comes from another agent loop.
    """
    trajectories = trajectories_of(tensordict_utils.get(data, "extra_fields"), padding)
    mask = data_padded(data, "response_mask").bool()
    old = data_padded(data, "old_log_probs")
    if teacher is not None:
        teacher.start(trajectories, old, mask)
    credit = assign_credit(
        objective,
        data_padded(data, "rm_scores").sum(-1),
        group_numbers(tensordict_utils.get(data, "uid")),
        torch.tensor([not t.failed for t in trajectories]) & mask.any(-1),
        mask,
        trajectories,
        teacher=teacher,
    )
    write_old_log_probs(trajectories, old)
    rollouts = [t for t, filler in zip(trajectories, padding, strict=True) if not filler]
    statistics = {**behaviour(rollouts), **credit.statistics}
    if teacher is not None:
        statistics |= teacher.statistics()
    fields = loss_fields(objective, credit, trajectories, mask, data["response_mask"])
    return CreditedBatch(fields, rollouts, statistics)


def trajectories_of(extra_fields: Sequence[Any], padding: Sequence[bool]) -> list[Trajectory]:
    """The rollouts that the agent loop put there; a row of verl's that fills the batch up is an aborted one.

    Raises:
        UserError: a row comes from another agent loop.
    """
    out = []
    for fields, filler in zip(extra_fields, padding, strict=True):
        if filler:
            out.append(Trajectory("", "", "", []))
        elif not isinstance(fields, dict) or TRAJECTORY not in fields:
            raise UserError(
                f"a rollout comes from another agent loop than {AGENT_LOOP}, which trainer.v1.trainer_mode={TRAINER} "
                "needs; set actor_rollout_ref.rollout.agent.default_agent_loop=search_tags, and agent_name in the data"
            )
        else:
            out.append(from_dict(json.loads(fields[TRAJECTORY])))
    return out


def loss_fields(
    objective: Objective, credit: Credit, trajectories: Sequence[Trajectory], mask: Tensor, response_mask: Tensor
) -> TensorDict:
    """The fields that the loss reads, each as long as its row's response.

    Args:
        mask: (B, T) bool. ``response_mask``: the same as verl has it, for the lengths.
    """
    kept = mask & credit.kept[:, None]
    lengths = (
        response_mask.offsets().diff().tolist()  # type: ignore[attr-defined]  # jagged tensors have it
        if response_mask.is_nested
        else [response_mask.shape[1]] * len(mask)
    )

    def rows(values: Tensor) -> Tensor:
        return torch.nested.as_nested_tensor(
            [row[:length].clone() for row, length in zip(values, lengths, strict=True)], layout=torch.jagged
        )

    advantages = torch.where(kept, credit.tokens, 0.0)
    out = {
        "advantages": rows(advantages),
        "returns": rows(advantages),
        "response_mask": rows(kept.long()),
        "loss_mask": rows(kept.long()),
        ROLLOUT_ADVANTAGES: credit.rollouts[:, None].float(),
    }
    if objective.needs_answers:
        answer = torch.zeros(mask.shape, dtype=torch.bool)
        for row, trajectory in enumerate(trajectories):
            own = torch.tensor(trajectory.answer_mask[: mask.shape[1]], dtype=torch.bool)
            answer[row, : len(own)] = own
        out[ANSWER] = rows(answer)
        out[SEARCHES] = torch.tensor([[t.counts.get("searches", 0)] for t in trajectories])
    return TensorDict(out, batch_size=len(mask))


def write_old_log_probs(trajectories: Sequence[Trajectory], old: Tensor) -> None:
    """Put the trainer's own log-probs of the rollouts, (B, T), on their policy spans."""
    for trajectory, values in zip(trajectories, old.tolist(), strict=True):
        at = -len(trajectory.prompt_ids)
        for span in trajectory.spans:
            if span.kind is SpanKind.POLICY:
                span.old_logprobs = values[at : at + len(span.ids)]
            at += len(span.ids)
