"""What SIGTERM and Ctrl-C do to a run: end it behind the work in hand, or at once where nothing would be lost."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_SAME_SIGNAL = 2.0
"""Seconds within which signals count as one, where a launcher passes them on."""


@contextmanager
def interrupts_on_sigterm() -> Iterator[None]:
    """Within, SIGTERM ends the run like Ctrl-C, with a line that says how to go on."""
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


@contextmanager
def stop_requests(request: Callable[[], None], *, processes: int = 1) -> Iterator[None]:
    """Within, SIGTERM or Ctrl-C asks for the end of the run; a second one ends it at once.

    Args:
        request: called at the first.
        processes: that share the run. With several, a launcher passes on what a terminal has sent its processes
            already: that is once.

    Raises:
        KeyboardInterrupt: at the second.
    """
    asked: float | None = None

    def stop(signum: int, frame: Any) -> None:
        nonlocal asked
        if asked is not None and (processes == 1 or time.monotonic() - asked > _SAME_SIGNAL):
            raise KeyboardInterrupt
        asked = time.monotonic()
        request()

    previous = {s: signal.signal(s, stop) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for s, handler in previous.items():
            signal.signal(s, handler)


class Stop:
    """Whether the end was asked for; for :func:`stop_requests`.

    Args:
        say: told, once, where the run will end.
        where: such as "at the end of this batch".
    """

    def __init__(self, say: Callable[[str], None] = lambda line: None, where: str = "") -> None:
        self.requested = False
        self._say, self._where = say, where

    def request(self) -> None:
        if not self.requested:
            self._say(f"stopping {self._where}; once more to stop at once")
        self.requested = True
