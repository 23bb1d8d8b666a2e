"""Output for people: one console, as wide as the terminal, and wide enough for any table where there is none."""

from __future__ import annotations

import sys

from rich.console import Console

_WIDTH_OF_A_PIPE = 1000
"""Nothing has to fit in a pipe: no heading is broken, no cell cut, and a line of text stays one."""


def console(stderr: bool = False) -> Console:
    """A console that takes text as it is: no markup, no colouring of numbers."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _WIDTH_OF_A_PIPE
    return Console(file=stream, markup=False, highlight=False, width=width)
