"""An index that Lucene holds already, such as Anserini's: ``retriever.kind=sleuth.retrieval.lucene:make``.

pyserini reads it. That needs Java (21 for Anserini 1) and an index whose passages were stored (``-storeRaw``), as
``{"id", "contents"}``. Its analyser is Anserini's own: nothing here can tell which one the index was built with.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sleuth.errors import UserError
from sleuth.retrieval.analysis import clean_query
from sleuth.retrieval.corpus import split_contents
from sleuth.types import Document, SearchRequest, SearchResult


class LuceneRetriever:
    """Searches a Lucene index folder by BM25 (:class:`sleuth.types.Retriever`).

    Args:
        k1, b: of BM25, chosen at search time; the defaults are Anserini's.

    Raises:
        UserError: pyserini or Java is missing, or the folder is no index.
    """

    def __init__(self, folder: Path, k1: float = 0.9, b: float = 0.4) -> None:
        if not any(folder.glob("segments_*")):
            raise UserError(f"{folder}: no Lucene index in this folder (no segments file)")
        try:
            from pyserini.search.lucene import LuceneSearcher
        except ImportError as error:
            raise UserError(f"a Lucene index needs pyserini and Java ({error}); pip install pyserini") from None
        except Exception as error:  # Java says in its own words what it doesn't like
            raise UserError(f"pyserini can't start Java ({error}); set JAVA_HOME to Java 21 or newer") from None
        self._searcher = LuceneSearcher(str(folder))
        self._searcher.set_bm25(k1, b)

    def search(self, requests: Sequence[SearchRequest], k: int) -> list[SearchResult]:
        """At most ``k`` passages for each request, best first.

        Raises:
            ValueError: ``k`` is below 1.
        """
        if k < 1:
            raise ValueError(f"k must be at least 1, not {k}")
        return [self._search(request, k) for request in requests]

    def page(self, name: str) -> list[Document]:
        """The passage with this id; Lucene's index of passages knows no pages."""
        found = self._searcher.doc(name)
        return [] if found is None else [self._document(name, found, None)]

    def _search(self, request: SearchRequest, k: int) -> SearchResult:
        if request.corpus is not None:
            return SearchResult(
                error=f'a Lucene index has no parts, so "{request.corpus}" can\'t be searched by itself'
            )
        query = clean_query(request.query)
        if not query.strip():
            return SearchResult()
        try:
            hits = self._searcher.search(query, k)
            return SearchResult([self._document(h.docid, self._searcher.doc(h.docid), float(h.score)) for h in hits])
        except Exception as error:
            return SearchResult(error=f"Lucene failed ({type(error).__name__})")

    def _document(self, identity: str, found: Any, score: float | None) -> Document:
        raw = found.raw() or found.contents()
        try:
            row = json.loads(raw)
            contents = row["contents"] if isinstance(row, dict) else raw
        except (ValueError, KeyError):
            contents = raw
        return Document(identity, *split_contents(contents), score)


def make(corpus: str | None = None, **settings: Any) -> LuceneRetriever:
    """The factory that a recipe names; ``retriever.corpus`` is the index folder, ``settings`` are k1 and b.

    Raises:
        UserError: see :class:`LuceneRetriever`; or an unknown setting.
    """
    if corpus is None:
        raise UserError("no index to search; name the Lucene folder: retriever.corpus=DIR")
    unknown = sorted(set(settings) - {"k1", "b"})
    if unknown:
        raise UserError(f"retriever.settings.{unknown[0]} is not known; a Lucene index has k1 and b")
    return LuceneRetriever(Path(corpus).expanduser(), **settings)
