"""`sleuth published`: figures that others print, alone or beside an evaluation of one's own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sleuth.commands.terminal import console
from sleuth.data.benchmarks import find_benchmark
from sleuth.errors import UserError
from sleuth.evaluation.published import Figure, figures, flags, sources
from sleuth.evaluation.published.beside import Own, published_sheet
from sleuth.evaluation.sheet import Sheet

if TYPE_CHECKING:
    from sleuth.evaluation.tables import SystemScores

_METRICS = ("em", "f1", "accuracy")


def published(
    *,
    sets: Sequence[str],
    words: Sequence[str],
    source: Sequence[str],
    metric: str | None,
    beside: Path | None,
    flagged: bool,
    form: str,
) -> None:
    """Print tables.

    Args:
        sets: benchmarks that a row must have one of; the others' columns go.
        words: that a row's model and method must contain, in any capitals.
        source: names of sources to keep.
        metric: one of ``em``, ``f1``, ``accuracy``; None: each in a table, or beside an evaluation EM and F1.
        beside: an evaluation's folder, whose scores come first.
        flagged: only rows in which something doesn't add up.
        form: text, markdown, latex, html or json.

    Raises:
        UserError: an unknown name, nothing left, or a folder without an evaluation.
    """
    names = [find_benchmark(name).name for name in sets]
    for name in source:
        if name not in sources():
            raise UserError(f'no source "{name}"; there are {", ".join(sources())}')
    if metric is not None and metric not in _METRICS:
        raise UserError(f"--metric {metric} is not known; write {', '.join(_METRICS)}")
    kept = [row for row in figures() if _wanted(row, names, words, source, metric, flagged)]
    if not kept:
        raise UserError("no published figure is like that; leave out a condition")
    if form == "json":
        print(json.dumps([_as_json(row) for row in kept], ensure_ascii=False, indent=2))
        return
    tables = _tables(kept, names, metric, beside)
    out = console()
    for table in tables:
        if form == "text":
            table.print(out)
            out.print()
        else:
            print({"markdown": table.markdown, "latex": table.latex, "html": table.html}[form]())


def _tables(kept: Sequence[Figure], names: Sequence[str], metric: str | None, beside: Path | None) -> list[Sheet]:
    tables = []
    for one in _METRICS:
        owns = [] if beside is None or one == "accuracy" else own_scores(beside, one)
        rows = [row for row in kept if row.metric == one]
        if metric in (None, one) and rows and (beside is None or owns):
            tables.append(published_sheet(rows, owns, names))
    return tables


def beside_sheets(folder: Path, systems: Sequence[SystemScores]) -> list[Sheet]:
    """Published figures of the sets that ``systems`` have, below their own; a table of EM and one of F1.

    Raises:
        UserError: none of the sets is a benchmark that others print figures of.
    """
    tables = []
    for metric in ("em", "f1"):
        owns = own_of(folder, systems, metric)
        names = {name for own in owns for name in own.values}
        rows = [row for row in figures() if row.metric == metric and names & set(row.values)]
        if rows:
            tables.append(published_sheet(rows, owns))
    if not tables:
        raise UserError(f"{folder}: no figure is published of its sets; leave out --published")
    return tables


def own_scores(folder: Path, metric: str) -> list[Own]:
    """Every system of the evaluations in ``folder``.

    Raises:
        UserError: there is none, or none on a benchmark.
    """
    from sleuth.evaluation.tables import evaluation_folders, read_systems

    return own_of(folder, read_systems(evaluation_folders(folder)), metric)


def own_of(folder: Path, systems: Sequence[SystemScores], metric: str) -> list[Own]:
    """The same of systems that are read already."""
    from sleuth.data.benchmarks import is_benchmark
    from sleuth.evaluation.table import AVERAGE
    from sleuth.evaluation.tables import grader_label

    owns = []
    for system in systems:
        settings = system.settings
        lines = [line for line in system.lines if line.name != AVERAGE and is_benchmark(line.name)]
        corpus = settings.get("corpus")
        setup = {
            "grader": grader_label(system),
            "k": settings["k"],
            "retriever": settings["retriever"]["kind"],
            "corpus": f"SHA-256 {corpus[:12]}…" if isinstance(corpus, str) and corpus else None,
        }
        values = {find_benchmark(line.name).name: line.metrics[metric] for line in lines}
        owns.append(
            Own(
                label=f"{settings['model']}, {system.label}",
                metric=metric,
                values={name: value for name, value in values.items() if value is not None},
                questions={find_benchmark(line.name).name: line.n for line in lines},
                setup=setup,
            )
        )
    if not any(own.values for own in owns):
        raise UserError(f"{folder}: no scores on a benchmark that `sleuth data list` names; nothing to put beside them")
    return owns


def _wanted(
    row: Figure,
    sets: Sequence[str],
    words: Sequence[str],
    source: Sequence[str],
    metric: str | None,
    flagged: bool,
) -> bool:
    text = f"{row.model} {row.method}".casefold()
    return (
        (not sets or any(name in row.values for name in sets))
        and all(word.casefold() in text for word in words)
        and (not source or row.source.name in source)
        and metric in (None, row.metric)
        and (not flagged or bool(flags(row)))
    )


def _as_json(row: Figure) -> dict[str, Any]:
    return {
        "source": row.source.name,
        "title": row.source.title,
        "where": row.source.where,
        "setup": dict(row.source.setup),
        "note": row.source.note,
        "model": row.model,
        "method": row.method,
        "metric": row.metric,
        "values": dict(row.values),
        "averages": dict(row.averages),
        "recomputed": {name: row.recomputed(name) for name in row.averages},
        "flags": flags(row),
    }
