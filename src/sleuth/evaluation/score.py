"""Answers every question once and grades the answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sleuth.agent.agent import SearchAgent
from sleuth.data.benchmarks.sealed import sealed_row
from sleuth.evaluation.recall import Evidence, evidence_kind, recall
from sleuth.evaluation.systems import usage_of
from sleuth.rewards.graders import Grader
from sleuth.rewards.search_r1_compat import SEARCH_R1_COMPAT, compat_prediction, evaluation_grader
from sleuth.seeds import derive_seed
from sleuth.types import Question, SamplingParams, Status, Trajectory

_TYPES = ("qtype", "type", "question_type")


@dataclass(frozen=True, slots=True)
class Score:
    """One answer's outcome.

    Attributes:
        em, f1, cover_em: from 0 to 1; None when the rollout failed, which says nothing of the policy. No answer is 0.
        searches: that reached the retriever.
        question: id of the question, which several samples share.
        evidence: by what ``found`` and ``recall`` are measured.
        found: of the evidence, in all passages that the rollout saw. ``recall``: at k, for the question as the query.
        hops, type: of the question, where the set has them.
        calls, tokens_in, tokens_out, seconds: see :class:`sleuth.evaluation.talk.Usage`.
    """

    id: str
    data_source: str
    status: Status
    em: float | None
    f1: float | None
    cover_em: float | None
    format_valid: bool
    searches: int
    question: str = ""
    evidence: Evidence | None = None
    found: float | None = None
    recall: float | None = None
    hops: str | None = None
    type: str | None = None
    calls: int | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    seconds: float | None = None

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
    """Grade trajectories, in their order.

    Raises:
        UserError: no grader has that name.
        RuntimeError: an exact match whose F1 isn't 1, which no grader may give.
    """
    grader = evaluation_grader(grader) if isinstance(grader, str) else grader
    return [score_one(trajectory, grader) for trajectory in trajectories]


def score_one(trajectory: Trajectory, grader: Grader) -> Score:
    """As :func:`score`."""
    t = trajectory
    answer = compat_prediction(t) if grader is SEARCH_R1_COMPAT else t.answer
    grade = None if t.failed else grader.grade(answer, t.golden_answers)
    if grade is not None and grade.em > grade.f1:
        raise RuntimeError(f"{t.id}: the grader {grader.name} gives EM {grade.em} and F1 {grade.f1}")
    documents = [document for span in t.spans for document in span.documents]
    usage = usage_of(t)
    return Score(
        id=t.id,
        data_source=t.data_source,
        status=t.status,
        em=grade.em if grade else None,
        f1=grade.f1 if grade else None,
        cover_em=grade.cover_em if grade else None,
        format_valid=t.format_valid,
        searches=t.counts.get("searches", 0),
        question=t.group,
        evidence=evidence_kind(t.supporting_titles, t.golden_answers),
        found=None if t.failed else recall(documents, t.supporting_titles, t.golden_answers),
        hops=_text(t.extra.get("hops")),
        type=next((_text(t.extra[name]) for name in _TYPES if t.extra.get(name) is not None), None),
        **{name: usage.get(name) for name in ("calls", "tokens_in", "tokens_out", "seconds")},
    )


def score_row(trajectory: Trajectory, row: Score) -> dict[str, Any]:
    """A JSON object of an answer: what was asked, searched and answered, and its scores.

    Of a sealed benchmark every text in it is encrypted.
    """
    written = {
        **asdict(row),
        "question_id": row.question,
        "question": trajectory.question,
        "golden_answers": trajectory.golden_answers,
        "prediction": trajectory.answer,
        "queries": usage_of(trajectory).get("queries", trajectory.queries),
        "titles": [[d.title for d in span.documents] for span in trajectory.spans if span.documents],
        **({"error": trajectory.error} if trajectory.error else {}),
    }
    kept = ("id", "question_id", "data_source", "status", "evidence", "hops", "type")
    return sealed_row(written, Question(trajectory.group, "", [], extra=trajectory.extra), keep=kept)


def score_rows(trajectories: Sequence[Trajectory], scores: Sequence[Score]) -> Iterator[dict[str, Any]]:
    """:func:`score_row` of each."""
    for trajectory, row in zip(trajectories, scores, strict=True):
        yield score_row(trajectory, row)


def _text(value: Any) -> str | None:
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else None
