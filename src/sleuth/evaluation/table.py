"""Scores by data source, for the terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sleuth.evaluation.score import Score
from sleuth.evaluation.statistics import Interval, bootstrap_interval, macro_average
from sleuth.types import Status

if TYPE_CHECKING:
    from rich.table import Table

AVERAGE = "average"
NOT_COMPARABLE = "Not comparable with published figures: training saw rows of a benchmark's development split."

METRICS = ("em", "f1", "cover_em")
_HEADER = ["set", "n", "EM", "F1", "cover-EM", "format", "searches", "no answer", "truncated", "failed"]


@dataclass(frozen=True, slots=True)
class SetScores:
    """The scores of one data source, or their average.

    Attributes:
        n: questions that count; ``failed`` ones are left out of everything else.
        metrics: ``em``, ``f1``, ``cover_em`` with 95 % intervals; None where no question counts.
        format: share of well-formed rollouts. ``searches``: mean of a rollout.
    """

    name: str
    n: int
    metrics: dict[str, Interval | None]
    format: float
    searches: float
    no_answer: int
    truncated: int
    failed: int

    def as_json(self) -> dict[str, Any]:
        """Plain numbers; an interval is ``{"mean", "low", "high"}``."""
        out: dict[str, Any] = {"n": self.n}
        for name, interval in self.metrics.items():
            out[name] = {"mean": interval.mean, "low": interval.low, "high": interval.high} if interval else None
        for name in ("format", "searches", "no_answer", "truncated", "failed"):
            out[name] = getattr(self, name)
        return out


def summarise(scores: Sequence[Score], *, seed: int = 0) -> list[SetScores]:
    """A line for each data source, in order of first appearance, and their macro average when there are several.

    In the average every data source weighs the same; its ``n`` and counts are sums.
    """
    by_source: dict[str, list[Score]] = {}
    for row in scores:
        by_source.setdefault(row.data_source or "questions", []).append(row)
    lines = [_line(name, rows, seed) for name, rows in by_source.items()]
    return [*lines, _average(lines, by_source, seed)] if len(lines) > 1 else lines


def markdown_table(lines: Sequence[SetScores], *, comparable: bool = True) -> str:
    """A Markdown table; says so when its figures can't be compared with published ones."""
    rows = [_HEADER, ["---", *["--:"] * (len(_HEADER) - 1)], *map(_cells, lines)]
    text = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)
    return f"{text}\n" if comparable else f"{text}\n\n{NOT_COMPARABLE}\n"


def rich_table(lines: Sequence[SetScores], *, title: str | None = None, comparable: bool = True) -> Table:
    """The same for the terminal."""
    from rich import box
    from rich.table import Table

    table = Table(title=title, caption=None if comparable else NOT_COMPARABLE, box=box.SIMPLE_HEAD, pad_edge=False)
    for column, name in enumerate(_HEADER):
        table.add_column(name, justify="left" if column == 0 else "right", no_wrap=True)
    for line in lines:
        table.add_row(*_cells(line), end_section=False, style="bold" if line.name == AVERAGE else None)
    return table


def _line(name: str, rows: Sequence[Score], seed: int) -> SetScores:
    counted = [row for row in rows if row.scored]
    metrics = {m: bootstrap_interval(_values(counted, m), seed=seed) if counted else None for m in METRICS}
    return SetScores(
        name=name,
        n=len(counted),
        metrics=metrics,
        format=_mean(row.format_valid for row in counted),
        searches=_mean(row.searches for row in counted),
        no_answer=sum(row.status is Status.NO_ANSWER for row in rows),
        truncated=sum(row.status is Status.TRUNCATED for row in rows),
        failed=len(rows) - len(counted),
    )


def _average(lines: Sequence[SetScores], by_source: dict[str, list[Score]], seed: int) -> SetScores:
    counted = {name: rows for name, all_rows in by_source.items() if (rows := [r for r in all_rows if r.scored])}
    with_rows = [line for line in lines if line.n]
    metrics = {
        m: macro_average({name: _values(rows, m) for name, rows in counted.items()}, seed=seed) if counted else None
        for m in METRICS
    }
    return SetScores(
        name=AVERAGE,
        n=sum(line.n for line in lines),
        metrics=metrics,
        format=_mean(line.format for line in with_rows),
        searches=_mean(line.searches for line in with_rows),
        no_answer=sum(line.no_answer for line in lines),
        truncated=sum(line.truncated for line in lines),
        failed=sum(line.failed for line in lines),
    )


def _values(rows: Iterable[Score], metric: str) -> list[float]:
    return [getattr(row, metric) for row in rows]


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed) if listed else 0.0


def _cells(line: SetScores) -> list[str]:
    return [
        line.name,
        f"{line.n:,}",
        *(_interval(line.metrics[m]) for m in METRICS),
        f"{line.format:.2f}",
        f"{line.searches:.2f}",
        str(line.no_answer),
        str(line.truncated),
        str(line.failed),
    ]


def _interval(interval: Interval | None) -> str:
    return f"{interval.mean:.3f} [{interval.low:.3f}, {interval.high:.3f}]" if interval else "–"
