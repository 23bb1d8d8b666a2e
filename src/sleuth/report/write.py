"""Writes a report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sleuth.jsonl import write_atomically
from sleuth.report.collect import collect
from sleuth.report.page import render
from sleuth.report.rollouts import Options
from sleuth.report.sources import Source


def write_report(
    source: Source, output: Path, options: Options | None = None, *, live: int | None = None
) -> dict[str, Any]:
    """Write the report of ``source`` to ``output``, whole or not at all; returns what it shows.

    Args:
        live: seconds after which an open page loads itself anew.

    Raises:
        UserError: nothing to report on, or a file of it can't be read.
    """
    data = collect(source, options)
    page = render(data, live=live)
    with write_atomically(output) as out:
        out.write(page.encode())
    return data
