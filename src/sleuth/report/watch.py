"""Makes a report while its run goes on."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sleuth.report.rollouts import Options
from sleuth.report.sources import Source
from sleuth.report.write import write_report

_WATCHED = ("metrics.jsonl", "alarms.jsonl", "summary.json", "comparison.json")


def watch(
    source: Source,
    output: Path,
    options: Options,
    every: int,
    made: Callable[[dict[str, Any]], None],
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Make the report again whenever the run has written more, until it is finished.

    Args:
        every: seconds between two looks, and between two loads of the open page. A report that takes long to make is
            made more rarely, so that it takes a fifth of the time at most.
        made: told of every report.
    """
    state = None
    while True:
        now = _state(source.path)
        took = 0.0
        finished = _finished(source.path)
        if now != state:
            began = time.monotonic()
            made(write_report(source, output, options, live=None if finished else every))
            took = time.monotonic() - began
            state = now
        if finished:
            return
        sleep(max(every, 4 * took))


def _state(folder: Path) -> list[tuple[str, int, int]]:
    """Sizes and times of what grows with a run."""
    found = [(name, folder / name) for name in _WATCHED]
    return [(name, stat.st_size, stat.st_mtime_ns) for name, path in found if path.is_file() and (stat := path.stat())]


def _finished(folder: Path) -> bool:
    return (folder / "summary.json").is_file()
