"""Evidence in passages, compared word by word: does this text name a title, hold an answer, and where."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable
from dataclasses import dataclass

_WORD = re.compile(r"\w+")
_SENTENCE_END = re.compile(r"[.!?;](?=\s)|\n")
_AROUND = 12
_DEFINITION = re.compile(r"\b(?:is|was|are|were)\s+")

FUNCTION_WORDS = frozenset(
    _WORD.findall(
        "a an the and or but of in on at to for from by with about as into than that this these those it its their his "
        "her he she they them there is are was were be been being am do does did has have had can could will would "
        "shall should may might must not no also so such s which what who whom whose when where why how if then both "
        "between same one ones"
    )
)
"""English words that say nothing of what is looked for."""


@dataclass(frozen=True, slots=True)
class Words:
    """A text as words to compare (NFKC, case-folded) and where each stands in it."""

    text: str
    words: tuple[str, ...]
    places: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, text: str) -> Words:
        text = unicodedata.normalize("NFKC", text)
        found = list(_WORD.finditer(text))
        return cls(text, tuple(m.group().casefold() for m in found), tuple(m.span() for m in found))

    def find(self, phrase: str) -> list[int]:
        """Index of the first word of every place where all of ``phrase`` stands.

        A phrase without a letter or digit stands nowhere.
        """
        wanted = Words.of(phrase).words
        span = len(wanted)
        return [i for i in range(len(self.words) - span + 1) if self.words[i : i + span] == wanted] if wanted else []

    def __contains__(self, phrase: str) -> bool:
        return bool(self.find(phrase))


def quote(text: Words, phrase: str, near: Collection[str] = (), words: int = 7) -> str | None:
    """``phrase`` as ``text`` has it, with about ``words`` words of its own sentence around it; None: it isn't there.

    Args:
        near: words; of several places the one with the most of them around it is quoted.
    """
    wanted = {word.casefold() for word in near}
    span = len(Words.of(phrase).words)

    def company(first: int) -> int:
        return len(wanted & set(text.words[max(first - _AROUND, 0) : first + span + _AROUND]))

    first = max(text.find(phrase), key=company, default=None)
    if first is None:
        return None
    last = first + span - 1
    before = min(first, words * 2 // 3)
    after = min(last + words - before, len(text.words) - 1)
    inner, end = text.places[first][0], text.places[last][1]
    start, stop = text.places[first - before][0], text.places[after][1]
    for match in _SENTENCE_END.finditer(text.text, start, inner):
        start = match.end()
    boundary = _SENTENCE_END.search(text.text, end, stop)
    return _inline(text.text[start : boundary.start() if boundary else stop])


def definition(text: Words, words: int = 5) -> str | None:
    """What the passage says its subject is: the words behind its first *is* or *was*, up to the end of the sentence."""
    match = _DEFINITION.search(text.text)
    if match is None:
        return None
    places = [place for place in text.places if place[0] >= match.end()][:words]
    if not places:
        return None
    boundary = _SENTENCE_END.search(text.text, match.end(), places[-1][1])
    return _inline(text.text[match.end() : boundary.start() if boundary else places[-1][1]]) or None


def first_year(text: Words) -> int | None:
    """The first number of four digits that may be a year."""
    return next((int(word) for word in text.words if re.fullmatch(r"1\d{3}|20\d{2}", word)), None)


def title_forms(title: str) -> list[str]:
    """A title as people write it: in full, without what is in parentheses, without what follows a comma."""
    bare = re.sub(r"\s*\([^)]*\)", "", title).strip()
    forms = [title, bare, bare.split(",")[0].strip()]
    return [form for form in dict.fromkeys(forms) if Words.of(form).words]


def named(title: str, texts: Iterable[Words]) -> str | None:
    """The longest form of ``title`` that stands in one of ``texts``; None: nobody who read them would know it."""
    texts = list(texts)
    return next((form for form in title_forms(title) if any(form in text for text in texts)), None)


def content_words(text: str, without: Collection[str] = ()) -> list[str]:
    """The words of ``text`` that say what is looked for, in order and once each, as they are written.

    Args:
        without: texts whose words are left out too.
    """
    seen = {word for other in without for word in Words.of(other).words}
    kept = []
    for word in _WORD.findall(unicodedata.normalize("NFKC", text)):
        if word.casefold() not in seen | FUNCTION_WORDS:
            seen.add(word.casefold())
            kept.append(word)
    return kept


def _inline(text: str) -> str:
    # A tag in a passage must not become one of the policy's.
    return " ".join(re.sub(r"[<>]", " ", text).split())
