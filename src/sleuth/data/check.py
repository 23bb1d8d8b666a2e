"""What is wrong with a question set, before a run finds out."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from sleuth.data.forms import question_of
from sleuth.data.overlap import question_key
from sleuth.data.questions import Source
from sleuth.data.rows import read_rows
from sleuth.errors import UserError
from sleuth.rewards.graders import GRADERS
from sleuth.types import Question

_PYTHON_LIST = re.compile(r"\[\s*'.*'\s*,?\s*\]", re.DOTALL)


@dataclass(slots=True)
class CheckReport:
    """Findings in file order, each one line that names file, row and field.

    Attributes:
        rows: rows read, broken ones included.
        errors: what stops a run or makes a question unanswerable.
        warnings: what is probably not meant.
        by_source: questions for each ``data_source`` ("" where a row has none).
        by_hops: questions for each value of ``hops``, where rows have it.
    """

    source: str
    rows: int = 0
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    by_source: Counter[str] = field(default_factory=Counter)
    by_hops: Counter[str] = field(default_factory=Counter)

    @property
    def ok(self) -> bool:
        """True without errors; warnings don't count."""
        return not self.errors

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        counts = {"by_source": dict(self.by_source), "by_hops": dict(sorted(self.by_hops.items()))}
        findings = {"errors": self.errors, "warnings": self.warnings}
        return {"source": self.source, "rows": self.rows, "ok": self.ok, **counts, **findings}


def check_questions(source: Source) -> CheckReport:
    """Read a question set to its end, or to the first line that isn't JSON, and report all that is wrong with it.

    Errors: a row that can't be read (blank question, no golden answer, ill-typed field), an id seen before, a golden
    answer that one of the graders would not accept as its own. Warnings: a golden answer that normalises to nothing or
    looks like the text of a list, a question asked before.
    """
    report = CheckReport(str(source))
    ids: dict[str, str] = {}
    questions: dict[str, str] = {}
    try:
        for row in read_rows(source):
            report.rows += 1
            try:
                question = question_of(row)
            except UserError as error:
                report.errors.append(str(error))
                continue
            place = f'{row.place} (id "{question.id}")'
            report.by_source[question.data_source] += 1
            if "hops" in question.extra:
                report.by_hops[str(question.extra["hops"])] += 1
            key = question_key(question.question)
            same_id, same_question = ids.setdefault(question.id, row.place), questions.setdefault(key, row.place)
            if same_id != row.place:
                report.errors.append(f"{place}: id was used in {same_id}; ids must differ")
            if same_question not in (row.place, same_id):  # a row written twice is one finding
                report.warnings.append(f"{place}: the same question as in {same_question}")
            _check_answers(question, place, report)
    except UserError as error:
        report.errors.append(str(error))
    if not report.rows and not report.errors:
        report.errors.append(f"{source}: no rows")
    return report


def _check_answers(question: Question, place: str, report: CheckReport) -> None:
    for answer in question.golden_answers:
        for name, grader in GRADERS.items():
            if not grader.exact_match(answer, [answer]):
                report.errors.append(f'{place}: golden answer "{answer}" is never right by {name}; leave it out')
            elif not grader.normalize(answer):
                report.warnings.append(
                    f'{place}: golden answer "{answer}" normalises to nothing by {name}; only its exact text is right'
                )
        if _PYTHON_LIST.fullmatch(answer.strip()):
            report.warnings.append(f"{place}: golden answer {answer} looks like a list; give its items as a JSON list")
