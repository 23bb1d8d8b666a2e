"""The table of a comparison: a line for each arm in each regime, with intervals and tests.

Every figure is of whole runs: the unit that is counted, resampled and tested is a run, not a batch or a question.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from sleuth.evaluation.statistics import Interval, bootstrap_interval, paired_difference
from sleuth.lab.exact_tests import ExactTest, corrected, different_means, fewer_collapses
from sleuth.lab.results import Result, Status
from sleuth.lab.settings import BASELINE
from sleuth.lab.survival import Survival, survival


@dataclass(frozen=True, slots=True)
class Line:
    """An arm in a regime.

    Attributes:
        n: finished runs; all other figures are of these. ``planned``: runs that the comparison has.
        collapsed: runs that collapsed. ``onsets``: the batch of each, ascending.
        peak, final: mean over runs with its bootstrap interval; None without a finished run.
        survival: share of runs that have not collapsed, by batch.
        fewer: test of "fewer collapses than plain GRPO in this regime"; None for GRPO itself and where either has no
            run. ``final_differs``: test of "another final reward" between the same runs.
        final_against_grpo: final reward minus plain GRPO's in this regime, over the seeds that both have.
        final_against_tuned, final_differs_from_tuned: the same against plain GRPO in the tuned regime.
    """

    regime: str
    arm: str
    planned: int
    n: int
    failed: int
    collapsed: int
    onsets: Sequence[int] = ()
    peak: Interval | None = None
    final: Interval | None = None
    survival: Survival | None = None
    fewer: ExactTest | None = None
    final_differs: ExactTest | None = None
    final_against_grpo: Interval | None = None
    final_differs_from_tuned: ExactTest | None = None
    final_against_tuned: Interval | None = None

    def to_dict(self) -> dict[str, Any]:
        """As in ``comparison.json``."""
        return asdict(self)


def analyse(results: Iterable[Result], regimes: Iterable[str], arms: Sequence[str], tuned: str) -> list[Line]:
    """The lines of the table, regime by regime; an arm without a run has n = 0.

    Tests are corrected (Holm) for the arms that were tested in the same regime, and those against tuned GRPO for all.
    """
    by_line: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        by_line.setdefault((result.regime, result.arm), []).append(result)
    done = {key: [r for r in runs if r.done] for key, runs in by_line.items()}
    tuned_grpo = done.get((tuned, BASELINE), [])
    lines: list[Line] = []
    for regime in regimes:
        grpo = done.get((regime, BASELINE), [])
        block = []
        for arm in arms:
            runs = by_line.get((regime, arm), [])
            line = _line(regime, arm, runs, done.get((regime, arm), []))
            if arm != BASELINE:
                line = _with_tests(line, done.get((regime, arm), []), grpo)
            if (regime, arm) != (tuned, BASELINE):
                own = done.get((regime, arm), [])
                line = replace(
                    line,
                    final_against_tuned=paired_finals(tuned_grpo, own),
                    final_differs_from_tuned=_finals_differ(own, tuned_grpo),
                )
            block.append(line)
        for test in ("fewer", "final_differs"):
            block = _with_correction(block, test)
        lines += block
    return _with_correction(lines, "final_differs_from_tuned")


def paired_finals(baseline: Sequence[Result], runs: Sequence[Result]) -> Interval | None:
    """Final reward of ``runs`` minus that of ``baseline``, paired by seed, seeds resampled; None without a pair."""
    finals = {run.seed: run.final for run in baseline}
    pairs = [(finals[run.seed], run.final) for run in runs if run.seed in finals]
    known = [(before, after) for before, after in pairs if before is not None and after is not None]
    if not known:
        return None
    return paired_difference([before for before, _ in known], [after for _, after in known])


def _line(regime: str, arm: str, runs: Sequence[Result], done: Sequence[Result]) -> Line:
    onsets = sorted(run.onset for run in done if run.onset is not None)
    return Line(
        regime=regime,
        arm=arm,
        planned=len(runs),
        n=len(done),
        failed=sum(run.status is Status.FAILED for run in runs),
        collapsed=len(onsets),
        onsets=tuple(onsets),
        peak=_mean([run.peak for run in done]),
        final=_mean([run.final for run in done]),
        survival=survival([(run.watched, run.onset is not None) for run in done]) if done else None,
    )


def _mean(values: Sequence[float | None]) -> Interval | None:
    known = [value for value in values if value is not None]
    return bootstrap_interval(known) if known else None


def _with_tests(line: Line, runs: Sequence[Result], grpo: Sequence[Result]) -> Line:
    if not runs or not grpo:
        return line
    lost = sum(run.onset is not None for run in grpo)
    return replace(
        line,
        fewer=fewer_collapses(line.collapsed, line.n, lost, len(grpo)),
        final_differs=_finals_differ(runs, grpo),
        final_against_grpo=paired_finals(grpo, runs),
    )


def _finals_differ(runs: Sequence[Result], grpo: Sequence[Result]) -> ExactTest | None:
    ours, theirs = ([run.final for run in of if run.final is not None] for of in (runs, grpo))
    return different_means(ours, theirs) if ours and theirs else None


def _with_correction(lines: Sequence[Line], test: str) -> list[Line]:
    found = {str(i): getattr(line, test) for i, line in enumerate(lines) if getattr(line, test) is not None}
    after = corrected(found)
    changes: list[dict[str, Any]] = [{test: after.get(str(i))} for i in range(len(lines))]
    return [replace(line, **change) for line, change in zip(lines, changes, strict=True)]
