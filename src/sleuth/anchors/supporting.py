"""Anchors of questions whose data set names the evidence: supporting passages, facts or titles."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from sleuth.anchors.passages import Passages
from sleuth.anchors.rows import Anchor, AnchorRow
from sleuth.anchors.verify import Answers, gives_away, hide_answers, problem_of
from sleuth.training.evidence import Words, content_words
from sleuth.types import Document, Question

EXPLANATION_WORDS = 40

SUPPORT = ("supporting_ids", "supporting_facts", "context")
"""Columns of a question, beside its supporting titles, that name evidence."""

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"“])")
_ABBREVIATION = re.compile(
    r"(?:^|[\s(\"“.])(?:[A-Za-z]|Jr|Sr|Dr|Mr|Mrs|Ms|St|Mt|Ft|No|Gen|Lt|Col|Capt|Rev|Prof|Gov|Sen|Rep|vs|lit)\.$"
)
"""Ends in a full stop that ends no sentence: a title of a person, an initial."""


def has_support(question: Question) -> bool:
    """Whether the data set names this question's evidence."""
    return bool(question.supporting_titles or question.extra.get("supporting_ids"))


def supporting_anchors(question: Question, passages: Passages, answers: Answers = "hide") -> AnchorRow:
    """An anchor for each supporting passage (``supporting_ids``) or, without those, each supporting title.

    The explanation is the supporting sentence where the data set names it (HotpotQA's ``supporting_facts`` beside its
    ``context``); else the sentence of the passage that has most of the question's words, or the answer.
    """
    anchors: list[Anchor] = []
    problems: list[str] = []
    facts = _named_sentences(question)
    for title, found in _evidence(question, passages):
        title = title or (found[0].title if found else "")
        passage, explanation = _explained(question, found, facts.get(title, []))
        if answers == "hide":
            explanation = hide_answers(explanation, question.golden_answers)
        problem = problem_of(question, title, explanation, found, answers)
        if problem:
            problems.append(problem)
        else:
            anchors.append(Anchor(title, explanation, passage.id if passage else None))
    unique = tuple(dict.fromkeys(anchors))
    return AnchorRow(question.id, question.question, unique, "supporting", tuple(problems))


def _evidence(question: Question, passages: Passages) -> list[tuple[str, list[Document]]]:
    """Title (empty where only an id is known) and passages of each piece of evidence."""
    ids = question.extra.get("supporting_ids")
    if isinstance(ids, list):
        found = [(str(i), passages.with_id(str(i), question.corpus)) for i in ids]
        if all(d is not None for _, d in found) and found:
            return [(d.title, [d]) for _, d in found if d is not None]
    return [(title, passages.titled(title, question.corpus)) for title in question.supporting_titles]


def _explained(question: Question, found: Sequence[Document], named: Sequence[str]) -> tuple[Document | None, str]:
    """The passage and its sentence that say most."""
    if named:
        holder = next((d for d in found if any(s in " ".join(d.text.split()) for s in named)), None)
        return holder or (found[0] if found else None), _short(" ".join(named))
    asked = {w.casefold() for w in content_words(question.question)}
    best: tuple[int, Document, str] | None = None
    for document in found:
        for sentence in _sentences(document.text):
            words = {w.casefold() for w in Words.of(sentence).words}
            score = len(asked & words) + 2 * gives_away(sentence, question.golden_answers)
            if best is None or score > best[0]:
                best = score, document, sentence
    return (None, "") if best is None else (best[1], _short(best[2]))


def _sentences(text: str) -> list[str]:
    out: list[str] = []
    for piece in _SENTENCE_END.split(" ".join(text.split())):
        if out and _ABBREVIATION.search(out[-1]):
            out[-1] += " " + piece
        else:
            out.append(piece)
    return out


def _named_sentences(question: Question) -> dict[str, list[str]]:
    """HotpotQA's supporting sentences by title: facts ``[title, number]`` and a context of ``[title, sentences]``."""
    facts, context = question.extra.get("supporting_facts"), question.extra.get("context")
    try:
        if isinstance(facts, dict):
            facts = list(zip(facts["title"], facts["sent_id"], strict=True))
        if isinstance(context, dict):
            context = list(zip(context["title"], context["sentences"], strict=True))
        sentences: dict[str, Any] = dict(context or [])
        named: dict[str, list[str]] = {}
        for title, number in facts or []:
            texts = sentences.get(title, [])
            if isinstance(texts, list) and 0 <= number < len(texts):
                named.setdefault(title, []).append(" ".join(str(texts[number]).split()))
    except (KeyError, TypeError, ValueError):
        return {}  # in another form: the passage itself says it
    return named


def _short(text: str) -> str:
    words = text.split()
    return " ".join(words[:EXPLANATION_WORDS]) + (" …" if len(words) > EXPLANATION_WORDS else "")
