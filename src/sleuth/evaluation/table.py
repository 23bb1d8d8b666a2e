"""Scores by data source, with intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sleuth.evaluation.recall import Evidence
from sleuth.evaluation.score import Score
from sleuth.evaluation.sheet import Sheet
from sleuth.evaluation.statistics import Interval, bootstrap_interval, macro_average
from sleuth.types import Status

if TYPE_CHECKING:
    from rich.table import Table

AVERAGE = "average"
NOT_COMPARABLE = "Not comparable with published figures: training saw rows of a benchmark's development split."

METRICS = ("em", "f1", "cover_em")


@dataclass(frozen=True, slots=True)
class SetScores:
    """The scores of one data source, or their average.

    Attributes:
        n: questions that count; ``failed`` answers are left out of everything else.
        metrics: ``em``, ``f1``, ``cover_em`` with 95 % intervals; None where no question counts.
        format: share of well-formed rollouts. ``searches``, ``tokens_in``, ``tokens_out``, ``seconds``: means of an
            answer; None where it wasn't noted.
        recall, found: means by kind of evidence, see :class:`sleuth.evaluation.score.Score`.
        pending: answers that are still to come.
    """

    name: str
    n: int
    metrics: dict[str, Interval | None]
    format: float
    searches: float
    no_answer: int
    truncated: int
    failed: int
    recall: dict[str, float] = field(default_factory=dict)
    found: dict[str, float] = field(default_factory=dict)
    tokens_in: float | None = None
    tokens_out: float | None = None
    seconds: float | None = None
    pending: int = 0

    def as_json(self) -> dict[str, Any]:
        """Plain numbers; an interval is ``{"mean", "low", "high"}``."""
        out: dict[str, Any] = {"n": self.n}
        for name, interval in self.metrics.items():
            out[name] = {"mean": interval.mean, "low": interval.low, "high": interval.high} if interval else None
        for name in ("format", "searches", "no_answer", "truncated", "failed", "pending", "recall", "found"):
            out[name] = getattr(self, name)
        for name in ("tokens_in", "tokens_out", "seconds"):
            if getattr(self, name) is not None:
                out[name] = getattr(self, name)
        return out


def summarise(scores: Sequence[Score], *, seed: int = 0, expected: Mapping[str, int] | None = None) -> list[SetScores]:
    """A line for each data source, and their macro average when there are several.

    In the average every data source weighs the same; its ``n`` and counts are sums. Several samples of a question count
    as their mean, so that intervals are over questions.

    Args:
        expected: answers of each source that there are to be, for sources without any too; what isn't there is
            ``pending``. It decides the order of the lines; otherwise that is the order of first appearance.
    """
    by_source: dict[str, list[Score]] = {name: [] for name in expected or {}}
    for row in scores:
        by_source.setdefault(row.data_source or "questions", []).append(row)
    wanted = expected or {}
    lines = [_line(name, rows, seed, max(wanted.get(name, 0) - len(rows), 0)) for name, rows in by_source.items()]
    return [*lines, _average(lines, by_source, seed)] if len(lines) > 1 else lines


def scores_sheet(
    lines: Sequence[SetScores], *, title: str = "", comparable: bool = True, k: int | None = None
) -> Sheet:
    """All of ``lines``; a column that none of them has anything for is left out."""
    columns: list[tuple[str, Callable[[SetScores], str]]] = [
        ("set", lambda line: line.name),
        ("n", lambda line: f"{line.n:,}"),
        ("EM", lambda line: shown(line.metrics["em"])),
        ("F1", lambda line: shown(line.metrics["f1"])),
        ("cover-EM", lambda line: shown(line.metrics["cover_em"])),
    ]
    if any(line.recall for line in lines):
        columns.append((f"recall@{k}" if k else "recall@k", lambda line: evidence_cell(line.recall)))
    if any(line.found for line in lines):
        columns.append(("found", lambda line: evidence_cell(line.found)))
    columns += [("format", lambda line: f"{line.format:.2f}"), ("searches", lambda line: f"{line.searches:.2f}")]
    for name, header, digits in (("tokens_in", "read", 0), ("tokens_out", "written", 0), ("seconds", "seconds", 2)):
        if any(getattr(line, name) is not None for line in lines):
            columns.append((header, lambda line, name=name, digits=digits: _number(getattr(line, name), digits)))  # type: ignore[misc]
    columns += [
        ("no answer", lambda line: str(line.no_answer)),
        ("truncated", lambda line: str(line.truncated)),
        ("failed", lambda line: str(line.failed)),
    ]
    if any(line.pending for line in lines):
        columns.append(("to come", lambda line: str(line.pending)))
    return Sheet(
        title,
        [header for header, _ in columns],
        [[cell(line) for _, cell in columns] for line in lines],
        bold=frozenset(number for number, line in enumerate(lines) if line.name == AVERAGE),
        notes=() if comparable else (NOT_COMPARABLE,),
    )


def markdown_table(lines: Sequence[SetScores], *, comparable: bool = True) -> str:
    """A Markdown table; says so when its figures can't be compared with published ones."""
    return scores_sheet(lines, comparable=comparable).markdown()


def rich_table(lines: Sequence[SetScores], *, title: str | None = None, comparable: bool = True) -> Table:
    """The same for the terminal."""
    return scores_sheet(lines, title=title or "", comparable=comparable).rich()


def shown(interval: Interval | None) -> str:
    """A mean and its interval, as every table writes them."""
    return f"{interval.mean:.3f} [{interval.low:.3f}, {interval.high:.3f}]" if interval else "–"


def evidence_cell(means: Mapping[str, float]) -> str:
    """Recall with what it is measured by: ``0.54 titles``."""
    return ", ".join(f"{mean:.2f} {kind}" for kind, mean in means.items()) or "–"


def by_question(rows: Iterable[Score], metric: str) -> dict[str, float]:
    """The mean over the counted samples of each question."""
    values: dict[str, list[float]] = {}
    for row in rows:
        if row.scored:
            values.setdefault(row.question or row.id, []).append(getattr(row, metric))
    return {question: sum(listed) / len(listed) for question, listed in values.items()}


def _line(name: str, rows: Sequence[Score], seed: int, pending: int) -> SetScores:
    counted = [row for row in rows if row.scored]
    values = {m: list(by_question(counted, m).values()) for m in METRICS}
    return SetScores(
        name=name,
        n=len(values["em"]),
        metrics={m: bootstrap_interval(values[m], seed=seed) if counted else None for m in METRICS},
        format=_mean(row.format_valid for row in counted),
        searches=_mean(row.searches for row in counted),
        no_answer=sum(row.status is Status.NO_ANSWER for row in rows),
        truncated=sum(row.status is Status.TRUNCATED for row in rows),
        failed=len(rows) - len(counted),
        recall=_by_evidence(rows, "recall"),
        found=_by_evidence(counted, "found"),
        tokens_in=_known_mean(row.tokens_in for row in counted),
        tokens_out=_known_mean(row.tokens_out for row in counted),
        seconds=_known_mean(row.seconds for row in counted),
        pending=pending,
    )


def _average(lines: Sequence[SetScores], by_source: dict[str, list[Score]], seed: int) -> SetScores:
    counted = {name: rows for name, all_rows in by_source.items() if (rows := [r for r in all_rows if r.scored])}
    with_rows = [line for line in lines if line.n]
    metrics = {
        m: macro_average({name: list(by_question(rows, m).values()) for name, rows in counted.items()}, seed=seed)
        if counted
        else None
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
        tokens_in=_known_mean(line.tokens_in for line in with_rows),
        tokens_out=_known_mean(line.tokens_out for line in with_rows),
        seconds=_known_mean(line.seconds for line in with_rows),
        pending=sum(line.pending for line in lines),
    )


def _by_evidence(rows: Iterable[Score], name: str) -> dict[str, float]:
    values: dict[Evidence, list[float]] = {}
    for row in rows:
        if row.evidence is not None and getattr(row, name) is not None:
            values.setdefault(row.evidence, []).append(getattr(row, name))
    return {kind.value: _mean(values[kind]) for kind in Evidence if kind in values}


def _known_mean(values: Iterable[float | None]) -> float | None:
    listed = [value for value in values if value is not None]
    return _mean(listed) if listed else None


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed) if listed else 0.0


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"
