"""The teacher's pass on verl's workers: the same responses behind prompts with evidence, before the first update."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor
from verl.utils import tensordict_utils
from verl.workers.utils.padding import response_from_nested

from sleuth.anchors.rows import Anchor, read_anchors
from sleuth.training.teacher_pass import PrivilegedPrompts, Readings, at_places, write_readings
from sleuth.training.verl.agent_settings import QUESTION_ID, SearchSettings, build_loop_protocol
from sleuth.types import Question, Trajectory


class VerlTeacher:
    """Scores rollouts (:data:`sleuth.objectives.credit.TeacherScores`); :meth:`start` gives it a batch.

    Args:
        workers: verl's actors.
        reference: scores a batch under the start model.

    Attributes:
        ranks: that share a pass; a multiple of it is sent.

    Raises:
        UserError: the file of anchors can't be read.
    """

    def __init__(
        self, search: SearchSettings, tokenizer: Any, config: Any, workers: Any, reference: Callable[[Any], Any]
    ):
        assert search.teacher is not None
        rows = read_anchors(search.teacher.anchors)

        def anchors(question: Question) -> Sequence[Anchor]:
            return rows[question.id].anchors if question.id in rows else ()

        self._prompts = PrivilegedPrompts(
            anchors=anchors,
            prompt=search.teacher.prompt,
            protocol=build_loop_protocol(search, tokenizer),
            max_context=search.teacher.max_context or search.limits.max_context,
        )
        self._temperature = config.actor_rollout_ref.rollout.temperature
        self._score = workers.compute_log_prob if search.teacher.weights == "policy" else reference
        self._micro_batch = _micro_batch(config, search.teacher.weights)
        self._readings = Readings()
        self.ranks = 1

    def start(self, trajectories: Sequence[Trajectory], old: Tensor, mask: Tensor) -> None:
        """The batch that is asked about next: ``old`` log-probs and policy ``mask``, (B, T)."""
        self._trajectories, self._old, self._mask = trajectories, old, mask
        self._readings = Readings()

    def statistics(self) -> dict[str, float]:
        """What the teacher read of the batch."""
        return self._readings.statistics()

    def __call__(self, wanted: Tensor) -> tuple[Tensor, Tensor]:
        """Old and teacher's log-probs (B, T) of the wanted rollouts (B,); NaN where the teacher has not scored."""
        trajectories = self._trajectories
        questions = [_question(t) for t in trajectories]
        self._readings = self._prompts.readings(trajectories, questions, wanted.tolist())
        if not self._readings.rows:
            return self._old, torch.full(self._mask.shape, torch.nan)
        scores = at_places(self._scores(self._readings), self._readings.rows, self._mask)
        write_readings(trajectories, self._readings, scores)
        return self._old, scores

    def _scores(self, readings: Readings) -> Tensor:
        """(n, T), right-padded."""
        # verl wants as many rows and whole micro-batches on every rank: filled up with the first row.
        rows = list(range(len(readings.rows)))
        rows += [0] * (-len(rows) % (self.ranks * self._micro_batch))
        prompts = [torch.tensor(readings.prompts[i]) for i in rows]
        responses = [torch.tensor(self._trajectories[readings.rows[i]].completion_ids) for i in rows]
        masks = [torch.tensor(self._trajectories[readings.rows[i]].completion_mask) for i in rows]
        ids = [torch.cat(pair) for pair in zip(prompts, responses, strict=True)]
        data = TensorDict(
            {
                "prompts": _nested(prompts),
                "responses": _nested(responses),
                "input_ids": _nested(ids),
                "position_ids": _nested([torch.arange(len(row)) for row in ids]),
                "attention_mask": _nested([torch.ones_like(row) for row in ids]),
                "response_mask": _nested(masks),
                "loss_mask": _nested(masks),
            },
            batch_size=len(rows),
        )
        tensordict_utils.assign_non_tensor(
            data,
            calculate_entropy=False,
            compute_loss=False,
            temperature=self._temperature,
            global_token_num=[len(row) for row in ids],
        )
        scored = response_from_nested(self._score(data)["log_probs"], data["response_mask"])
        out = torch.zeros(len(readings.rows), self._mask.shape[1])
        for row, values in enumerate(scored.unbind()[: len(readings.rows)]):
            out[row, : len(values)] = values
        return out


def _micro_batch(config: Any, weights: str) -> int:
    """Rows of a micro-batch of log-probs; 1 where verl cuts micro-batches by their tokens."""
    section = config.actor_rollout_ref.rollout if weights == "policy" else config.actor_rollout_ref.ref
    return 1 if section.log_prob_use_dynamic_bsz else section.log_prob_micro_batch_size_per_gpu


def _question(trajectory: Trajectory) -> Question:
    """The question of a rollout, under its own id: that of the row, not verl's of the group."""
    return Question(
        str(trajectory.extra.get(QUESTION_ID, trajectory.group)),
        trajectory.question,
        trajectory.golden_answers,
        trajectory.data_source,
        supporting_titles=trajectory.supporting_titles,
        extra=trajectory.extra,
    )


def _nested(rows: Sequence[Tensor]) -> Tensor:
    return torch.nested.as_nested_tensor(list(rows), layout=torch.jagged)
