"""``python -m benchmarks.lab [SOURCE …]``: the lab's results and the quality of alarms, from its runs into the docs.

Without a source: from ``isdd.jsonl.zst``, which is kept here. With folders of comparisons or exported files: from that
file and them together, which then becomes the new file. Rewritten are the pictures in ``docs/lab/``, and in
``docs/lab.md`` and ``docs/diagnosis.md`` what stands between ``<!-- made by … -->`` and ``<!-- end -->``; the words
around it are a person's, and need a look afterwards. A line a run goes to the terminal.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from scipy.stats import binomtest

from sleuth.diagnostics.alarm_quality import Quality, alarm_quality, declined, onset_step
from sleuth.diagnostics.alarms import find_alarms
from sleuth.evaluation.statistics import Interval
from sleuth.lab.analysis import Line
from sleuth.lab.charts import draw
from sleuth.lab.comparison import Comparison
from sleuth.lab.export import export
from sleuth.lab.onset import collapse_onset
from sleuth.lab.results import Result
from sleuth.lab.settings import BASELINE
from sleuth.lab.sources import Records, read_sources

HERE = Path(__file__).parent
KEPT = HERE / "isdd.jsonl.zst"
DOCS = HERE.parents[1] / "docs"
MADE, END = "<!-- made by python -m benchmarks.lab -->", "<!-- end -->"


def tuned_on(result: Result) -> bool:
    """Whether the alarms' limits were chosen with a look at this run."""
    return result.seed <= 3 and (result.regime == "stress" or (result.regime == "stable" and result.arm == BASELINE))


# Results --------------------------------------------------------------------------------------------------------------


def results_section(comparison: Comparison) -> str:
    """A table a regime, the best final reward first, and the verdict."""
    pieces = []
    for regime, settings in comparison.regimes.items():
        lines = [line for line in comparison.lines if line.regime == regime]
        lines.sort(key=lambda line: (line.n == 0, -(line.final.mean if line.final else 0.0)))
        said = ", ".join(f"{key}={value}" for key, value in settings.items())
        pieces += [
            f"### `{regime}` ({said})",
            "",
            "| arm | n | collapsed | at batch | peak reward | final reward | p fewer (corrected) |",
            "|---|--:|--:|---|---|---|---|",
            *("| " + " | ".join(_row(line)) + " |" for line in lines),
            "",
        ]
    return "\n".join([*pieces, *(f"* {sentence}" for sentence in comparison.verdict)])


def _row(line: Line) -> list[str]:
    name = f"*{line.arm}*" if line.arm == BASELINE else line.arm
    if not line.n:
        return [name, "0", "–", "–", "–", "–", "–"]
    fewer = "–" if line.fewer is None else f"{line.fewer.p:.3f} ({line.fewer.p_corrected:.2f})"
    onsets = ", ".join(map(str, line.onsets)) or "–"
    return [name, str(line.n), str(line.collapsed), onsets, _interval(line.peak), _interval(line.final), fewer]


def _interval(interval: Interval | None) -> str:
    if interval is None:
        return "–"
    return f"{interval.mean:.3f}" + (f" [{interval.low:.3f}, {interval.high:.3f}]" if interval.n > 1 else "")


# Alarms ---------------------------------------------------------------------------------------------------------------


def alarms_section(comparison: Comparison, records: Records) -> str:
    """How good the alarms are, on the runs that their limits were chosen on and on all others."""
    done = [result for result in comparison.results if result.done and result.run in records]
    new = [result for result in done if not tuned_on(result)]
    sets = {"chosen on": [result for result in done if tuned_on(result)]}
    sets |= {regime: [r for r in new if r.regime == regime] for regime in comparison.regimes}
    sets["all new"] = new
    rows = [
        "| runs | rule | collapses warned before the onset | by 5 batches or more | median lead | alarms where nothing "
        "collapsed | in healthy runs |",
        "|---|---|---|---|--:|---|---|",
    ]
    for name, results in sets.items():
        qualities = alarm_quality([records[r.run] for r in results], collapse_onset) if results else []
        rows += [f"| {name} | " + " | ".join(_quality(quality)) + " |" for quality in qualities]
        if not results:
            rows.append(f"| {name} | n = 0 | | | | | |")
    return "\n".join(rows)


def _quality(q: Quality) -> list[str]:
    lead = "–" if q.median_lead is None else f"{q.median_lead:g}"
    warned, early = _share(q.warned, q.collapsed), _share(q.warned_by_5, q.collapsed)
    return [q.detector, warned, early, lead, _share(q.false_alarms, q.healthy), _share(q.false_on_steady, q.steady)]


def _share(count: int, of: int) -> str:
    """With Clopper and Pearson's 95 % interval."""
    if not of:
        return "–"
    interval = binomtest(count, of).proportion_ci(method="exact")
    return f"{count} of {of} [{interval.low:.0%}, {interval.high:.0%}]"


def run_lines(comparison: Comparison, records: Records) -> Iterable[str]:
    """Each run in a line: how it ended, and what its alarms said when."""
    for result in comparison.results:
        if not result.done or result.run not in records:
            yield f"{result.label}: {result.status.value}"
            continue
        steps = records[result.run]
        onset = onset_step(steps, collapse_onset)
        end = f"collapse at {onset}" if onset else "declined" if declined(steps) else "healthy"
        first: dict[str, int] = {}
        for alarm in find_alarms(steps):
            first.setdefault(alarm.rule, alarm.step)
        said = ", ".join(f"{rule} {step}" for rule, step in first.items())
        known = "" if tuned_on(result) else " (new)"
        yield f"{result.label}{known}: {end}, peak {result.peak:.2f}, final {result.final:.2f}; {said or 'no alarm'}"


def put(file: Path, section: str) -> None:
    """Put a section between the marks of a page."""
    text = file.read_text(encoding="utf-8")
    before, made, rest = text.partition(MADE)
    _, end, after = rest.partition(END)
    if not made or not end:
        raise SystemExit(f"{file}: the marks {MADE} and {END} are not in it")
    file.write_text(f"{before}{MADE}\n\n{section}\n\n{END}{after}", encoding="utf-8")


def main(sources: Sequence[str]) -> None:
    comparison, records = read_sources([KEPT, *map(Path, sources)])
    for line in run_lines(comparison, records):
        print(line)
    if sources:
        export(comparison, records, KEPT)
    draw(comparison, DOCS / "lab")
    put(DOCS / "lab.md", results_section(comparison))
    put(DOCS / "diagnosis.md", alarms_section(comparison, records))


if __name__ == "__main__":
    main(sys.argv[1:])
