"""`sleuth data list`, `sleuth data get` and `sleuth data overlap`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from sleuth.commands.terminal import console
from sleuth.data.benchmarks import BENCHMARKS, find_benchmark, is_benchmark, load_benchmark
from sleuth.data.benchmarks.load import fetch_benchmark
from sleuth.data.benchmarks.sealed import CANARY
from sleuth.data.benchmarks.store import Store
from sleuth.errors import UserError
from sleuth.types import Question

_SHOWN = 20


def list_benchmarks(*, as_json: bool) -> None:
    """Print a line for each benchmark: what it is, and whether it is cached."""
    store = Store()
    known = {name: store.provenance(name) for name in BENCHMARKS}
    if as_json:
        rows = [
            {
                "name": b.name,
                "title": b.title,
                "split": b.split,
                "questions": b.count,
                "licence": b.licence,
                "paper": b.paper,
                "source": _place(b.name),
                "gated": b.gated,
                "sealed": b.sealed,
                "note": b.note,
                "cached": known[b.name],
            }
            for b in BENCHMARKS.values()
        ]
        print(json.dumps(rows, ensure_ascii=False, indent=2))
        return
    table = Table(
        "name", "benchmark", "split", "questions", "licence", "published at", "cached", box=None, pad_edge=False
    )
    table.columns[3].justify = "right"
    for b in BENCHMARKS.values():
        table.add_row(b.name, b.title, b.split, f"{b.count:,}", b.licence, _place(b.name), _cached(known[b.name]))
    out = console()
    out.print(table)
    out.print(f"\nsleuth data get NAME [--from FOLDER] fetches one into {store.folder}")


def get_benchmarks(
    names: Sequence[str], *, folder: Path | None, sha256: str | None, force: bool, accept_change: bool
) -> None:
    """Fetch benchmarks into the cache; one that is there already is left alone.

    Args:
        folder: take them from there instead of from where they are published.
        sha256: refuse any other content.
        force: fetch again what is there.
        accept_change: as ``force``, and remember another hash than the first time's.

    Raises:
        UserError: unknown, not to be had, or not the questions that were asked for.
    """
    store, out = Store(), console()
    if folder is not None and not folder.expanduser().exists():
        raise UserError(f"--from {folder}: no such file or folder; check the path")
    for benchmark in [find_benchmark(name) for name in names]:
        known = store.provenance(benchmark.name) is not None and not (force or accept_change)
        if known and folder is not None:
            raise UserError(f"{benchmark.name} is cached already; --force puts what {folder} has in its place")
        if known:
            provenance = load_benchmark(benchmark.name, sha256=sha256, store=store).provenance
            out.print(f"cached: {provenance.line()}", soft_wrap=True)
            continue
        provenance = fetch_benchmark(
            benchmark.name, folder=folder, sha256=sha256, accept_change=accept_change, store=store
        )
        out.print(provenance.line(), soft_wrap=True)
        for reason, rows in provenance.left_out.items():
            out.print(f"  left out: {rows:,} rows {reason}")
        if not provenance.complete:
            out.print("  not the whole benchmark: its scores don't compare with published ones")
        if benchmark.note:
            out.print(f"  {benchmark.note}", soft_wrap=True)


def overlap(test: str, train: Sequence[str], *, folder: Path | None, as_json: bool) -> None:
    """Print the questions of ``test`` that are in ``train`` too, whole or as a step.

    Args:
        test, train: benchmarks by name, or question sets.
        folder: where the benchmarks are; None: the cache.

    Raises:
        UserError: a set that can't be read.
    """
    from sleuth.data.overlap import overlap_report

    sources = {source: _questions(source, folder) for source in train}
    questions = _questions(test, folder)
    report = overlap_report(questions, sources)
    if as_json:
        content = report.as_dict()
        if any(CANARY in question.extra for question in questions):
            del content["shared"], content["steps"]  # they quote the questions
        print(json.dumps(content, ensure_ascii=False, indent=2))
        return
    out = console()
    out.print("\n".join(report.lines(test)), soft_wrap=True)
    sealed = any(CANARY in question.extra for question in questions)
    for shared in [] if sealed else report.examples(_SHOWN):
        out.print(f"  {shared}", soft_wrap=True)


def _questions(source: str, folder: Path | None) -> list[Question]:
    if is_benchmark(source) and not Path(source).exists():
        return load_benchmark(source, folder=folder).questions
    from sleuth.data.questions import load_questions

    return load_questions(source)


def _place(name: str) -> str:
    benchmark = BENCHMARKS[name]
    if benchmark.hub is not None:
        return f"{benchmark.hub}{' (gated)' if benchmark.gated else ''}"
    return next(file.url for file in benchmark.files if file.url is not None)


def _cached(known: dict[str, Any] | None) -> str:
    if known is None:
        return "no"
    return "yes" if known["complete"] else f"{known['questions']:,} of them"
