"""The table of a comparison, for the terminal and for Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sleuth.evaluation.statistics import Interval
from sleuth.lab.analysis import Line
from sleuth.lab.comparison import Comparison
from sleuth.lab.exact_tests import ExactTest

if TYPE_CHECKING:
    from rich.table import Table

HEADER = (
    "regime",
    "arm",
    "n",
    "collapsed",
    "p fewer",
    "peak",
    "final",
    "final - GRPO",
    "p final",
    "final - tuned GRPO",
)

LEGEND = (
    "n: finished runs. collapsed: of these, and the batch by which half of the runs have. p fewer: one-sided "
    "Fisher test of fewer collapses than plain GRPO in the same regime. peak, final: 10-batch mean rewards, mean over "
    "runs with 95 % bootstrap intervals; differences are paired by seed. p final: two-sided permutation test of the "
    "final reward against plain GRPO in the same regime. Both are Holm-corrected for the arms of the regime."
)


def rich_table(comparison: Comparison) -> Table:
    """For a terminal."""
    from rich.table import Column, Table

    table = Table(*(Column(name, no_wrap=True) for name in HEADER), box=None, pad_edge=False)
    previous = None
    for line in comparison.lines:
        if previous is not None and previous != line.regime:
            table.add_row()
        table.add_row(*row(line))
        previous = line.regime
    return table


def markdown(comparison: Comparison) -> str:
    """Verdict, table and what the columns mean."""
    regimes = [
        f"* `{name}`: {', '.join(f'{key}={value}' for key, value in settings.items()) or 'the recipe as it is'}"
        for name, settings in comparison.regimes.items()
        if any(line.regime == name for line in comparison.lines)
    ]
    arms = [
        f"* `{name}`: `{arm['objective']}`{_settings(arm['settings'])}"
        for name, arm in comparison.arms.items()
        if arm["settings"] or arm["objective"] != name
    ]
    return "\n".join(
        [
            f"# {comparison.recipe}: objectives compared",
            "",
            *(f"* {sentence}" for sentence in comparison.verdict),
            "",
            "| " + " | ".join(HEADER) + " |",
            "|---|---|" + "--:|" * 3 + "---|" * 5,
            *("| " + " | ".join(row(line)) + " |" for line in comparison.lines),
            "",
            LEGEND,
            "",
            "Regimes:",
            "",
            *regimes,
            *(["", "Arms:", "", *arms] if arms else []),
            "",
        ]
    )


def row(line: Line) -> list[str]:
    """The cells of a line; a dash where there is nothing to say."""
    n = f"{line.n}" + (f" of {line.planned}" if line.planned > line.n else "")
    return [
        line.regime,
        line.arm,
        n,
        _collapsed(line),
        _p(line.fewer),
        _level(line.peak),
        _level(line.final),
        _difference(line.final_against_grpo),
        _p(line.final_differs),
        _difference(line.final_against_tuned),
    ]


def _settings(settings: dict) -> str:
    return " with " + ", ".join(f"{key}={value}" for key, value in settings.items()) if settings else ""


def _collapsed(line: Line) -> str:
    if line.survival is None:
        return "–"
    return f"{line.collapsed}" + (f" (by {line.survival.median})" if line.survival.median is not None else "")


def _p(test: ExactTest | None) -> str:
    return "–" if test is None else f"{test.p_corrected:.2g}"


def _level(interval: Interval | None) -> str:
    return "–" if interval is None else f"{interval.mean:.2f} {_bounds(interval, '')}".rstrip()


def _difference(interval: Interval | None) -> str:
    return "–" if interval is None else f"{interval.mean:+.2f} {_bounds(interval, '+')}".rstrip()


def _bounds(interval: Interval, sign: str) -> str:
    """Of one run there is no interval."""
    return f"[{interval.low:{sign}.2f}, {interval.high:{sign}.2f}]" if interval.n > 1 else ""
