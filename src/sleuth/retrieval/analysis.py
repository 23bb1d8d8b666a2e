"""From text to the words that BM25 counts."""

from __future__ import annotations

import re
import threading
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
    """Lower-case words, without stop words, stemmed if asked for.

    A word is a run of Unicode letters, digits and underscores (``\\w+``): numbers are kept, ``Beyoncé's`` is *beyoncé*
    and *s*, a Chinese phrase without spaces is one word. Text is brought to NFKC first, so that composed and
    decomposed accents, ligatures and full-width forms agree.

    Args:
        stopwords: words to leave out, in any case, or the name of a list of :data:`STOPWORDS`.
        stemmer: a Snowball algorithm (``porter``, ``english``, ``german``, …) for the words that stay, or None.

    Raises:
        UserError: PyStemmer isn't installed or has no such algorithm.
    """

    def __init__(self, stopwords: str | Iterable[str] = "lucene", stemmer: str | None = None) -> None:
        words = STOPWORDS[stopwords] if isinstance(stopwords, str) else stopwords
        self._said = stopwords if isinstance(stopwords, str) else sorted(set(words))
        self.stopwords = frozenset(word.lower() for word in words)
        self.stemmer = stemmer
        self._stemmers = threading.local()  # PyStemmer's own may not be shared
        if stemmer is not None:
            self._stemmers.own = load_stemmer(stemmer)

    @property
    def description(self) -> dict[str, Any]:
        """What an index has to remember of it."""
        return {"name": "words", "version": VERSION, "stopwords": self._said, "stemmer": self.stemmer}

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
        return cls(description["stopwords"], description.get("stemmer"))

    def __call__(self, text: str) -> list[str]:
        if not text.isascii():
            text = unicodedata.normalize("NFKC", text)
        stopwords = self.stopwords
        words = [word for word in _WORD.findall(text.lower()) if word not in stopwords]
        return words if self.stemmer is None else self._stem(words)

    def _stem(self, words: list[str]) -> list[str]:
        if not hasattr(self._stemmers, "own"):
            assert self.stemmer is not None
            self._stemmers.own = load_stemmer(self.stemmer)
        return self._stemmers.own.stemWords(words)


def load_stemmer(name: str) -> Any:
    """A PyStemmer stemmer.

    Raises:
        UserError: it isn't installed or has no such algorithm.
    """
    try:
        import Stemmer
    except ImportError:
        raise UserError(f"stemmer={name} needs PyStemmer; pip install 'sleuth[stem]'") from None
    if name not in Stemmer.algorithms():
        raise UserError(f"stemmer={name} isn't known; PyStemmer has {', '.join(Stemmer.algorithms())}")
    return Stemmer.Stemmer(name)


def clean_query(query: str) -> str:
    """The query with lone surrogates and NUL as U+FFFD, which no index, log or wire format chokes on."""
    return replace_surrogates(query).replace("\0", "\ufffd")
