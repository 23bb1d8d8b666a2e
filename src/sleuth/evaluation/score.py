"""Answers every question once and grades the answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sleuth.agent.agent import SearchAgent
from sleuth.rewards.graders import GRADERS, Grader
from sleuth.seeds import derive_seed
from sleuth.types import Question, SamplingParams, Status, Trajectory


@dataclass(frozen=True, slots=True)
class Score:
    """One question's outcome.

    Attributes:
        em, f1, cover_em: from 0 to 1; None when the rollout failed, which says nothing of the policy. No answer is 0.
        searches: that reached the retriever.
    """

    id: str
    data_source: str
    status: Status
    em: float | None
    f1: float | None
    cover_em: float | None
    format_valid: bool
    searches: int

    @property
    def scored(self) -> bool:
        return self.em is not None


def evaluate(
    agent: SearchAgent,
    questions: Sequence[Question],
    params: SamplingParams,
    *,
    seed: int,
    batch: int,
    progress: Callable[[int], None] | None = None,
) -> list[Trajectory]:
    """One rollout a question, in the order of ``questions``.

    A question's draw depends on ``seed`` and its id, not on the batch: any ``batch`` gives the same rollouts, up to the
    last bits of floating-point arithmetic in the model.

    Args:
        batch: questions answered together.
        progress: called with the number of questions answered since the last call.
    """
    if batch < 1:
        raise ValueError(f"batch={batch} must be at least 1")
    trajectories: list[Trajectory] = []
    for start in range(0, len(questions), batch):
        rows = questions[start : start + batch]
        trajectories += agent.answer(rows, params, seeds=[derive_seed(seed, q.id) for q in rows])
        if progress is not None:
            progress(len(rows))
    return trajectories


def score(trajectories: Iterable[Trajectory], grader: Grader | str = "squad") -> list[Score]:
    """Grade trajectories, in their order."""
    grader = GRADERS[grader] if isinstance(grader, str) else grader
    return [_score(trajectory, grader) for trajectory in trajectories]


def score_rows(trajectories: Sequence[Trajectory], scores: Sequence[Score]) -> Iterator[dict[str, Any]]:
    """A JSON object a question: what was asked, searched and answered, and its scores."""
    for trajectory, row in zip(trajectories, scores, strict=True):
        yield {
            **asdict(row),
            "question": trajectory.question,
            "golden_answers": trajectory.golden_answers,
            "prediction": trajectory.answer,
            "queries": trajectory.queries,
            "titles": [[d.title for d in turn.observation.documents] for turn in trajectory.turns if turn.observation],
            **({"error": trajectory.error} if trajectory.error else {}),
        }


def _score(trajectory: Trajectory, grader: Grader) -> Score:
    grade = None if trajectory.failed else grader.grade(trajectory.answer, trajectory.golden_answers)
    return Score(
        id=trajectory.id,
        data_source=trajectory.data_source,
        status=trajectory.status,
        em=grade.em if grade else None,
        f1=grade.f1 if grade else None,
        cover_em=grade.cover_em if grade else None,
        format_valid=trajectory.format_valid,
        searches=trajectory.counts.get("searches", 0),
    )
