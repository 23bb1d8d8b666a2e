"""BM25 in process, over bm25s's eager score matrix."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from sleuth.retrieval.analysis import STOPWORDS, Analyzer, clean_query
from sleuth.retrieval.corpus import Corpus
from sleuth.types import Document, SearchRequest, SearchResult

_CELLS = 1 << 22
"""Scores held at a time, passages times queries: 32 MiB."""


class BM25Settings(BaseModel):
    """How passages are scored: Lucene's BM25, ``idf · tf / (tf + k1 · (1 − b + b · length / mean length))``.

    Attributes:
        k1: how soon more occurrences of a word stop counting.
        b: how much long passages are held back, from 0 to 1. The defaults are Lucene's; Anserini, which Search-R1's
            BM25 runs on, has k1 = 0.9 and b = 0.4.
        stopwords: ``lucene`` (33 English words: a third of the work, same recall on English text), ``none``, or a list
            of words. A query of stop words alone finds nothing.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    k1: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.2
    b: Annotated[float, Field(ge=0, le=1)] = 0.75
    stopwords: Literal["lucene", "none"] | list[str] = "lucene"


class BM25Retriever:
    """Finds passages by their words (:class:`sleuth.types.Retriever`).

    A passage is scored by its title and text together; one without any word of the query is never returned. Equal
    scores keep the order of the corpus. A request with ``corpus`` searches that part alone, with that part's own word
    statistics, as if the rest didn't exist; an unknown part is a failed result. Indexes (of the whole corpus, of each
    part) are built when first asked for and kept; searches may run in several threads.
    """

    def __init__(self, corpus: Corpus, settings: BM25Settings | None = None) -> None:
        self.corpus = corpus
        self.settings = settings or BM25Settings()
        stopwords = self.settings.stopwords
        self._analyzer = Analyzer(STOPWORDS[stopwords] if isinstance(stopwords, str) else stopwords)
        self._members = corpus.members()
        self._indexes: dict[str | None, _Index] = {}
        self._lock = threading.Lock()

    def search(self, requests: Sequence[SearchRequest], k: int) -> list[SearchResult]:
        """At most ``k`` passages for each request, best first; ``score`` is the BM25 score.

        Raises:
            ValueError: ``k`` is below 1.
        """
        if k < 1:
            raise ValueError(f"k must be at least 1, not {k}")
        results: list[SearchResult] = [SearchResult() for _ in requests]
        by_part: dict[str | None, list[int]] = {}
        for position, request in enumerate(requests):
            by_part.setdefault(request.corpus, []).append(position)
        for part, positions in by_part.items():
            index = self._index(part)
            if index is None:
                for position in positions:
                    results[position].error = f'the corpus has no part "{part}"'
                continue
            # Rollouts of one question often send the same query: score it once.
            rows: dict[str, list[int]] = {}
            for position in positions:
                rows.setdefault(clean_query(requests[position].query), []).append(position)
            hits = index.search([self._analyzer(query) for query in rows], k)
            for same, found in zip(rows.values(), hits, strict=True):
                for position in same:
                    results[position].documents = [replace(document, score=score) for document, score in found]
        return results

    def prepare(self, parts: Iterable[str | None]) -> None:
        """Build the indexes of these parts (None: of the whole corpus) now, so that no search has to wait for one."""
        for part in parts:
            self._index(part)

    def _index(self, part: str | None) -> _Index | None:
        index = self._indexes.get(part)
        if index is None:
            if part is not None and part not in self._members:
                return None
            with self._lock:
                if part not in self._indexes:
                    documents = self.corpus.documents
                    if part is not None:
                        documents = [documents[position] for position in self._members[part]]
                    self._indexes[part] = _Index(documents, self._analyzer, self.settings)
                index = self._indexes[part]
        return index


class _Index:
    """Scores of every word in every passage that has it, by word.

    bm25s builds the matrix. Its ``retrieve`` isn't used: it needs a query of known words and a corpus of at least k
    passages, returns passages with score 0, and costs several numpy calls a word; here a batch is scored by one.
    """

    def __init__(self, documents: list[Document], analyzer: Analyzer, settings: BM25Settings) -> None:
        self._documents = documents
        self._vocabulary: dict[str, int] = {}
        known = self._vocabulary
        tokens = [
            [known.setdefault(word, len(known)) for word in analyzer(f"{document.title}\n{document.text}")]
            for document in documents
        ]
        if not known:
            return
        import bm25s

        index = bm25s.BM25(k1=settings.k1, b=settings.b, method="lucene")
        index.index((tokens, known), create_empty_token=False, show_progress=False)
        self._scores: np.ndarray = index.scores["data"]
        self._rows: np.ndarray = index.scores["indices"]
        self._starts: list[int] = index.scores["indptr"].tolist()

    def search(self, queries: Sequence[list[str]], k: int) -> list[list[tuple[Document, float]]]:
        """Passages and scores for each query, given as words; at most ``k``, best first."""
        batch = max(1, _CELLS // len(self._documents))
        found: list[list[tuple[Document, float]]] = []
        for start in range(0, len(queries), batch):
            found.extend(
                [(self._documents[position], float(scores[position])) for position in _best(scores, k)]
                for scores in self._score(queries[start : start + batch])
            )
        return found

    def _score(self, queries: Sequence[list[str]]) -> np.ndarray:
        """Scores of all passages, (queries, passages) in float64; a word counts as often as the query has it."""
        shape = (len(queries), len(self._documents))
        cells: list[np.ndarray] = []
        scores: list[np.ndarray] = []
        for row, words in enumerate(queries):
            for word in words:
                column = self._vocabulary.get(word)
                if column is not None:
                    postings = slice(self._starts[column], self._starts[column + 1])
                    cells.append(self._rows[postings] + row * shape[1])
                    scores.append(self._scores[postings])
        if not cells:
            return np.zeros(shape)
        # bincount adds in the order given, so that a query's scores don't depend on its batch.
        summed = np.bincount(np.concatenate(cells), np.concatenate(scores), minlength=shape[0] * shape[1])
        return summed.reshape(shape)


def _best(scores: np.ndarray, k: int) -> list[int]:
    """Positions of the ``k`` highest positive scores, best first, the earlier one on a tie."""
    hits = np.flatnonzero(scores)
    if len(hits) > k:
        threshold = np.partition(scores[hits], -k)[-k]
        hits = hits[scores[hits] >= threshold]
    return hits[np.argsort(-scores[hits], kind="stable")][:k].tolist()
