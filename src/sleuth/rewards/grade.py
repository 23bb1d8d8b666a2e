"""Grade any tool's predictions: rows of ``{"id", "prediction", "golden_answers"}`` by both graders."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from sleuth.errors import UserError
from sleuth.jsonl import read_jsonl
from sleuth.rewards.answers import golden_answers
from sleuth.rewards.graders import GRADERS, Grade


@dataclass(slots=True)
class GradeSummary:
    """Means over the rows seen so far; a row without a prediction counts as wrong.

    Attributes:
        unanswered: rows whose prediction is null.
        means: grader → score → mean, e.g. ``means["squad"]["em"]``; empty before the first row.
    """

    rows: int = 0
    unanswered: int = 0
    _sums: dict[str, dict[str, float]] = field(default_factory=dict, init=False)

    @property
    def means(self) -> dict[str, dict[str, float]]:
        return {
            grader: {name: total / self.rows for name, total in sums.items()} for grader, sums in self._sums.items()
        }

    def add(self, prediction: str | None, grades: dict[str, Grade]) -> None:
        """Count one graded row."""
        self.rows += 1
        self.unanswered += prediction is None
        for grader, grade in grades.items():
            sums = self._sums.setdefault(grader, {})
            for name, value in asdict(grade).items():
                sums[name] = sums.get(name, 0.0) + value

    def as_dict(self) -> dict[str, Any]:
        """For JSON: ``{"rows", "unanswered", "squad": {…}, "robust": {…}}``."""
        return {"rows": self.rows, "unanswered": self.unanswered, **self.means}


def grade_file(path: str | os.PathLike[str], summary: GradeSummary | None = None) -> Iterator[dict[str, Any]]:
    """The rows of a JSONL file (``.gz`` and ``.zst`` too) with ``squad`` and ``robust`` added, each an object of
    ``em``, ``f1`` and ``cover_em``. Everything else in a row stays as it came; a number is graded as its text.

    Args:
        summary: counts the rows as they are yielded.

    Raises:
        UserError: names file, line and field: a field is missing, the prediction isn't text, a number or null, no
            golden answer, no row at all.
    """
    line = None
    for line, row in read_jsonl(path):
        where = f"{path}, line {line}"
        for name in ("id", "prediction", "golden_answers"):
            if name not in row:
                raise UserError(f'{where}: no "{name}"; a row needs "id", "prediction" and "golden_answers"')
        prediction = _text(row["prediction"], where)
        golds = golden_answers(row["golden_answers"], f'{where}, "golden_answers"')
        grades = {name: grader.grade(prediction, golds) for name, grader in GRADERS.items()}
        if summary is not None:
            summary.add(prediction, grades)
        yield row | {name: asdict(grade) for name, grade in grades.items()}
    if line is None:
        raise UserError(f"{path}: no rows to grade")


def _text(prediction: Any, where: str) -> str | None:
    if prediction is None or isinstance(prediction, str):
        return prediction
    # NaN is how pandas writes a missing value: whether that means no answer is for the user to say.
    if isinstance(prediction, int | float) and not isinstance(prediction, bool) and math.isfinite(prediction):
        return str(prediction)
    raise UserError(f'{where}: "prediction" is {prediction!r}; give text, a number, or null for no answer')
