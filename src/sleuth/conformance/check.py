"""Cases put to functions, and what came of each."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from sleuth.conformance import adapters, own
from sleuth.conformance.adapters import Function, Refused, Shape
from sleuth.conformance.cases import Case, cases, evaluation_expected
from sleuth.errors import UserError

REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One case: what had to come out, and what did; ``passed`` is None where no function at hand can be asked."""

    case: Case
    passed: bool | None
    wanted: Any = None
    got: Any = None

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "id": self.case.id,
            "name": self.case.name,
            "seam": self.case.seam,
            "passed": self.passed,
            "wanted": _plain(self.wanted),
            "got": _plain(self.got),
        }


@dataclass(frozen=True, slots=True)
class Functions:
    """Another tool's functions; what is None isn't asked.

    Attributes:
        grader: of the shape ``shape``, see :mod:`sleuth.conformance.adapters`.
        cover_em: as the grader, for containment.
        extractor: text of a rollout → answer or None.
        parser: text of a turn → (action, content).
        evaluator: rows and batch size → rows of id and em.
        rules: whose exact match is expected: ``squad`` or ``robust``.
        with_prompt: a grader of texts gets the prompt too.
    """

    grader: Function | None = None
    shape: Shape = "answer"
    cover_em: Function | None = None
    extractor: Function | None = None
    parser: Function | None = None
    evaluator: Function | None = None
    rules: str = "squad"
    with_prompt: bool = False


def check(functions: Functions, chosen: Sequence[Case] | None = None) -> list[Verdict]:
    """Every case that the functions can be asked about, and the others without a verdict."""
    return [_foreign(case, functions) for case in (cases() if chosen is None else chosen)]


def check_own(chosen: Sequence[Case] | None = None) -> list[Verdict]:
    """Sleuth itself. Stopping and resuming a training run takes minutes and is left to its tests."""
    return [_own(case) for case in (cases() if chosen is None else chosen)]


# ---------------------------------------------------------------------------------------------------------------------
# Another tool


def _foreign(case: Case, functions: Functions) -> Verdict:
    f = functions
    if case.seam == "em" and f.grader is not None:
        grader = f.grader
        return _compared(
            case, case.expect[f.rules], lambda: adapters.graded(grader, f.shape, case, with_prompt=f.with_prompt)
        )
    if case.seam == "cover_em" and f.cover_em is not None:
        cover = f.cover_em
        shape = adapters.shape_of(cover)
        return _compared(
            case, case.expect[f.rules], lambda: adapters.graded(cover, shape, case, with_prompt=f.with_prompt)
        )
    if case.seam == "transcript":
        return _foreign_transcript(case, f)
    if case.seam == "turn" and f.parser is not None:
        parser = f.parser
        return _compared(case, (case.expect["action"], case.expect["content"]), lambda: adapters.parsed(parser, case))
    if case.seam == "evaluator" and f.evaluator is not None:
        return _evaluated(case, f.evaluator)
    return Verdict(case, None)


def _foreign_transcript(case: Case, f: Functions) -> Verdict:
    """The score and the extracted answer, whichever can be asked for; both must be right."""
    verdicts = []
    if f.grader is not None and f.shape != "answer":
        grader = f.grader
        verdicts.append(
            _compared(
                case, case.expect["em"], lambda: adapters.graded(grader, f.shape, case, with_prompt=f.with_prompt)
            )
        )
    if f.extractor is not None:
        extractor = f.extractor
        verdicts.append(_compared(case, case.expect["answer"], lambda: adapters.extracted(extractor, case)))
    wrong = [verdict for verdict in verdicts if not verdict.passed]
    return (wrong or verdicts or [Verdict(case, None)])[0]


def _compared(case: Case, wanted: Any, ask: Callable[[], Any]) -> Verdict:
    try:
        got = ask()
    except Refused as refusal:
        return Verdict(case, wanted == REFUSED, wanted, str(refusal))
    return Verdict(case, wanted != REFUSED and _same(wanted, got), wanted, got)


def _evaluated(case: Case, evaluator: Function) -> Verdict:
    wanted = {"scored": case.input["rows"], **({"same": True} if case.expect.get("same") else {})}
    try:
        results = adapters.evaluated(evaluator, case)
    except Refused as refusal:
        return Verdict(case, False, wanted, str(refusal))
    expected = evaluation_expected(case.input["rows"])
    got: dict[str, Any] = {"scored": min(len(result) for result in results)}
    if "same" in wanted:
        got["same"] = all(result == results[0] for result in results)
    if got == wanted and results[0] != expected:
        got["right"] = sum(results[0].get(name) == value for name, value in expected.items())
    return Verdict(case, got == wanted, wanted, got)


def _same(wanted: Any, got: Any) -> bool:
    if isinstance(wanted, bool) or wanted is None or isinstance(wanted, str | tuple):
        return got == wanted
    return isinstance(got, int | float) and math.isclose(got, wanted, abs_tol=1e-9)


# ---------------------------------------------------------------------------------------------------------------------
# Sleuth itself


def _own(case: Case) -> Verdict:
    if case.seam in ("em", "cover_em"):
        ask = {"em": own.em, "cover_em": own.cover_em}[case.seam]
        got = {grader: _or_refused(partial(ask, case, grader)) for grader in case.expect}
        return Verdict(case, all(_same_or_refused(case.expect[g], got[g]) for g in got), case.expect, got)
    if case.seam == "load":
        said = own.load(case)
        return Verdict(case, said == case.expect, case.expect, said)
    if case.seam == "turn":
        wanted = (case.expect["action"], case.expect["content"])
        found = own.turn(case)
        return Verdict(case, found == wanted, wanted, found)
    if case.seam == "transcript":
        return _own_transcript(case)
    if case.seam == "evaluator":
        return _evaluated(case, own.evaluator)
    return Verdict(case, None)


def _own_transcript(case: Case) -> Verdict:
    """With an engine that stops at once and with one that stops late: both must do."""
    wanted = {name: value for name, value in case.expect.items() if name != "absent"}
    got: dict[str, Any] = {}
    for overshoot in (False, True):
        result = own.transcript(case, overshoot=overshoot)
        got = {name: result[name] for name in wanted}
        if "counts" in wanted:
            # What comes behind an action is only there to be counted where the engine stopped late.
            counted = {k: v for k, v in wanted["counts"].items() if overshoot or k != "trailing_content"}
            if any(result["counts"].get(k) != v for k, v in counted.items()):
                return Verdict(case, False, wanted, got)
            got["counts"] = wanted["counts"]
        if case.expect.get("absent", "\0") in result["text"]:
            return Verdict(case, False, f"no {case.expect['absent']!r} in the context", result["text"])
        if got != wanted:
            return Verdict(case, False, wanted, got)
    return Verdict(case, True, wanted, got)


def _or_refused(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except UserError:
        return REFUSED


def _same_or_refused(wanted: Any, got: Any) -> bool:
    return got == wanted if REFUSED in (wanted, got) else _same(wanted, got)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if isinstance(value, str | int | float | bool) or value is None else repr(value)


@dataclass(slots=True)
class Tally:
    """How many cases of a set passed; ``failed`` lists those that didn't."""

    passed: int = 0
    asked: int = 0
    failed: list[Verdict] = field(default_factory=list)


def tallies(verdicts: Sequence[Verdict]) -> dict[str, Tally]:
    """By set, only those that were asked about."""
    found: dict[str, Tally] = {}
    for verdict in verdicts:
        if verdict.passed is None:
            continue
        tally = found.setdefault(verdict.case.set, Tally())
        tally.asked += 1
        tally.passed += verdict.passed
        if not verdict.passed:
            tally.failed.append(verdict)
    return found
