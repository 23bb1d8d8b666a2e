"""BM25 in process, over bm25s's eager score matrix."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from sleuth.retrieval.analysis import Analyzer, clean_query
from sleuth.retrieval.corpus import Corpus
from sleuth.retrieval.postings import Postings
from sleuth.types import Document, SearchRequest, SearchResult


class BM25Settings(BaseModel):
    """How passages are scored: Lucene's BM25, ``idf · tf / (tf + k1 · (1 − b + b · length / mean length))``.

    Attributes:
        k1: how soon more occurrences of a word stop counting.
        b: how much long passages are held back, from 0 to 1. The defaults are Lucene's; Anserini, which Search-R1's
            BM25 runs on, has k1 = 0.9 and b = 0.4.
        stopwords: ``lucene`` (33 English words: a third of the work, same recall on English text), ``none``, or a list
            of words. A query of stop words alone finds nothing.
        stemmer: a Snowball algorithm of PyStemmer for the words that stay, such as ``porter`` (Anserini's) or
            ``english``; None: words as they are.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    k1: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.2
    b: Annotated[float, Field(ge=0, le=1)] = 0.75
    stopwords: Literal["lucene", "none"] | list[str] = "lucene"
    stemmer: str | None = None

    def analyzer(self) -> Analyzer:
        """Makes the words that are scored."""
        return Analyzer(self.stopwords, self.stemmer)


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
        self._analyzer = self.settings.analyzer()
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

    def page(self, name: str) -> list[Document]:
        """The passages of one page, in the order of the corpus: all with this title, or with that of this id.

        Pages of all parts are one: a corpus whose parts must not know of each other has no use for pages.
        """
        documents = self.corpus.documents
        title = next((d.title for d in documents if d.id == name), name)
        same = [d for d in documents if title and d.title == title]
        return same or [d for d in documents if d.id == name]

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
    """The postings of one stretch of the corpus."""

    def __init__(self, documents: list[Document], analyzer: Analyzer, settings: BM25Settings) -> None:
        self._documents = documents
        words = (analyzer(f"{document.title}\n{document.text}") for document in documents)
        self._postings = Postings.build(words, settings.k1, settings.b)

    def search(self, queries: Sequence[list[str]], k: int) -> list[list[tuple[Document, float]]]:
        """Passages and scores for each query, given as words; at most ``k``, best first."""
        return [[(self._documents[row], score) for row, score in hits] for hits in self._postings.search(queries, k)]
