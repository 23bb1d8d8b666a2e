"""Parts of one's own: a protocol, a retriever, a tool and a reward, named by `recipe.yaml` beside this file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from sleuth.agent.codec import TokenCodec
from sleuth.agent.protocol import Rendered
from sleuth.agent.tags import TagProtocol, TagSettings
from sleuth.retrieval.corpus import read_corpus
from sleuth.types import Document, SearchRequest, SearchResult, Tool, Trajectory


class PresentFirst(TagProtocol):
    """The tag protocol, but passages about the past ("anna rival was karl") are shown last.

    A protocol is called with the codec, the recipe's tools, and `protocol.settings` as keyword arguments.
    """

    def __init__(self, codec: TokenCodec, *, tools: Mapping[str, Tool], **settings: Any):
        super().__init__(codec, TagSettings(**settings), tools)

    def observation(self, documents: Sequence[Document], ended: bool) -> Rendered:
        return super().observation(sorted(documents, key=lambda d: " was " in d.text), ended)


class EntityIndex:
    """Finds the passages whose title is a word of the query: no scores, no statistics.

    A retriever is called with `corpus` (a path or None) and `retriever.settings` as keyword arguments. What goes wrong
    in a search belongs into `SearchResult(error=…)`: such a rollout is counted and left out, and the run goes on.
    """

    def __init__(self, corpus: str, shortest: int = 2):
        self.shortest = shortest
        self.by_title: dict[tuple[str | None, str], list[Document]] = defaultdict(list)
        passages = read_corpus(corpus)
        for document, part in zip(passages.documents, passages.parts, strict=True):
            self.by_title[part, document.title.casefold()].append(document)

    def search(self, requests: Sequence[SearchRequest], k: int) -> list[SearchResult]:
        return [SearchResult(self._find(request)[:k]) for request in requests]

    def _find(self, request: SearchRequest) -> list[Document]:
        words = [word for word in request.query.casefold().split() if len(word) >= self.shortest]
        found = [document for word in words for document in self.by_title.get((request.corpus, word), [])]
        relevant = sorted(found, key=lambda d: -sum(word in d.text.split() for word in words))
        return list({document.id: document for document in relevant}.values())


def older(ages: str) -> str:
    """Who is older: `<older> anna 30 otto 40 </older>` gives `otto`."""
    words = ages.split()
    by_age = {int(age): name for name, age in zip(words[::2], words[1::2], strict=True)}
    return by_age[max(by_age)]


def careful(trajectory: Trajectory) -> dict[str, float]:
    """Exact match, less a little for every query that was asked before.

    A reward is called with each rollout that didn't fail. It gives a number, or several by name of which `reward` is
    the one to train on; all of them are logged.
    """
    right = float(trajectory.answer in trajectory.golden_answers)
    repeated = trajectory.counts.get("repeated_queries", 0)
    return {"reward": right - 0.1 * repeated, "repeated_queries": float(repeated)}
