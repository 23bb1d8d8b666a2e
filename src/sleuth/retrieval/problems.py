"""What is wrong with the lines of a corpus: counted, with the first places of each kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from enum import StrEnum

from sleuth.errors import UserError

_EXAMPLES = 5


class Problem(StrEnum):
    """Why a passage was left out."""

    BROKEN = "broken line"
    """Not UTF-8, or not one JSON object."""
    WRONG_FIELD = "wrong field"
    """A missing or ill-typed id, title, text or contents."""
    EMPTY = "empty"
    """Neither title nor text."""
    DUPLICATE = "duplicate id"
    """Its id was used by an earlier passage, which stays."""


class Problems:
    """Counts the passages that are left out.

    Args:
        strict: the first one stops the reading.
    """

    def __init__(self, *, strict: bool = False) -> None:
        self.strict = strict
        self.counts: Counter[Problem] = Counter()
        self._lines: dict[Problem, list[int]] = {}
        self._first: dict[Problem, str] = {}

    def add(self, problem: Problem, place: str, number: int, message: str) -> None:
        """One passage less.

        Args:
            place: names the file and line; ``number`` is that line.
            message: what is wrong and what to do; the place is put in front where it isn't in it.

        Raises:
            UserError: in a strict reading.
        """
        message = message if message.startswith(place) else f"{place}: {message}"
        if self.strict:
            raise UserError(message)
        self.counts[problem] += 1
        self._first.setdefault(problem, message)
        lines = self._lines.setdefault(problem, [])
        if len(lines) < _EXAMPLES:
            lines.append(number)

    @property
    def total(self) -> int:
        return self.counts.total()

    def lines(self) -> Iterator[str]:
        """One line for people a kind of problem: how many, on which lines, and the first one in full."""
        for problem, count in self.counts.items():
            where = ", ".join(f"{line:,}" for line in self._lines[problem])
            more = ", …" if count > _EXAMPLES else ""
            yield f"{count:,} left out, {problem.value} (lines {where}{more}); first: {self._first[problem]}"

    def as_json(self) -> dict[str, object]:
        return {
            problem.value: {"count": count, "lines": self._lines[problem]} for problem, count in self.counts.items()
        }
