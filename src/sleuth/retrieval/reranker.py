"""A cross-encoder that reads query and passage together and orders the best passages anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sleuth.errors import UserError
from sleuth.models import no_loading_bars
from sleuth.plugins import load_object
from sleuth.retrieval.dense_index import passage_text
from sleuth.retrieval.engine import Engine, Hits
from sleuth.retrieval.store import PassageStore

Reranker = Callable[[list[tuple[str, str]]], Any]
"""(query, passage) pairs in, as many scores out; higher is better."""


class RerankedEngine:
    """The engine's best ``depth`` passages in the reranker's order, with its scores."""

    def __init__(self, engine: Engine, store: PassageStore, reranker: Reranker, depth: int) -> None:
        if depth < 1:
            raise UserError(f"reranked={depth} must be at least 1")
        self._engine, self._store, self._reranker, self._depth = engine, store, reranker, depth

    def search(self, queries: Sequence[str], k: int) -> list[Hits]:
        found = self._engine.search(queries, max(k, self._depth))
        pairs = [
            (query, passage_text(self._store.document(row)))
            for query, hits in zip(queries, found, strict=True)
            for row, _ in hits
        ]
        if not pairs:
            return found
        scores = np.asarray(self._reranker(pairs), np.float64).reshape(-1)
        if len(scores) != len(pairs):
            raise UserError(f"the reranker gave {len(scores)} scores for {len(pairs)} pairs")
        ordered: list[Hits] = []
        start = 0
        for hits in found:
            own = scores[start : start + len(hits)].tolist()
            start += len(hits)
            anew = [(row, score) for (row, _), score in zip(hits, own, strict=True)]
            ordered.append(sorted(anew, key=lambda hit: -hit[1])[:k])
        return ordered


def load_reranker(name: str, device: str | None = None) -> Reranker:
    """The reranker called ``name``: a cross-encoder of sentence-transformers, or ``module:function`` of your own.

    Your own is called without arguments and returns a function from (query, passage) pairs to scores.

    Raises:
        UserError: it can't be loaded.
    """
    if ":" in name and not Path(name).exists():
        return load_object(name)()
    try:
        from sentence_transformers import CrossEncoder
    except ImportError:
        raise UserError("a reranker needs sentence-transformers; pip install 'sleuth[dense]'") from None
    no_loading_bars()
    try:
        model = CrossEncoder(name, device=device)
    except Exception as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UserError(f"reranker {name}: can't be loaded ({first}); give a model folder or a hub name") from None
    return lambda pairs: model.predict(pairs, batch_size=64, show_progress_bar=False)
