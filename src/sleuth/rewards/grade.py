"""Grade any tool's predictions, rows of ``{"id", "prediction", "golden_answers"}``, or saved rollouts."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from sleuth.errors import UserError
from sleuth.jsonl import read_jsonl
from sleuth.rewards.answers import golden_answers
from sleuth.rewards.graders import GRADERS, Grade
from sleuth.rewards.search_r1_compat import EVALUATION_GRADERS, SEARCH_R1_COMPAT, search_r1_prediction
from sleuth.types import FAILED, Status

Outcome = Literal["answered", "unanswered", "truncated", "failed"]
"""What became of a question. Only an answered one can be right; a failed one is left out of all means."""

_OUTCOMES: dict[str, Outcome] = {
    "answered": "answered",
    "unanswered": "unanswered",
    Status.NO_ANSWER: "unanswered",
    Status.TRUNCATED: "truncated",
    "failed": "failed",
    **{status.value: "failed" for status in FAILED},
}
_ROLLOUT = "sleuth.rollout/"


@dataclass(slots=True)
class GradeSummary:
    """Counts and means over the rows seen so far.

    Attributes:
        outcomes: how many rows ended in which way; they add up to ``rows``.
        means: grader → score → mean over all rows but the failed ones, e.g. ``means["squad"]["em"]``; an unanswered or
            a truncated row is 0. Empty before the first such row.
    """

    rows: int = 0
    outcomes: dict[Outcome, int] = field(
        default_factory=lambda: {"answered": 0, "unanswered": 0, "truncated": 0, "failed": 0}
    )
    _sums: dict[str, dict[str, float]] = field(default_factory=dict, init=False)

    @property
    def scored(self) -> int:
        """Rows that the means are over."""
        return self.rows - self.outcomes["failed"]

    @property
    def means(self) -> dict[str, dict[str, float]]:
        return {
            grader: {name: total / self.scored for name, total in sums.items()} for grader, sums in self._sums.items()
        }

    def add(self, outcome: Outcome, grades: dict[str, Grade]) -> None:
        """Count one row; ``grades`` are not looked at when it failed."""
        self.rows += 1
        self.outcomes[outcome] += 1
        if outcome == "failed":
            return
        for grader, grade in grades.items():
            sums = self._sums.setdefault(grader, {})
            for name, value in asdict(grade).items():
                sums[name] = sums.get(name, 0.0) + value

    def as_dict(self) -> dict[str, Any]:
        """For JSON: ``{"rows", "answered", "unanswered", "truncated", "failed", "squad": {…}, …}``."""
        counts: dict[str, Any] = {"rows": self.rows}
        return counts | dict(self.outcomes.items()) | self.means


def grade_file(
    path: str | os.PathLike[str], summary: GradeSummary | None = None, graders: Sequence[str] = tuple(GRADERS)
) -> Iterator[dict[str, Any]]:
    """The rows of a JSONL file (``.gz`` and ``.zst`` too) with each grader's scores added, an object of ``em``, ``f1``
    and ``cover_em`` under its name, None where the row failed. Everything else in a row stays as it came; a number is
    graded as its text.

    A row may have a ``status`` (of Sleuth's rollouts, or one of :data:`Outcome`); without one it is answered where it
    has a prediction. Saved rollouts (``sleuth.rollout/1``) are read too: their answer is the prediction, and
    ``search-r1-compat`` reads their whole text, as it does.

    Args:
        summary: counts the rows as they are yielded.
        graders: names, of :data:`sleuth.rewards.search_r1_compat.EVALUATION_GRADERS`.

    Raises:
        UserError: names file, line and field: a field is missing, the prediction isn't text, a number or null, an
            unknown status, no golden answer, no row at all.
    """
    line = None
    for line, row in read_jsonl(path):
        where = f"{path}, line {line}"
        if str(row.get("schema", "")).startswith(_ROLLOUT):
            row = row | {"prediction": row.get("answer")}
        for name in ("id", "prediction", "golden_answers"):
            if name not in row:
                raise UserError(f'{where}: no "{name}"; a row needs "id", "prediction" and "golden_answers"')
        prediction = _text(row["prediction"], where)
        outcome = _outcome(row, prediction, where)
        golds = golden_answers(row["golden_answers"], f'{where}, "golden_answers"')
        given = prediction if outcome == "answered" else None
        grades = {name: _grade(name, row, given, golds, where) for name in graders}
        if summary is not None:
            summary.add(outcome, grades)
        yield row | {name: None if outcome == "failed" else asdict(grade) for name, grade in grades.items()}
    if line is None:
        raise UserError(f"{path}: no rows to grade")


def _grade(name: str, row: dict[str, Any], prediction: str | None, golds: list[str], where: str) -> Grade:
    if name == SEARCH_R1_COMPAT.name and isinstance(row.get("spans"), list):
        prediction = search_r1_prediction(row["spans"])
    grade = EVALUATION_GRADERS[name].grade(prediction, golds)
    if grade.em > min(grade.f1, grade.cover_em):
        raise RuntimeError(f"{where}: {name} gives EM {grade.em} above F1 {grade.f1} or cover-EM {grade.cover_em}")
    return grade


def _outcome(row: dict[str, Any], prediction: str | None, where: str) -> Outcome:
    status = row.get("status")
    if status is None:
        return "unanswered" if prediction is None else "answered"
    if status not in _OUTCOMES:
        raise UserError(
            f'{where}: "status" is {status!r}; write one of {", ".join(sorted(_OUTCOMES))}, or leave it out'
        )
    outcome = _OUTCOMES[status]
    if outcome == "answered" and prediction is None:
        raise UserError(f'{where}: "status" is answered, but there is no prediction')
    return outcome


def _text(prediction: Any, where: str) -> str | None:
    if prediction is None or isinstance(prediction, str):
        return prediction
    # NaN is how pandas writes a missing value: whether that means no answer is for the user to say.
    if isinstance(prediction, int | float) and not isinstance(prediction, bool) and math.isfinite(prediction):
        return str(prediction)
    raise UserError(f'{where}: "prediction" is {prediction!r}; give text, a number, or null for no answer')
