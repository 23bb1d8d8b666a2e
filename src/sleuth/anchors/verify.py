"""Whether an anchor may be shown: its passage exists, the title is that passage's, and the answer isn't given away."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from sleuth.training.evidence import Words
from sleuth.types import Document, Question

Answers = Literal["hide", "refuse", "allow"]
"""A golden answer in an explanation: replaced by :data:`HIDDEN`, a reason to leave the anchor out, or left there."""

HIDDEN = "___"

_TOO_COMMON = frozenset({"yes", "no"})


def same_title(one: str, other: str) -> bool:
    """Whether two titles have the same words, whatever their case and punctuation."""
    return Words.of(one).words == Words.of(other).words and bool(Words.of(one).words)


def gives_away(text: str, golden_answers: Sequence[str]) -> bool:
    """Whether a golden answer stands in ``text``, word by word; *yes* and *no* give nothing away."""
    words = Words.of(text)
    return any(a in words for a in golden_answers if a.strip().casefold() not in _TOO_COMMON)


def hide_answers(text: str, golden_answers: Sequence[str]) -> str:
    """``text`` with :data:`HIDDEN` in place of every golden answer, the longest first."""
    for answer in sorted(golden_answers, key=len, reverse=True):
        if answer.strip().casefold() in _TOO_COMMON:
            continue
        words = Words.of(text)
        span = len(Words.of(answer).words)
        for first in reversed(words.find(answer)):
            start, end = words.places[first][0], words.places[first + span - 1][1]
            text = words.text[:start] + HIDDEN + words.text[end:]
            words = Words.of(text)
    return text


def problem_of(
    question: Question, title: str, explanation: str, passages: Sequence[Document], answers: Answers
) -> str | None:
    """Why an anchor is not sound; None when it is.

    Args:
        passages: what the corpus has under the passage's id or title.
        answers: with ``hide`` the explanation is taken as it will be shown.
    """
    if not title.strip():
        return "an anchor without a title"
    if not passages:
        return f'"{title}": no such passage'
    if not any(same_title(title, d.title) for d in passages):
        return f'"{title}": the passage is called "{passages[0].title}"'
    if not re.search(r"[^\W_]", explanation):
        return f'"{title}": no explanation'
    if answers == "refuse" and gives_away(explanation, question.golden_answers):
        return f'"{title}": the explanation gives the answer away'
    return None
