"""Passages by id and by title, from whatever a retriever can tell."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from sleuth.anchors.verify import same_title
from sleuth.errors import UserError
from sleuth.retrieval.pages import Pages
from sleuth.types import Document, Retriever, SearchRequest

_HITS = 20


class Passages:
    """Looks passages up: in a corpus in memory, else page by page, else by searching for the title.

    Args:
        retriever: the run's own.
    """

    def __init__(self, retriever: Retriever):
        self._retriever = retriever
        corpus: Any = getattr(retriever, "corpus", None)
        self._by_id: dict[tuple[str | None, str], Document] | None = None
        if corpus is not None and hasattr(corpus, "documents"):
            self._by_id, self._by_title = {}, defaultdict(list)
            for document, part in zip(corpus.documents, corpus.parts, strict=True):
                self._by_id[part, document.id] = document
                self._by_title[part, document.title].append(document)

    def with_id(self, identity: str, part: str | None) -> Document | None:
        """The passage of this id; None where there is none, or the retriever doesn't look passages up by id."""
        if self._by_id is not None:
            return self._by_id.get((part, identity))
        if isinstance(self._retriever, Pages):
            return next((d for d in self._retriever.page(identity) if d.id == identity), None)
        return None

    def titled(self, title: str, part: str | None) -> list[Document]:
        """The passages of this title, in reading order where that is known.

        Raises:
            UserError: the retriever failed.
        """
        if self._by_id is not None and (found := self._by_title.get((part, title))):
            return found
        if self._by_id is None and isinstance(self._retriever, Pages) and (found := self._retriever.page(title)):
            return found
        (result,) = self._retriever.search([SearchRequest(title, part)], _HITS)
        if result.failed:
            raise UserError(f'looking for the passage "{title}": the retriever failed: {result.error}')
        return [d for d in result.documents if same_title(d.title, title)]
