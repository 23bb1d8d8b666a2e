"""Questions that two sets share: a test question that was trained on measures memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sleuth.rewards.normal_forms import robust_form
from sleuth.types import Question


@dataclass(frozen=True, slots=True)
class SharedQuestion:
    """``question`` is asked under ``id`` in one set and under ``other_id`` in the other."""

    question: str
    id: str
    other_id: str


def shared_questions(questions: Iterable[Question], others: Iterable[Question]) -> list[SharedQuestion]:
    """Each of ``questions`` whose text is in ``others`` too, in order, with the first one there.

    Texts are compared by :func:`question_key`; a paraphrase is another question.
    """
    first: dict[str, str] = {}
    for other in others:
        first.setdefault(question_key(other.question), other.id)
    return [
        SharedQuestion(question.question, question.id, first[key])
        for question in questions
        if (key := question_key(question.question)) in first
    ]


def question_key(text: str) -> str:
    """What two spellings of a question have in common: the robust grader's normal form, or the text if that is empty.

    Sets differ in capitals, in the question mark (NQ has none, Search-R1 adds one), in quotes and dashes.
    """
    form = robust_form(text)
    return form.normal or form.folded
