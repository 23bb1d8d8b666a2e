"""From text to the words that BM25 counts."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import Any

from sleuth.errors import UserError
from sleuth.jsonl import replace_surrogates

_WORD = re.compile(r"\w+")

LUCENE_STOPWORDS = frozenset(
    _WORD.findall(
        "a an and are as at be but by for if in into is it no not of on or such that the their then there these they "
        "this to was will with"
    )
)
"""English stop words of Lucene's StandardAnalyzer (Anserini and with it Search-R1's BM25 use them too)."""

STOPWORDS = {"lucene": LUCENE_STOPWORDS, "none": frozenset[str]()}
"""Lists that can be asked for by name."""


VERSION = 1
"""Of what :class:`Analyzer` does with a text: an index that another version wrote is refused."""


class Analyzer:
    """Lower-case words, without stop words; no stemming.

    A word is a run of Unicode letters, digits and underscores (``\\w+``): numbers are kept, ``Beyoncé's`` is *beyoncé*
    and *s*, a Chinese phrase without spaces is one word. Text is brought to NFKC first, so that composed and
    decomposed accents, ligatures and full-width forms agree.

    Args:
        stopwords: words to leave out, in any case, or the name of a list of :data:`STOPWORDS`.
    """

    def __init__(self, stopwords: str | Iterable[str] = "lucene") -> None:
        words = STOPWORDS[stopwords] if isinstance(stopwords, str) else stopwords
        self._said = stopwords if isinstance(stopwords, str) else sorted(set(words))
        self.stopwords = frozenset(word.lower() for word in words)

    @property
    def description(self) -> dict[str, Any]:
        """What an index has to remember of it."""
        return {"name": "words", "version": VERSION, "stopwords": self._said}

    @classmethod
    def described(cls, description: dict[str, Any]) -> Analyzer:
        """The analyser that an index was built with.

        Raises:
            UserError: it was another kind or version.
        """
        kind = description.get("name"), description.get("version")
        if kind != ("words", VERSION):
            raise UserError(
                f"the index was built with the analyser {kind[0]} {kind[1]}, this is words {VERSION}; build it again"
            )
        return cls(description["stopwords"])

    def __call__(self, text: str) -> list[str]:
        if not text.isascii():
            text = unicodedata.normalize("NFKC", text)
        stopwords = self.stopwords
        return [word for word in _WORD.findall(text.lower()) if word not in stopwords]


def clean_query(query: str) -> str:
    """The query with lone surrogates and NUL as U+FFFD, which no index, log or wire format chokes on."""
    return replace_surrogates(query).replace("\0", "\ufffd")
