"""BM25 by tantivy: for large corpora, little memory, and passages that come and go.

Text is made into words by Sleuth's own analyser, and a query is a disjunction of these words, never a query string:
tantivy's parser takes the colons, quotes and brackets of an ordinary question for operators. tantivy keeps the length
of a passage in one byte, so its scores differ a little from exact BM25; k1 and b are fixed.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from sleuth.errors import UserError
from sleuth.retrieval.analysis import Analyzer
from sleuth.retrieval.engine import Hits
from sleuth.retrieval.manifest import Manifest
from sleuth.types import Document

FOLDER = "tantivy"
K1, B = 1.2, 0.75
_HEAP = 256 << 20


def check_parameters(k1: float, b: float) -> None:
    """Refuse what tantivy can't do.

    Raises:
        UserError: other k1 or b than its own.
    """
    if (k1, b) != (K1, B):
        raise UserError(f"tantivy has k1={K1} and b={B} and no others; use --kind bm25 for k1={k1:g}, b={b:g}")


class TantivyWriter:
    """Adds and deletes passages; nothing is in force before :meth:`commit`."""

    def __init__(self, folder: Path, analyzer: Analyzer, *, new: bool) -> None:
        self._tantivy = import_tantivy()
        self._analyzer = analyzer
        path = folder / FOLDER
        if new:
            path.mkdir(exist_ok=True)
        index = self._tantivy.Index(self._schema(), path=str(path)) if new else self._tantivy.Index.open(str(path))
        try:
            # One thread, one order: rows go into segments as they come, and a build can be repeated.
            self._writer = index.writer(_HEAP, 1)
        except ValueError as error:
            raise UserError(f"{folder}: another process is changing this index ({error}); wait for it") from None

    def add(self, document: Document, row: int) -> None:
        words = " ".join(self._analyzer(f"{document.title}\n{document.text}"))
        self._writer.add_document(self._tantivy.Document(id=document.id, title=document.title, words=words, row=row))

    def delete(self, identity: str) -> None:
        self._writer.delete_documents_by_term("id", identity)

    def commit(self) -> None:
        self._writer.commit()
        self._writer.wait_merging_threads()

    def _schema(self) -> Any:
        builder = self._tantivy.SchemaBuilder()
        builder.add_text_field("id", tokenizer_name="raw", index_option="basic")
        builder.add_text_field("title", tokenizer_name="raw", index_option="basic")
        builder.add_text_field("words", tokenizer_name="whitespace", index_option="freq")
        builder.add_integer_field("row", fast=True)
        return builder.build()


class TantivyEngine:
    """Searches what :class:`TantivyWriter` wrote (:class:`sleuth.retrieval.engine.Engine`)."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self._tantivy = import_tantivy()
        self._analyzer = Analyzer.described(manifest.analyzer)
        try:
            self._index = self._tantivy.Index.open(str(folder / FOLDER))
        except ValueError as error:
            raise UserError(f"{folder}: tantivy can't open its index ({error}); build it again") from None
        self._searcher = self._index.searcher()

    @property
    def passages(self) -> int:
        """Passages that can be found: those deleted don't count."""
        return self._searcher.num_docs

    def search(self, queries: Sequence[str], k: int) -> list[Hits]:
        return [self._search(Counter(self._analyzer(query)), k) for query in queries]

    def rows_of(self, field: str, value: str) -> list[int]:
        """Rows whose ``id`` or ``title`` is ``value``, deleted ones left out, in order."""
        query = self._tantivy.Query.term_query(self._index.schema, field, value, "basic")
        found = self._searcher.search(query, max(self._searcher.num_docs, 1), count=False)
        return sorted(self._rows([address for _, address in found.hits]))

    def _search(self, words: Counter[str], k: int) -> Hits:
        if not words:
            return []
        query_type, occur, schema = self._tantivy.Query, self._tantivy.Occur.Should, self._index.schema
        terms = []
        for word, times in words.items():
            term = query_type.term_query(schema, "words", word, "freq")
            terms.append((occur, term if times == 1 else query_type.boost_query(term, float(times))))
        # Counting all matches would keep tantivy from skipping those that can't be among the best.
        found = self._searcher.search(query_type.boolean_query(terms), k, count=False)
        rows = self._rows([address for _, address in found.hits])
        hits = [(row, score) for row, (score, _) in zip(rows, found.hits, strict=True)]
        return sorted(hits, key=lambda hit: (-hit[1], hit[0]))

    def _rows(self, addresses: list[Any]) -> list[int]:
        return [int(row) for row in self._searcher.fast_field_values("row", addresses)] if addresses else []


def committed_opstamp(folder: Path) -> int | None:
    """The operation that the index was last committed at, from tantivy's own file; None where there is no index."""
    try:
        return int(json.loads((folder / FOLDER / "meta.json").read_text(encoding="utf-8"))["opstamp"])
    except (OSError, ValueError, KeyError):
        return None


def build_tantivy(documents: Iterable[Document], folder: Path, analyzer: Analyzer) -> None:
    """Write a new index of all passages, in force at once."""
    writer = TantivyWriter(folder, analyzer, new=True)
    for row, document in enumerate(documents):
        writer.add(document, row)
    writer.commit()


def import_tantivy() -> Any:
    """The library.

    Raises:
        UserError: it isn't installed.
    """
    try:
        import tantivy
    except ImportError:
        raise UserError("this index needs tantivy; pip install 'sleuth[tantivy]'") from None
    return tantivy
