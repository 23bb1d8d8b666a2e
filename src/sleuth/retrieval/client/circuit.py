"""A circuit breaker: a server that has failed several calls in a row is left alone for a while."""

from __future__ import annotations

import time
from collections.abc import Callable


class CircuitBreaker:
    """Counts calls that failed with all their retries.

    After ``failures`` of them in a row the circuit is open: for ``seconds`` every call is refused at once. Then one
    call goes through as a trial; it closes the circuit, or opens it again.
    """

    def __init__(self, failures: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._seconds, self._clock = failures, seconds, clock
        self._failed = 0
        self._open_until: float | None = None
        self.last_error = ""

    def refuses(self) -> bool:
        """Whether a call may not be made now. A call that may be must be followed by one of the two below."""
        if self._open_until is None:
            return False
        if self._clock() < self._open_until:
            return True
        self._open_until = self._clock() + self._seconds  # this call is the trial; the others wait for what comes of it
        return False

    def succeeded(self) -> None:
        self._failed, self._open_until = 0, None

    def failed(self, error: str) -> None:
        self.last_error = error
        self._failed += 1
        if self._failed >= self._most:
            self._open_until = self._clock() + self._seconds

    def message(self) -> str:
        return f"not asked: the server failed {self._failed} calls in a row (last: {self.last_error})"
