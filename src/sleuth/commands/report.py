"""`sleuth report`: one HTML file of a run, a rollouts file or a comparison."""

from __future__ import annotations

import webbrowser
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sleuth.commands.folders import check_writable
from sleuth.commands.terminal import console
from sleuth.errors import RunStopped, UserError
from sleuth.report.rollouts import Options
from sleuth.report.run_record import read_records
from sleuth.report.sources import Kind, find_source
from sleuth.report.watch import watch as watch_run
from sleuth.report.write import write_report


def report(
    source: Path,
    *,
    output: Path | None,
    objective: str | None,
    settings: Sequence[str],
    tokenizer: str | None,
    rollouts: int,
    watch: bool,
    every: int,
    open_it: bool,
) -> None:
    """Write the report, and say where it is.

    Args:
        objective, settings: whose advantages are shown; default: the run's own, or grpo.
        rollouts: most that are shown.
        watch: make it again whenever the run has written more; ``every``: seconds between two looks.

    Raises:
        UserError: nothing to report on (a run without a finished step, say), a wrong setting, or a place that can't
            be written.
    """
    found = find_source(source)
    file = output or found.default_output
    if file.is_dir():
        raise UserError(f"{file} is a folder; name the file to write, such as {file / 'report.html'}")
    check_writable(file.parent)
    if found.kind is Kind.RUN and not watch:
        _refuse_without_steps(source)
    if watch and found.kind is Kind.ROLLOUTS:
        raise UserError("--watch follows a run; a rollouts file does not grow")
    options = Options(rollouts=rollouts, objective=objective, settings=tuple(settings), tokenizer=tokenizer)
    shown = False

    def made(data: Mapping[str, Any]) -> None:
        nonlocal shown
        _say(file, data)
        if open_it and not shown:
            webbrowser.open(file.resolve().as_uri())
        shown = True

    if not watch:
        made(write_report(found, file, options))
        return
    try:
        watch_run(found, file, options, every, made)
    except KeyboardInterrupt:
        raise RunStopped(f"stopped watching; {file} shows the run up to here") from None


def _refuse_without_steps(run: Path) -> None:
    """A run whose metrics are empty gives no page: it would take the place of one that shows more."""
    metrics = run / "metrics.jsonl"
    if metrics.is_file() and not read_records(metrics):
        raise UserError(
            f"{metrics}: no finished step is in it; try again after the run's first step, or wait for it with --watch"
        )


def _say(file: Path, data: Mapping[str, Any]) -> None:
    out = console()
    shown = [f"{file.stat().st_size / 1e6:.1f} MB"]
    if data["run"]:
        shown.append(f"{len(data['run']['metrics']['steps']):,} steps")
        shown.append(f"{len(data['run']['alarms'])} alarms")
    if data["rollouts"]:
        shown.append(f"{len(data['rollouts']['rows']):,} rollouts")
    if data["comparison"]:
        shown.append(f"{len(data['comparison']['cells'])} runs")
    out.print(f"{file} ({', '.join(shown)})", soft_wrap=True)
    for note in data["notes"]:
        out.print(f"  {note}", soft_wrap=True)
