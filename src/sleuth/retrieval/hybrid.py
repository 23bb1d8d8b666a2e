"""Several engines as one, by reciprocal rank fusion (Cormack, Clarke and Büttcher, SIGIR 2009)."""

from __future__ import annotations

from collections.abc import Sequence

from sleuth.retrieval.engine import Engine, Hits

RANK_CONSTANT = 60
"""The paper's."""

_DEPTH = 50


class HybridEngine:
    """A passage's score is the sum of ``1 / (constant + rank)`` over the engines that found it, ranks from 1.

    Ranks alone count, since scores of different engines have no common scale. Each engine is asked for the best 50, or
    for three times ``k`` where that is more.
    """

    def __init__(self, engines: Sequence[Engine], rank_constant: int = RANK_CONSTANT) -> None:
        self._engines = list(engines)
        self._constant = rank_constant

    def search(self, queries: Sequence[str], k: int) -> list[Hits]:
        depth = max(_DEPTH, 3 * k)
        rankings = [engine.search(queries, depth) for engine in self._engines]
        return [self._fused(lists)[:k] for lists in zip(*rankings, strict=True)]

    def _fused(self, rankings: Sequence[Hits]) -> Hits:
        scores: dict[int, float] = {}
        for hits in rankings:
            for rank, (row, _) in enumerate(hits, 1):
                scores[row] = scores.get(row, 0.0) + 1 / (self._constant + rank)
        return sorted(scores.items(), key=lambda hit: (-hit[1], hit[0]))
