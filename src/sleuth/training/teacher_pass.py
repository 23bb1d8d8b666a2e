"""The teacher's pass: the same response ids once more, behind another prompt and under the teacher's weights.

Nothing here knows an engine: it says which rollouts the teacher reads and behind which prompt ids, and puts them into
one padded batch whose completion columns are the policy's own. Text is rendered for the prompt alone; what was sampled,
and what the environment wrote between, stays the ids that it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from sleuth.agent.protocol import AgentProtocol
from sleuth.anchors.passages import Passages
from sleuth.anchors.prompt import TeacherPrompt
from sleuth.anchors.rows import Anchor, anchor_as_json, read_anchors
from sleuth.anchors.supporting import has_support, supporting_anchors
from sleuth.errors import UserError
from sleuth.training.teacher import Teacher
from sleuth.types import Question, SpanKind, Trajectory

if TYPE_CHECKING:
    from sleuth.assembly import Parts
    from sleuth.recipes.schema import Recipe


@dataclass(slots=True)
class Readings:
    """What the teacher reads of a batch.

    Attributes:
        rows: places of the rollouts in the batch. ``prompts``: ids of their privileged prompts.
        anchors: what each of these prompts names.
        without_anchors, too_long: rollouts that it should have read and can't; their weights stay 1.
    """

    rows: list[int] = field(default_factory=list)
    prompts: list[list[int]] = field(default_factory=list)
    anchors: list[Sequence[Anchor]] = field(default_factory=list)
    without_anchors: int = 0
    too_long: int = 0

    def statistics(self) -> dict[str, float]:
        """By the names of ``metrics.jsonl``."""
        return {
            "teacher/scored": len(self.rows),
            "teacher/without_anchors": self.without_anchors,
            "teacher/too_long": self.too_long,
        }


@dataclass(frozen=True, slots=True)
class PrivilegedPrompts:
    """From a rollout to the prompt that its teacher reads.

    Attributes:
        anchors: of a question; empty where it has none.
        protocol: the run's own; what it puts before the policy's first token stands in the teacher's prompt too.
        max_context: tokens of prompt and rollout together; None: any number.
    """

    anchors: Callable[[Question], Sequence[Anchor]]
    prompt: TeacherPrompt
    protocol: AgentProtocol
    max_context: int | None = None

    def readings(
        self, trajectories: Sequence[Trajectory], questions: Sequence[Question], wanted: Sequence[bool]
    ) -> Readings:
        """The rollouts among ``wanted`` that can be read; a rollout is never cut to fit."""
        out = Readings()
        for row, (trajectory, question) in enumerate(zip(trajectories, questions, strict=True)):
            if not wanted[row]:
                continue
            anchors = self.anchors(question)
            if not anchors:
                out.without_anchors += 1
                continue
            ids = self.ids(trajectory, question, anchors)
            if self.max_context is not None and len(ids) + len(trajectory.completion_ids) > self.max_context:
                out.too_long += 1
                continue
            out.rows.append(row)
            out.prompts.append(ids)
            out.anchors.append(anchors)
        return out

    def ids(self, trajectory: Trajectory, question: Question, anchors: Sequence[Anchor]) -> list[int]:
        """Ids of the privileged prompt, with what the environment opened before the first policy token."""
        prompt = self.protocol.prompt(self.prompt.question(question, anchors, trajectory.answer))
        ids = list(prompt.ids)
        for span in trajectory.spans[1:]:
            if span.kind is SpanKind.POLICY:
                break
            ids += span.ids
        return ids


def behind_other_prompts(
    prompts: Sequence[Sequence[int]], completion_ids: Tensor, completion_mask: Tensor, pad: int
) -> tuple[Tensor, Tensor]:
    """Ids and attention mask, (n, P+T) each, of these prompts, left-padded, before the same completions.

    Args:
        prompts: n lists of ids. ``completion_ids``, ``completion_mask``: (n, T), right-padded; the mask is 1 for every
            token of the rollout, observations included.
    """
    width = max(map(len, prompts))
    device = completion_ids.device
    ids = torch.tensor([[pad] * (width - len(p)) + list(p) for p in prompts], device=device)
    mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts], device=device)
    return (
        torch.cat([ids.to(completion_ids.dtype), completion_ids], dim=1),
        torch.cat([mask.to(completion_mask.dtype), completion_mask], dim=1),
    )


def at_places(values: Tensor, rows: Sequence[int], policy: Tensor) -> Tensor:
    """(B, T) with row i of ``values`` (n, T) at place ``rows[i]``; NaN elsewhere and outside of ``policy`` (B, T)."""
    out = torch.full(policy.shape, torch.nan, dtype=values.dtype, device=values.device)
    out[list(rows)] = values
    return torch.where(policy.bool(), out, torch.nan)


def write_readings(trajectories: Sequence[Trajectory], readings: Readings, scores: Tensor) -> None:
    """Put the teacher's log-probs and what it was shown into the rollouts.

    Args:
        scores: (B, T) as of :func:`at_places`.
    """
    values = scores.float().cpu()
    for row, anchors in zip(readings.rows, readings.anchors, strict=True):
        trajectory = trajectories[row]
        at = -len(trajectory.prompt_ids)
        for span in trajectory.spans:
            if span.kind is SpanKind.POLICY:
                span.teacher_logprobs = values[row, at : at + len(span.ids)].tolist()
            at += len(span.ids)
        trajectory.extra["anchors"] = [anchor_as_json(anchor) for anchor in anchors]


@dataclass(frozen=True, slots=True)
class TeacherPass:
    """A teacher of a run: whose weights, and what it reads."""

    teacher: Teacher
    prompts: PrivilegedPrompts


def teacher_pass(recipe: Recipe, parts: Parts) -> Callable[[nn.Module], TeacherPass]:
    """The recipe's teacher, once the engine has its model.

    Raises:
        UserError: there is no evidence to show it.
    """
    settings = recipe.teacher
    limits = [x for x in (settings.max_context, parts.limits.max_context) if x]
    prompts = PrivilegedPrompts(
        anchors_of(recipe, parts), settings.prompt, parts.protocol, min(limits) if limits else None
    )

    def of(model: nn.Module) -> TeacherPass:
        return TeacherPass(Teacher(model, settings.weights, every=settings.every, rate=settings.rate), prompts)

    return of


def anchors_of(recipe: Recipe, parts: Parts) -> Callable[[Question], Sequence[Anchor]]:
    """From a training question to its evidence: of the recipe's file, or of what the question names.

    Raises:
        UserError: there is none for any of them.
    """
    settings = recipe.teacher
    if settings.anchors is not None:
        rows = read_anchors(settings.anchors)
        if not any(q.id in rows and rows[q.id].anchors for q in parts.train):
            raise UserError(f"{settings.anchors}: no anchors for any training question; build them from data.train")

        def from_file(question: Question) -> Sequence[Anchor]:
            row = rows.get(question.id)
            # An id may come again in another set; anchors of another question are no evidence.
            return row.anchors if row is not None and row.question == question.question else ()

        return from_file
    if not hasattr(parts.retriever, "corpus") or not any(map(has_support, parts.train)):
        raise UserError(
            "a teacher's prompt needs evidence for the training questions; make it with "
            "sleuth anchors build QUESTIONS, and set teacher.anchors=FILE"
        )
    passages = Passages(parts.retriever)
    made: dict[str, Sequence[Anchor]] = {}

    def from_support(question: Question) -> Sequence[Anchor]:
        if question.id not in made:
            made[question.id] = supporting_anchors(question, passages, settings.answers).anchors
        return made[question.id]

    return from_support
