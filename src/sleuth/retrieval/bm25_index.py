"""BM25 on disk: the same scores as in process, memory-mapped, so that it opens in no time and shares its pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from sleuth.retrieval.analysis import Analyzer
from sleuth.retrieval.bm25 import BM25Settings
from sleuth.retrieval.engine import Hits
from sleuth.retrieval.manifest import Manifest
from sleuth.retrieval.postings import FILES, Postings
from sleuth.types import Document


def build_bm25(documents: Iterable[Document], folder: Path, settings: BM25Settings) -> list[str]:
    """Write the postings of all passages into ``folder``; the names of the files."""
    analyzer = settings.analyzer()
    words = (analyzer(f"{document.title}\n{document.text}") for document in documents)
    Postings.build(words, settings.k1, settings.b).save(folder)
    return list(FILES)


class BM25Engine:
    """Searches what :func:`build_bm25` wrote (:class:`sleuth.retrieval.engine.Engine`)."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self._analyzer = Analyzer.described(manifest.analyzer)
        self._postings = Postings.load(folder, manifest.passages)

    def search(self, queries: Sequence[str], k: int) -> list[Hits]:
        return self._postings.search([self._analyzer(query) for query in queries], k)
