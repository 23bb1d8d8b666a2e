"""What the two graders compare: the normal form of an answer."""

from __future__ import annotations

import re
import string
import unicodedata
from dataclasses import dataclass
from functools import lru_cache

_ASCII_PUNCTUATION = str.maketrans("", "", string.punctuation)
_CACHED = 4096  # the rollouts of a group are all compared with the same golden answers
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")


@lru_cache(_CACHED)
def squad_normalize(text: str) -> str:
    """The published normal form: lower-case, no ASCII punctuation, no a/an/the, single spaces, in this order.

    Source: SQuAD (arXiv 1606.05250), its evaluation script; HotpotQA and Search-R1 use the same.
    """
    return _without_articles(text.lower().translate(_ASCII_PUNCTUATION))


def robust_normalize(text: str) -> str:
    """The Unicode- and number-aware normal form: :func:`squad_normalize` after folding what only looks different.

    Folded are compatibility forms (NFKD), case, diacritics that decomposition sets apart, dashes and quotes; dots
    inside abbreviations go with the punctuation. A number keeps its sign and decimal point and is written by value
    (``1,000.0`` is ``1000``, ``-.50`` is ``-0.5``); punctuation between two numbers separates them (``1990–95`` is
    ``1990 95``).
    """
    return robust_form(text).normal


@dataclass(frozen=True, slots=True)
class RobustForm:
    """``normal`` is the normal form, ``numbers`` the values in it in their order, ``folded`` the text before anything
    was dropped: what is compared when ``normal`` is empty."""

    normal: str
    numbers: tuple[str, ...]
    folded: str


@lru_cache(_CACHED)
def robust_form(text: str) -> RobustForm:
    """See :func:`robust_normalize`."""
    folded = _fold(text)
    pieces: list[str] = []
    numbers: list[str] = []
    end = 0
    for match in _NUMBER.finditer(folded):
        lead, start = match["lead"], match.start()
        pieces.append(_drop_punctuation(folded[end:start] + lead))
        if lead and start > 0 and folded[start - 1].isdecimal():
            pieces.append(" ")
        values = _values(match, starts_word=start == 0 or folded[start - 1].isspace())
        pieces.append(" ".join(values))
        numbers.extend(values)
        end = match.end()
    pieces.append(_drop_punctuation(folded[end:]))
    return RobustForm(_without_articles("".join(pieces)), tuple(numbers), folded.strip())


def _without_articles(text: str) -> str:
    return " ".join(_ARTICLE.sub(" ", text).split())


# ---------------------------------------------------------------------------------------------------------------------
# Folding

# Before decomposition, which would make a space of the acute accent in Don´t.
_APOSTROPHES = dict.fromkeys(map(ord, "´ʹʻʼʽˈ‘’‛′"), "'")
_DASHES_AND_SLASHES = dict.fromkeys(map(ord, "‐‒–−⁃"), "-") | {ord("⁄"): "/"}
# Decomposed, 10² would read 102 and 2½ would read 21/2.
_RAISED = re.compile("(?<=[0-9])[²³¹⁰⁴-⁹⁺⁻₀-₉¼-¾⅐-⅞↉①-⓿❶-➓]")


def _fold(text: str) -> str:
    if text.isascii():
        return text.lower()
    # Composed first, since some signs are another sign's other name (U+0374 is U+02B9, U+1FFD is the acute accent).
    text = unicodedata.normalize("NFC", text).translate(_APOSTROPHES)
    text = "".join(str(unicodedata.decimal(c)) if c.isdecimal() else c for c in text)
    text = unicodedata.normalize("NFKD", _RAISED.sub(r" \g<0>", text)).casefold()
    # Classes from 200 on are accents above, below and through a letter; lower ones (the voicing mark that sets が apart
    # from か, vowel points) are letters of their own.
    text = "".join(c for c in unicodedata.normalize("NFKD", text) if unicodedata.combining(c) < 200)
    return text.translate(_DASHES_AND_SLASHES)


def _drop_punctuation(text: str) -> str:
    text = text.translate(_ASCII_PUNCTUATION)
    if text.isascii():
        return text
    return "".join(c for c in text if unicodedata.category(c)[0] != "P" and unicodedata.category(c) != "Cf")


# ---------------------------------------------------------------------------------------------------------------------
# Numbers

# No more than 40 groups: a row of groups that ends wrong is tried anew from each of them.
_NUMBER = re.compile(
    r"""
    (?P<lead> (?<![^\w\s]) (?<!_) (?:[^\w\s]|_)+ | )         # all the punctuation before it
    (?:
        (?P<grouped> D{1,3}(?:,D{3})MOST | D{1,3}(?:'D{3})MOST | D{1,3}(?:_D{3})MOST | D{1,2}(?:,D{2}){1,40},D{3} )
        (?: \.(?P<grouped_fraction>D++)(?!\.D) | (?![.,'_]?D) )
      | (?P<dot_grouped> D{1,3}(?:\.D{3}){2,} ) (?!\.?D)
      | (?P<dotted> D++(?:\.D++){2,} )                     # a date, a version, an address
      | (?P<plain> D++ ) (?: \.(?P<fraction>D++) )?
    )
    """.replace("MOST", "{1,40}+").replace("D", "[0-9]"),
    re.VERBOSE,
)
_OPENING = "=<>~≈≤≥([{"


def _values(match: re.Match[str], *, starts_word: bool) -> list[str]:
    """The values that a match of ``_NUMBER`` stands for: one, or one for each part of a date or version."""
    if match["dotted"]:
        return [_value("", part, "") for part in match["dotted"].split(".")]
    if match["plain"]:
        whole, fraction = match["plain"], match["fraction"] or ""
    else:
        whole = re.sub(r"[,'_.]", "", match["grouped"] or match["dot_grouped"])
        fraction = match["grouped_fraction"] or ""
    lead = match["lead"]

    def begins(position: int) -> bool:
        # No.5 is 5 and U-2 has no sign, but .5 is a half and x=-2 is negative.
        return lead[position - 1] in _OPENING if position and not starts_word else starts_word

    if lead.endswith(".") and not lead.endswith("..") and not fraction and begins(len(lead) - 1):
        whole, fraction = "0", whole
    sign = lead.rfind("-")
    negative = lead.count("-") == 1 and begins(sign)
    return [_value("-" if negative else "", whole, fraction)]


def _value(sign: str, whole: str, fraction: str) -> str:
    whole, fraction = whole.lstrip("0") or "0", fraction.rstrip("0")
    value = f"{whole}.{fraction}" if fraction else whole
    return value if value == "0" else sign + value
