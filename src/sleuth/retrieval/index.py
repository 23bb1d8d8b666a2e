"""An index folder, opened: an engine that finds rows and a store that holds their text, as one retriever."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sleuth.errors import UserError
from sleuth.retrieval.analysis import clean_query
from sleuth.retrieval.engine import Engine, Hits
from sleuth.retrieval.manifest import Manifest, check_wanted, read_manifest
from sleuth.retrieval.store import PassageStore
from sleuth.types import Document, SearchRequest, SearchResult

KINDS = ("bm25", "tantivy", "dense", "hybrid")


class IndexRetriever:
    """Searches an index folder (:class:`sleuth.types.Retriever`). Safe to use from several threads.

    Attributes:
        manifest: what the index is.
        store: its passages.
        engine: finds their rows; ``inner`` is the one that a reranker stands in front of.
    """

    def __init__(
        self, folder: Path, manifest: Manifest, store: PassageStore, engine: Engine, inner: Engine | None = None
    ) -> None:
        self.folder = folder
        self.manifest = manifest
        self.store = store
        self.engine = engine
        self._inner = inner or engine

    def __len__(self) -> int:
        """Passages that can be found."""
        found = getattr(self._inner, "passages", None)
        return len(self.store) if found is None else found

    @property
    def corpus_hash(self) -> str:
        return self.manifest.corpus_hash

    def search(self, requests: Sequence[SearchRequest], k: int) -> list[SearchResult]:
        """At most ``k`` passages for each request, best first.

        Raises:
            ValueError: ``k`` is below 1.
        """
        results = [SearchResult() for _ in requests]
        asked = [n for n, request in enumerate(requests) if request.corpus is None]
        for n, request in enumerate(requests):
            if request.corpus is not None:
                results[n].error = f'an index has no parts, so "{request.corpus}" can\'t be searched by itself'
        hits = self.rows([requests[n].query for n in asked], k)
        for n, found in zip(asked, hits, strict=True):
            results[n].documents = [self.store.document(row, score) for row, score in found]
        return results

    def rows(self, queries: Sequence[str], k: int) -> list[Hits]:
        """Rows and scores alone; equal queries are searched once."""
        if k < 1:
            raise ValueError(f"k must be at least 1, not {k}")
        cleaned = [clean_query(query) for query in queries]
        distinct = list(dict.fromkeys(cleaned))
        found = dict(zip(distinct, self.engine.search(distinct, k), strict=True))
        return [found[query] for query in cleaned]

    def page(self, name: str) -> list[Document]:
        """The passages of one page, in the order of the corpus.

        Args:
            name: a passage's id, or the title that all passages of the page have.

        Returns:
            All passages with the title, or with the title of the passage that has the id; none if there is no such.
        """
        rows = self._rows_of("id", name)
        if rows:
            title = self.store.document(rows[0]).title
            rows = (self._rows_of("title", title) if title else []) or rows
        return [self.store.document(row) for row in rows or self._rows_of("title", name)]

    def _rows_of(self, field: str, value: str) -> list[int]:
        value = clean_query(value)
        if hasattr(self._inner, "rows_of"):
            return self._inner.rows_of(field, value)
        return self.store.rows_of_id(value) if field == "id" else self.store.rows_of_title(value)


def open_index(folder: str | os.PathLike[str], settings: Mapping[str, Any] | None = None) -> IndexRetriever:
    """Open an index that ``sleuth index`` built.

    Args:
        settings: what the user says of it. k1, b, stopwords and encoder must be those that it was built with;
            ``reranker``, ``reranked``, ``probes`` and ``device`` are choices of the search.

    Raises:
        UserError: no index, not whole, built by another version, or with other settings.
    """
    path = Path(os.path.expanduser(os.fspath(folder)))
    wanted = dict(settings or {})
    search: dict[str, Any] = {
        name: wanted.pop(name) for name in ("reranker", "reranked", "probes", "device") if name in wanted
    }
    if (path / "manifest.json").is_file():
        from sleuth.retrieval.changes import finish_change

        finish_change(path)
    manifest = read_manifest(path)
    if isinstance(wanted.get("encoder"), str):
        from sleuth.retrieval.encoders import full_name

        wanted["encoder"] = full_name(wanted["encoder"])
    check_wanted(manifest, wanted, path)
    store = PassageStore(path, manifest.passages)
    engine = open_engine(path, manifest, store, search)
    if search.get("reranker"):
        from sleuth.retrieval.reranker import RerankedEngine, load_reranker

        reranker = load_reranker(search["reranker"], search.get("device"))
        reranked = RerankedEngine(engine, store, reranker, int(search.get("reranked", 50)))
        return IndexRetriever(path, manifest, store, reranked, engine)
    return IndexRetriever(path, manifest, store, engine)


def open_engine(folder: Path, manifest: Manifest, store: PassageStore, search: Mapping[str, Any]) -> Engine:
    """The engine of the manifest's kind."""
    make = _ENGINES.get(manifest.kind)
    if make is None:
        raise UserError(f"{folder}: a {manifest.kind} index isn't known to this version; build it again")
    return make(folder, manifest, store, search)


def _bm25(folder: Path, manifest: Manifest, store: PassageStore, search: Mapping[str, Any]) -> Engine:
    from sleuth.retrieval.bm25_index import BM25Engine

    return BM25Engine(folder, manifest)


def _tantivy(folder: Path, manifest: Manifest, store: PassageStore, search: Mapping[str, Any]) -> Engine:
    from sleuth.retrieval.tantivy_index import TantivyEngine

    return TantivyEngine(folder, manifest)


def _dense(folder: Path, manifest: Manifest, store: PassageStore, search: Mapping[str, Any]) -> Engine:
    from sleuth.retrieval.dense_index import DenseEngine

    return DenseEngine(folder, manifest, probes=search.get("probes"), device=search.get("device"))


def _hybrid(folder: Path, manifest: Manifest, store: PassageStore, search: Mapping[str, Any]) -> Engine:
    from sleuth.retrieval.hybrid import HybridEngine

    words = manifest.settings["words"]
    return HybridEngine(
        [_ENGINES[words](folder, manifest, store, search), _dense(folder, manifest, store, search)],
        manifest.settings["rank_constant"],
    )


_ENGINES: dict[str, Callable[..., Engine]] = {
    "bm25": _bm25,
    "tantivy": _tantivy,
    "dense": _dense,
    "hybrid": _hybrid,
}
