"""What a comparison shows, in words; and where its runs are too few to show anything, that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sleuth.evaluation.statistics import Interval
from sleuth.lab.analysis import Line
from sleuth.lab.exact_tests import ExactTest, seeds_needed, seeds_needed_against
from sleuth.lab.results import Result, Status
from sleuth.lab.settings import BASELINE


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
            sentences += [f"{regime}: {text}" for text in (*_of_collapses(grpo, others), *_of_finals(grpo, others))]
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
    tests = {line.arm: line.fewer for line in others if line.fewer is not None}
    counts = {line.arm: f"{line.collapsed} of {line.n}" for line in others}
    if not grpo.collapsed:
        collapsing = [f"{line.arm} ({counts[line.arm]})" for line in others if line.collapsed]
        prevented = "GRPO doesn't collapse, so no cure can show that it prevents collapses"
        return [f"{prevented}; {_list(collapsing)} did collapse." if collapsing else f"{prevented}."]
    texts = []
    decided = [f"{arm} ({counts[arm]}, p {test.p_corrected:.2g})" for arm, test in tests.items() if test.decided]
    if decided:
        how = f"Fisher's exact test, one-sided{_corrected_for(tests)}"
        texts.append(f"fewer collapses than plain GRPO ({how}): {_list(decided)}.")
    hopeless = _hopeless(tests)
    if hopeless:
        first = tests[hopeless[0]]
        n = next(line.n for line in others if line.arm == hopeless[0])
        texts.append(
            f"collapses can't decide about {_arms(hopeless, tests)}: with {_runs(n)} against {grpo.n}, of which GRPO "
            f"lost {grpo.collapsed}, even no collapse at all has {_smallest(first, 'one')}. "
            f"At least {seeds_needed(first.tested)} seeds an arm are needed, if plain GRPO always collapses; "
            f"{_against_these(seeds_needed_against(grpo.n, first.tested, grpo.collapsed), grpo.n)}"
        )
    rest = [f"{arm} ({counts[arm]})" for arm, test in tests.items() if not test.decided and arm not in hopeless]
    if rest:
        texts.append(f"not shown to collapse less often than plain GRPO: {_list(rest)}.")
    return texts


def _of_finals(grpo: Line, others: Sequence[Line]) -> list[str]:
    lines = {line.arm: line for line in others if line.final is not None}
    tests = {arm: line.final_differs for arm, line in lines.items() if line.final_differs is not None}
    assert grpo.final is not None
    texts = []
    for word, above in (("higher", True), ("lower", False)):
        told = [
            f"{arm} {_level(lines[arm].final)} (p {test.p_corrected:.2g})"
            for arm, test in tests.items()
            if test.decided and (_mean(lines[arm]) > grpo.final.mean) is above
        ]
        if told:
            how = f"permutation test, two-sided{_corrected_for(tests)}"
            texts.append(f"{word} final reward than plain GRPO ({how}): {_list(told)}.")
    hopeless = _hopeless(tests)
    if hopeless:
        first = tests[hopeless[0]]
        n = next(line.n for line in others if line.arm == hopeless[0])
        texts.append(
            f"final rewards can't decide about {_arms(hopeless, tests)}: with {_runs(n)} against {grpo.n} even the "
            f"clearest difference has {_smallest(first, 'two')}. "
            f"At least {seeds_needed(first.tested, sides=2)} seeds an arm and of plain GRPO are needed; "
            f"{_against_these(seeds_needed_against(grpo.n, first.tested), grpo.n)}"
        )
    rest = [arm for arm, test in tests.items() if not test.decided and arm not in hopeless]
    if rest:
        shown = [f"{arm} {_level(lines[arm].final)}" for arm in rest]
        texts.append(f"final reward not told apart from plain GRPO's: {_list(shown)}.")
    return texts


def _of_tuned_grpo(lines: Sequence[Line], tuned: str) -> list[str]:
    grpo = next((line for line in lines if (line.regime, line.arm) == (tuned, BASELINE) and line.n), None)
    rivals = [line for line in lines if line.regime != tuned and line.arm != BASELINE and line.final is not None]
    if grpo is None or grpo.final is None or not rivals:
        return []
    best = max(rivals, key=_mean)
    test = best.final_differs_from_tuned
    start = (
        f"Plain GRPO in its tuned regime ({tuned}) ends at {_level(grpo.final)}; the best arm at another setting is "
        f"{best.arm} at {best.regime} with {_level(best.final)}"
    )
    if test is None or (not test.decided and not test.decidable):
        return [f"{start}. So few runs can't tell the two apart."]
    p = f"(permutation test, two-sided, corrected for {test.tested} comparisons: p {test.p_corrected:.2g})"
    if not test.decided:
        return [f"{start}: not told apart {p}."]
    if _mean(best) > grpo.final.mean:
        return [f"{start}: better than plain GRPO at its tuned learning rate {p}."]
    return [f"{start}: plain GRPO at its tuned learning rate beats every cure at the others {p}."]


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


def _hopeless(tests: Mapping[str, ExactTest]) -> list[str]:
    return [arm for arm, test in tests.items() if not test.decided and not test.decidable]


def _arms(some: Sequence[str], tests: Mapping[str, ExactTest]) -> str:
    return "any arm" if len(some) == len(tests) > 1 else _list(some)


def _smallest(test: ExactTest, sides: str) -> str:
    after = f", {min(test.smallest * test.tested, 1):.2g} corrected for {test.tested} arms" if test.tested > 1 else ""
    return f"a {sides}-sided p of {test.smallest:.2g}{after}"


def _against_these(needed: int | None, grpo_n: int) -> str:
    arm = "not even 50 would do" if needed is None else f"an arm needs {needed}"
    return f"against the {_runs(grpo_n)} of it here {arm}."


def _corrected_for(tests: Mapping[str, ExactTest]) -> str:
    return f", corrected for {len(tests)} arms" if len(tests) > 1 else ""


def _mean(line: Line) -> float:
    assert line.final is not None
    return line.final.mean


def _level(interval: Interval | None) -> str:
    assert interval is not None
    return f"{interval.mean:.3f}" + (f" [{interval.low:.3f}, {interval.high:.3f}]" if interval.n > 1 else "")


def _runs(n: int) -> str:
    return f"{n} run" if n == 1 else f"{n} runs"


def _numbers(values: Sequence[int]) -> str:
    return _list([str(value) for value in values])


def _list(items: Sequence[str]) -> str:
    return ", ".join(items)
