"""Results kept on disk, under the hash of the corpus that they came from."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sleuth.errors import UserError
from sleuth.types import Document


class ResultCache:
    """What was found for a query, including nothing; a failure is never kept.

    A cache that stops working (a full disk, a damaged file) is said once and then done without.
    """

    def __init__(self, folder: Path, megabytes: int) -> None:
        try:
            import diskcache
        except ImportError:
            raise UserError("a cache of results needs diskcache; pip install 'sleuth[http]'") from None
        try:
            self._cache: Any = diskcache.Cache(str(folder), size_limit=megabytes << 20)
        except (OSError, sqlite3.Error) as error:
            raise UserError(
                f"retriever.settings.cache={folder}: can't be used ({error}); name another folder"
            ) from None
        self._failures: tuple[type[Exception], ...] = (OSError, sqlite3.Error, diskcache.Timeout, ValueError, TypeError)

    def get(self, corpus: str, query: str, k: int) -> list[Document] | None:
        if self._cache is None:
            return None
        try:
            found = self._cache.get(_key(corpus, query, k))
            return None if found is None else [Document(*fields) for fields in json.loads(found)]
        except self._failures as error:
            self._give_up(error)
            return None

    def put(self, corpus: str, query: str, k: int, documents: Sequence[Document]) -> None:
        if self._cache is None:
            return
        content = json.dumps([[d.id, d.title, d.text, d.score] for d in documents], ensure_ascii=False)
        try:
            self._cache.set(_key(corpus, query, k), content)
        except self._failures as error:
            self._give_up(error)

    def close(self) -> None:
        if self._cache is not None:
            self._cache.close()

    def _give_up(self, error: Exception) -> None:
        warnings.warn(f"the cache of search results is not used any more: {error}", stacklevel=3)
        self._cache = None


def _key(corpus: str, query: str, k: int) -> str:
    return hashlib.sha256(f"{corpus}\0{k}\0{query}".encode()).hexdigest()
