"""What every index is behind its passages: queries in, rows and scores out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

Hits = list[tuple[int, float]]
"""(row of the passage store, score), best first, rows distinct."""


class Engine(Protocol):
    """Finds rows. Safe to call from several threads."""

    def search(self, queries: Sequence[str], k: int) -> list[Hits]:
        """At most ``k`` hits for each query, in order; none where nothing matches. Queries hold no surrogates."""
        ...
