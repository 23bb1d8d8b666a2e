"""What a comparison shows, in words; and where its runs are too few to show anything, that."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sleuth.evaluation.statistics import Interval
from sleuth.lab.analysis import Line
from sleuth.lab.collapses import CollapseTest, runs_needed
from sleuth.lab.results import Result, Status
from sleuth.lab.settings import BASELINE

ENOUGH = 5
"""Pairs of runs from which on an interval that leaves 0 out is called a difference. With n pairs of which nothing is
true, all n lie on the same side once in 2^(n - 1): of three pairs once in four."""


def verdict(lines: Sequence[Line], results: Sequence[Result], tuned: str) -> list[str]:
    """Sentences: for each regime what GRPO does, who collapses less, who ends higher; then plain GRPO at its tuned
    settings against all; then what was not run."""
    sentences: list[str] = []
    by_regime: dict[str, list[Line]] = {}
    for line in lines:
        by_regime.setdefault(line.regime, []).append(line)
    for regime, block in by_regime.items():
        grpo = next((line for line in block if line.arm == BASELINE), None)
        others = [line for line in block if line.arm != BASELINE and line.n]
        if grpo is None or not grpo.n:
            continue
        sentences.append(f"{regime}: {_of_grpo(grpo)}")
        if others:
            sentences += [f"{regime}: {text}" for text in (*_of_collapses(grpo, others), *_of_finals(others))]
    sentences += _of_tuned_grpo(lines, tuned)
    sentences += _of_gaps(lines, results)
    return sentences or ["No run has finished yet."]


def _of_grpo(grpo: Line) -> str:
    text = f"plain GRPO collapses in {grpo.collapsed} of {_runs(grpo.n)}"
    if grpo.onsets:
        text += f" (at batch {_numbers(grpo.onsets)})"
    assert grpo.final is not None
    return f"{text} and ends at {_level(grpo.final)}."


def _of_collapses(grpo: Line, others: Sequence[Line]) -> list[str]:
    tests: dict[str, CollapseTest] = {line.arm: line.fewer for line in others if line.fewer is not None}
    lines = {line.arm: line for line in others}
    tested = f", corrected for {len(tests)} arms" if len(tests) > 1 else ""
    if not grpo.collapsed:
        collapsing = [f"{line.arm} ({line.collapsed} of {line.n})" for line in others if line.collapsed]
        prevented = "GRPO doesn't collapse, so no cure can show that it prevents collapses"
        return [f"{prevented}; {_list(collapsing)} did collapse." if collapsing else f"{prevented}."]
    texts = []
    decided = {arm: test for arm, test in tests.items() if test.decided}
    if decided:
        shown = [
            f"{arm} ({lines[arm].collapsed} of {lines[arm].n}, p {t.p_corrected:.2g})" for arm, t in decided.items()
        ]
        texts.append(f"fewer collapses than plain GRPO (Fisher's exact test, one-sided{tested}): {_list(shown)}.")
    undecided = {arm: test for arm, test in tests.items() if not test.decided}
    hopeless = [arm for arm, test in undecided.items() if not test.decidable]
    if hopeless:
        first = undecided[hopeless[0]]
        n = lines[hopeless[0]].n
        by_chance = f"{first.smallest:.2g}" + (
            f", {min(first.smallest * first.tested, 1):.2g} corrected" if tested else ""
        )
        texts.append(
            f"the collapses can't decide about {_list(hopeless)}: with {_runs(n)} against {grpo.n}, of which GRPO lost "
            f"{grpo.collapsed}, even no collapse at all has a one-sided p of {by_chance}. At least "
            f"{runs_needed(first.tested)} seeds are needed, more if GRPO survives some; more seeds of plain GRPO alone "
            "help every arm."
        )
    rest = [f"{arm} ({lines[arm].collapsed} of {lines[arm].n})" for arm in undecided if arm not in hopeless]
    if rest:
        texts.append(f"not shown to collapse less often than plain GRPO: {_list(rest)}.")
    return texts


def _of_finals(others: Sequence[Line]) -> list[str]:
    pairs = {line.arm: line.final_against_grpo for line in others if line.final_against_grpo is not None}
    few = [arm for arm, difference in pairs.items() if difference.n < ENOUGH]
    told = {arm: difference for arm, difference in pairs.items() if difference.n >= ENOUGH}
    higher = [f"{arm} {_difference(d)}" for arm, d in told.items() if d.low > 0]
    lower = [f"{arm} {_difference(d)}" for arm, d in told.items() if d.high < 0]
    same = [f"{arm} {_difference(d)}" for arm, d in told.items() if d.low <= 0 <= d.high]
    texts = []
    if higher:
        texts.append(f"higher final reward than plain GRPO, by {_list(higher)}.")
    if lower:
        texts.append(f"lower final reward than plain GRPO, by {_list(lower)}.")
    if same:
        texts.append(f"final reward not told apart from plain GRPO's: {_list(same)}.")
    if few:
        texts.append(f"fewer than {ENOUGH} seeds, too few to tell final rewards apart: {_list(few)}.")
    return texts


def _of_tuned_grpo(lines: Sequence[Line], tuned: str) -> list[str]:
    grpo = next((line for line in lines if (line.regime, line.arm) == (tuned, BASELINE) and line.n), None)
    rivals = [line for line in lines if line.regime != tuned and line.arm != BASELINE and line.final is not None]
    if grpo is None or grpo.final is None or not rivals:
        return []
    best = max(rivals, key=lambda line: line.final.mean if line.final is not None else 0.0)
    assert best.final is not None
    against = best.final_against_tuned
    where = f"the best arm at another setting is {best.arm} at {best.regime} with {_level(best.final)}"
    start = f"Plain GRPO in its tuned regime ({tuned}) ends at {_level(grpo.final)}; {where}"
    if against is None or against.n < ENOUGH:
        return [f"{start}. They share too few seeds to be told apart."]
    if against.high < 0:
        return [f"{start}, {_difference(against)}: the plain learning rate beats every cure at the higher ones."]
    if against.low > 0:
        return [f"{start}, {_difference(against)}: it beats plain GRPO at its tuned learning rate."]
    return [f"{start}, {_difference(against)}: not told apart."]


def _of_gaps(lines: Iterable[Line], results: Sequence[Result]) -> list[str]:
    texts = []
    absent = [f"{line.arm} at {line.regime}" for line in lines if not line.n]
    if absent:
        texts.append(f"No finished run (n = 0): {_list(absent)}.")
    failed = [f"{r.arm} at {r.regime} seed {r.seed} ({r.error})" for r in results if r.status is Status.FAILED]
    if failed:
        texts.append(f"Failed: {_list(failed)}.")
    waiting = sum(r.status in (Status.TODO, Status.RUNNING) for r in results)
    if waiting:
        texts.append(f"{waiting} of {len(results)} runs are not finished; this is a table of the others.")
    return texts


def _level(interval: Interval) -> str:
    return f"{interval.mean:.3f} [{interval.low:.3f}, {interval.high:.3f}]"


def _difference(interval: Interval) -> str:
    return f"{interval.mean:+.3f} [{interval.low:+.3f}, {interval.high:+.3f}]"


def _runs(n: int) -> str:
    return f"{n} run" if n == 1 else f"{n} runs"


def _numbers(values: Sequence[int]) -> str:
    return _list([str(value) for value in values])


def _list(items: Sequence[str]) -> str:
    return ", ".join(items)
