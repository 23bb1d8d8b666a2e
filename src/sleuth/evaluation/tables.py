"""All tables of an evaluation, or of several side by side, from their folders."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sleuth.errors import UserError
from sleuth.evaluation.folder import SETTINGS, EvaluationFolder
from sleuth.evaluation.score import Score
from sleuth.evaluation.sheet import Sheet
from sleuth.evaluation.table import AVERAGE, METRICS, SetScores, evidence_cell, scores_sheet, shown, summarise
from sleuth.jsonl import write_atomically
from sleuth.rewards.graders import GRADERS
from sleuth.rewards.search_r1_compat import evaluation_grader

_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem;color:#1b1f24;background:#fff}"
    "table{border-collapse:collapse;margin:.5rem 0 1rem}th,td{padding:.25rem .7rem;border-bottom:1px solid #d5d9de;"
    "text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}th:first-child,td:first-child"
    "{text-align:left}tr.total{font-weight:600}section{overflow-x:auto}"
    "@media(prefers-color-scheme:dark){body{color:#e6e8eb;background:#14171a}th,td{border-color:#343a40}}"
)


@dataclass(frozen=True, slots=True)
class SystemScores:
    """One system's part of a table.

    Attributes:
        label: its name, behind the model's where several models stand side by side.
        settings: the folder's; their ``grader`` is the one of these scores.
        lines: a data source each, and the average of several.
        by_grader: the last of such lines by every grader that was asked for.
    """

    label: str
    name: str
    folder: EvaluationFolder
    settings: dict[str, Any]
    scores: list[Score]
    lines: list[SetScores]
    by_grader: dict[str, SetScores]


def evaluation_folders(path: Path) -> list[EvaluationFolder]:
    """The evaluation in ``path``, or those in its folders.

    Raises:
        UserError: there is none.
    """
    if (path / SETTINGS).is_file():
        return [EvaluationFolder(path)]
    inside = sorted(p.parent for p in path.glob(f"*/{SETTINGS}"))
    if not inside:
        if not path.is_dir():
            raise UserError(f"{path}: no such folder; name one that `sleuth eval` wrote")
        raise UserError(
            f"{path}: no evaluation was begun in it or in its folders (no {SETTINGS}), so there is nothing to show; "
            "name a folder that `sleuth eval` wrote"
        )
    return [EvaluationFolder(p) for p in inside]


def read_systems(folders: Sequence[EvaluationFolder], seed: int = 0, grader: str | None = None) -> list[SystemScores]:
    """Every system of every folder, whatever part of it is there yet.

    Args:
        grader: score by this one; default: each folder's own.
    """
    found = []
    for folder in folders:
        settings = folder.settings
        main = settings["grader"] = grader or settings["grader"]
        for name, system in settings["systems"].items():
            by_grader = folder.scores_by(name, list(dict.fromkeys([main, *GRADERS])))
            expected = {source: n * system["samples"] for source, n in settings["sets"].items()}
            label = name if len(folders) == 1 else f"{folder.path.name} {name}"
            lines = {g: summarise(scores, seed=seed, expected=expected) for g, scores in by_grader.items()}
            totals = {g: of[-1] for g, of in lines.items()}
            found.append(SystemScores(label, name, folder, settings, by_grader[main], lines[main], totals))
    return found


def matrix_sheet(systems: Sequence[SystemScores], metric: str = "em") -> Sheet:
    """Systems × sets. A cell says the mean, its interval and, where that isn't the whole set, the n; n = 0: not run."""
    names = list(dict.fromkeys(line.name for system in systems for line in system.lines if line.name != AVERAGE))
    several = len(names) > 1
    rows = [["n", *(_sizes(systems, name) for name in names), *([""] if several else [])]]
    k = systems[0].settings["k"] if systems else None
    rows.append([f"recall@{k}", *(_recall(systems, name) for name in names), *([""] if several else [])])
    for system in systems:
        lines = {line.name: line for line in system.lines}
        cells = [_cell(lines.get(name), metric) for name in names]
        rows.append([system.label, *cells, *([_average_cell(lines.get(AVERAGE), metric)] if several else [])])
    title = {"em": "EM", "f1": "F1", "cover_em": "cover-EM"}[metric]
    graders = list(dict.fromkeys(grader_label(system) for system in systems))
    return Sheet(
        f"{title}; grader {' / '.join(graders)}; 95 % bootstrap intervals",
        ["", *names, *([AVERAGE] if several else [])],
        rows,
        notes=(f"recall@{k}: of the evidence in the passages for the question itself, by what stands behind it.",),
    )


def outcome_sheet(systems: Sequence[SystemScores]) -> Sheet:
    """What became of all answers of each system, and what they took."""
    rows = []
    for system in systems:
        total = system.lines[-1]
        rows.append(
            [
                system.label,
                f"{total.n:,}",
                f"{total.searches:.2f}",
                *(_whole(getattr(total, name)) for name in ("tokens_in", "tokens_out")),
                "–" if total.seconds is None else f"{total.seconds:.2f}",
                *(str(getattr(total, name)) for name in ("no_answer", "truncated", "failed", "pending")),
                _cost(system),
            ]
        )
    header = ["", "n", "searches", "read", "written", "seconds", "no answer", "truncated", "failed", "to come", "cost"]
    note = "Searches, tokens read and written and seconds are means of an answer; every set weighs the same."
    return Sheet("What became of the answers", header, rows, notes=(note,))


def graders_sheet(systems: Sequence[SystemScores]) -> Sheet | None:
    """The same answers by every grader, over all sets; None before the first answer."""
    rows = [
        [system.label, evaluation_grader(name).label, f"{line.n:,}", *(shown(line.metrics[m]) for m in METRICS)]
        for system in systems
        for name, line in system.by_grader.items()
        if line.n
    ]
    note = "The same answers each time; every set weighs the same."
    header = ["system", "grader", "n", "EM", "F1", "cover-EM"]
    return Sheet("By grader", header, rows, left=2, notes=(note,)) if rows else None


def breakdown_sheet(systems: Sequence[SystemScores], by: str) -> Sheet | None:
    """EM by ``hops`` or ``type`` of the question; None where no question has it."""
    rows = []
    for system in systems:
        groups: dict[tuple[str, str], list[Score]] = {}
        for score in system.scores:
            if getattr(score, by):
                groups.setdefault((score.data_source, getattr(score, by)), []).append(score)
        for (source, value), scores in sorted(groups.items()):
            line = summarise(scores)[0]
            rows.append(
                [source, value, system.label, f"{line.n:,}", shown(line.metrics["em"]), shown(line.metrics["f1"])]
            )
    rows.sort(key=lambda row: row[:2])
    return Sheet(f"By {by}", ["set", by, "system", "n", "EM", "F1"], rows, left=3) if rows else None


def sheets(systems: Sequence[SystemScores], metric: str = "em") -> list[Sheet]:
    """All tables: where there are several systems the matrix first, then each system, then by hops and type."""
    made = [matrix_sheet(systems, metric), outcome_sheet(systems)] if len(systems) > 1 else []
    for system in systems:
        comparable = system.settings.get("comparable", True)
        one = scores_sheet(system.lines, title=_title(system), comparable=comparable, k=system.settings["k"])
        made.append(replace(one, notes=(*one.notes, *system.settings.get("notes", []))))
    more = [graders_sheet(systems), *(breakdown_sheet(systems, by) for by in ("hops", "type"))]
    return [*made, *(sheet for sheet in more if sheet is not None)]


def write_tables(
    folder: Path, systems: Sequence[SystemScores], metric: str = "em", more: Sequence[Sheet] = ()
) -> list[Sheet]:
    """``table.md``, ``table.tex``, ``table.html`` and ``summary.json`` in ``folder``; returns the tables.

    Args:
        more: further tables, behind all others.
    """
    made = [*sheets(systems, metric), *more]
    _write(folder / "table.md", "\n".join(sheet.markdown() for sheet in made))
    _write(folder / "table.tex", "\n".join(sheet.latex() for sheet in made))
    _write(folder / "table.html", _page(folder, systems, made))
    summary = {
        "schema": "sleuth.evaluation-summary/1",
        "systems": {
            system.label: {
                "model": system.settings["model"],
                "grader": system.settings["grader"],
                "comparable": system.settings.get("comparable", True),
                **system.settings["systems"][system.name],
                "sets": {line.name: line.as_json() for line in system.lines},
                "by_grader": {
                    name: {metric: line.as_json()[metric] for metric in METRICS}
                    for name, line in system.by_grader.items()
                },
            }
            for system in systems
        },
    }
    _write(folder / "summary.json", json.dumps(summary, indent=2, ensure_ascii=False) + "\n")
    return made


def write_viewers(systems: Sequence[SystemScores]) -> None:
    """A page with every rollout of each system, beside its answers; none where a sealed benchmark is among them."""
    from sleuth.report.rollouts import Options
    from sleuth.report.sources import find_source
    from sleuth.report.write import write_report

    for system in systems:
        journal = system.folder.journal(system.name)
        if system.scores and journal.packed.exists() and not system.settings.get("sealed"):
            write_report(find_source(journal.packed), _viewer(system), Options())


def _page(folder: Path, systems: Sequence[SystemScores], made: Sequence[Sheet]) -> str:
    links = "".join(
        f'<li><a href="{html.escape(_viewer(s).relative_to(folder).as_posix())}">{html.escape(s.label)}</a></li>'
        for s in systems
        if _viewer(s).exists()
    )
    answers = f"<section><h2>Every answer, turn by turn</h2><ul>{links}</ul></section>" if links else ""
    body = "".join(sheet.html() for sheet in made)
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><style>{_STYLE}</style>'
    title = html.escape(folder.resolve().name)
    return (
        f"<!doctype html><html lang=en><head>{head}<title>{title}</title></head><body>{body}{answers}</body></html>\n"
    )


def _viewer(system: SystemScores) -> Path:
    return system.folder.path / f"rollouts-{system.name}.html"


def _title(system: SystemScores) -> str:
    one = system.settings["systems"][system.name]
    way = "greedy" if one["temperature"] == 0 else f"sampled at T = {one['temperature']:g}, seed {one['seed']}"
    samples = f", mean of {one['samples']} answers" if one["samples"] > 1 else ""
    return f"{system.label}: {way}{samples}; grader {grader_label(system)}; 95 % bootstrap intervals"


def grader_label(system: SystemScores) -> str:
    """The grader of its scores, with what has to stand beside the name."""
    return evaluation_grader(system.settings["grader"]).label


def _sizes(systems: Sequence[SystemScores], name: str) -> str:
    sizes = {system.settings["sets"].get(name) for system in systems} - {None}
    return "/".join(f"{n:,}" for n in sorted(sizes))


def _recall(systems: Sequence[SystemScores], name: str) -> str:
    for system in systems:
        for line in system.lines:
            if line.name == name and line.recall:
                return evidence_cell(line.recall)
    return "–"


def _cell(line: SetScores | None, metric: str) -> str:
    if line is None or line.n == 0:
        return "n = 0"
    return shown(line.metrics[metric]) + (f" (n = {line.n})" if line.pending or line.failed else "")


def _average_cell(line: SetScores | None, metric: str) -> str:
    # An average over a part of the sets would be compared with others over all of them.
    return "–" if line is None or line.pending else shown(line.metrics[metric])


def _whole(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def _cost(system: SystemScores) -> str:
    """By the prices in the settings, of all answers; – where none are set."""
    prices = system.settings.get("prices")
    if not prices or any(s.tokens_in is None or s.tokens_out is None for s in system.scores):
        return "–"
    read, written = sum(s.tokens_in or 0 for s in system.scores), sum(s.tokens_out or 0 for s in system.scores)
    return f"{(read * (prices['in'] or 0) + written * (prices['out'] or 0)) / 1e6:,.2f}"


def _write(file: Path, text: str) -> None:
    with write_atomically(file) as out:
        out.write(text.encode("utf-8", errors="replace"))
