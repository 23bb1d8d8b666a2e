"""BM25 scores of every word in every passage that has it, by word: in memory, or memory-mapped from an index."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from sleuth.retrieval.engine import Hits

_STRETCH = 64
"""Scores of which the highest is looked at first."""

_KNOWN_WORDS = 1 << 16
"""Words of queries whose columns are remembered: a few megabytes."""

_COMPILED_FROM = 100_000
"""Passages from which the compiled scorer pays, although it takes seconds to compile."""

FILES = ("postings.scores", "postings.rows", "postings.starts", "postings.words")
_TYPES = ("<f4", "<i4", "<i8", "<u8")


class Postings:
    """Scores, rows and, for each word, where its stretch of both begins.

    bm25s makes them. Its ``retrieve`` isn't used: it needs a query of known words and a corpus of at least k passages,
    and returns passages with score 0. Its compiled scorer is, where numba is installed and the corpus is large: the
    interpreter's way costs a pass over all passages for each query.

    Args:
        scores: float32. ``rows``: int32, as long. ``starts``: int64, one more than there are words.
        column: of each word.
    """

    def __init__(
        self, scores: np.ndarray, rows: np.ndarray, starts: np.ndarray, passages: int, column: Mapping[str, int]
    ) -> None:
        self.passages = passages
        self.column = column
        self._arrays = scores, rows, starts
        self._compiled = passages >= _COMPILED_FROM and importlib.util.find_spec("numba") is not None

    @classmethod
    def build(cls, texts: Iterable[Sequence[str]], k1: float, b: float) -> Postings:
        """From each passage's words."""
        vocabulary: dict[str, int] = {}
        tokens = [[vocabulary.setdefault(word, len(vocabulary)) for word in words] for words in texts]
        if not vocabulary:
            return cls(np.empty(0, "<f4"), np.empty(0, "<i4"), np.zeros(1, "<i8"), len(tokens), vocabulary)
        import bm25s

        index = bm25s.BM25(k1=k1, b=b, method="lucene")
        index.index((tokens, vocabulary), create_empty_token=False, show_progress=False)
        matrix = index.scores
        return cls(matrix["data"], matrix["indices"], matrix["indptr"], len(tokens), vocabulary)

    def save(self, folder: Path) -> None:
        """Write the postings, words in the order of their hashes."""
        scores, rows, starts = self._arrays
        hashes = np.fromiter(map(word_hash, self.column), np.uint64, len(self.column))
        columns = np.fromiter(self.column.values(), np.int64, len(self.column))
        order = np.argsort(hashes)
        lengths = np.diff(starts)[columns[order]]
        new_starts = np.concatenate([[0], np.cumsum(lengths)]).astype("<i8")
        with (folder / FILES[0]).open("wb") as score_file, (folder / FILES[1]).open("wb") as row_file:
            for column in columns[order].tolist():
                stretch = slice(int(starts[column]), int(starts[column + 1]))
                score_file.write(scores[stretch].astype("<f4").tobytes())
                row_file.write(rows[stretch].astype("<i4").tobytes())
        new_starts.tofile(folder / FILES[2])
        hashes[order].astype("<u8").tofile(folder / FILES[3])

    @classmethod
    def load(cls, folder: Path, passages: int) -> Postings:
        """Memory-mapped."""
        scores, rows, starts, words = (
            np.memmap(folder / name, kind, "r").view(np.ndarray)
            if (folder / name).stat().st_size
            else np.empty(0, kind)
            for name, kind in zip(FILES, _TYPES, strict=True)
        )
        return cls(scores, rows, starts, passages, _HashedWords(words))

    def search(self, queries: Sequence[Sequence[str]], k: int) -> list[Hits]:
        """At most ``k`` rows with a score above 0 for each query, given as words; equal scores in the rows' order."""
        columns = [[c for word in words if (c := self.column.get(word)) is not None] for words in queries]
        if self._compiled:
            return self._compiled_search(columns, k)
        hits: list[Hits] = []
        for query in columns:
            scores = self._score(query)
            best = _best(scores, k)
            hits.append(list(zip(best, scores[best].tolist(), strict=True)))
        return hits

    def _score(self, columns: Sequence[int]) -> np.ndarray:
        """Scores of all passages, (passages,) in float32; a word counts as often as the query has it."""
        scores, rows, starts = self._arrays
        summed = np.zeros(self.passages, np.float32)
        for column in columns:
            stretch = slice(starts.item(column), starts.item(column + 1))
            np.add.at(summed, rows[stretch], scores[stretch])
        return summed

    def _compiled_search(self, queries: Sequence[Sequence[int]], k: int) -> list[Hits]:
        known = [np.asarray(columns, np.int32) for columns in queries if len(columns)]
        if not known:
            return [[] for _ in queries]
        from bm25s.numba.retrieve_utils import _retrieve_numba_functional

        scores, rows, starts = self._arrays
        matrix: Any = {"data": scores, "indices": rows, "indptr": starts, "num_docs": self.passages}
        best, values = _retrieve_numba_functional(
            known, matrix, k=min(k, self.passages), show_progress=False, n_threads=0
        )
        found = iter(zip(best.tolist(), values.tolist(), strict=True))
        return [_positive(*next(found)) if len(columns) else [] for columns in queries]


class _HashedWords(Mapping[str, int]):
    """Column of a word by binary search among sorted hashes: a vocabulary of millions takes no memory of its own.

    Two of five million words share 64 bits with a probability of one in a million.
    """

    def __init__(self, hashes: np.ndarray) -> None:
        self._hashes = hashes
        self._find = lru_cache(_KNOWN_WORDS)(self._search)

    def get(self, word: str, default: Any = None) -> Any:
        column = self._find(word)
        return default if column is None else column

    def _search(self, word: str) -> int | None:
        value = np.uint64(word_hash(word))
        column = int(np.searchsorted(self._hashes, value))
        return column if column < len(self._hashes) and self._hashes[column] == value else None

    def __getitem__(self, word: str) -> int:
        column = self._find(word)
        if column is None:
            raise KeyError(word)
        return column

    def __len__(self) -> int:
        return len(self._hashes)

    def __iter__(self) -> Any:
        raise TypeError("an index keeps the hashes of its words, not the words")


def word_hash(word: str) -> int:
    return int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little")


def _best(scores: np.ndarray, k: int) -> list[int]:
    """Positions of the ``k`` highest positive scores, best first, the earlier one on a tie.

    The maxima of stretches come first: no score below the k-th highest of them can be among the best, so that few
    positions are left to be sorted.
    """
    least = 0.0
    if k < len(scores) // _STRETCH:
        whole = len(scores) // _STRETCH * _STRETCH
        least = np.partition(scores[:whole].reshape(_STRETCH, -1).max(axis=0), -k)[-k]
    hits = np.flatnonzero(scores >= least) if least > 0 else np.flatnonzero(scores)
    return hits[np.argsort(-scores[hits], kind="stable")][:k].tolist()


def _positive(rows: list[int], scores: list[float]) -> Hits:
    hits = [(row, score) for row, score in zip(rows, scores, strict=True) if score > 0]
    return sorted(hits, key=lambda hit: (-hit[1], hit[0]))
