"""The two graders of short answers, each with exact match, token F1 and cover exact match.

``squad`` is the published one, so that numbers compare; ``robust`` is opt-in and accepts all that ``squad`` accepts
except where numbers or signs differ. Every report names the grader that it used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sleuth.rewards.answers import golden_answers
from sleuth.rewards.normal_forms import robust_form, robust_normalize, squad_normalize

_CLOSED_ANSWERS = frozenset({"yes", "no", "noanswer"})


@dataclass(frozen=True, slots=True)
class Grade:
    """Scores of one prediction against the best of its golden answers, from 0 to 1; ``em`` is never above another."""

    em: float
    f1: float
    cover_em: float


UNANSWERED = Grade(0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Grader:
    """A way of comparing answers.

    All methods take the prediction (None when there is no answer, which scores 0) and golden answers in any form that
    :func:`sleuth.rewards.answers.golden_answers` reads, and raise its UserError when there is none.

    Attributes:
        normalize: text to normal form, whose tokens stand between single spaces.
        same: whether two texts are the same answer; True wherever their normal forms are equal and not empty.
        note: what has to stand wherever its scores do.
    """

    name: str
    normalize: Callable[[str], str]
    same: Callable[[str, str], bool]
    note: str = ""

    @property
    def label(self) -> str:
        """Its name with its note, for titles."""
        return f"{self.name} ({self.note})" if self.note else self.name

    def grade(self, prediction: str | None, golds: Any) -> Grade:
        """All three scores at once."""
        golds = golden_answers(golds)
        if prediction is None:
            return UNANSWERED
        normal = self.normalize(prediction)
        grades = [self._grade_one(prediction, normal, gold) for gold in golds]
        return Grade(*(max(getattr(grade, name) for grade in grades) for name in Grade.__dataclass_fields__))

    def exact_match(self, prediction: str | None, golds: Any) -> float:
        """1.0 if the prediction is the same as a golden answer, else 0.0.

        Where both normalise to nothing, the published rule would call them equal; here ``same`` looks at their raw
        text, so that ``!!!`` isn't ``?`` and an empty answer matches nothing.
        """
        return self.grade(prediction, golds).em

    def f1(self, prediction: str | None, golds: Any) -> float:
        """Harmonic mean of precision and recall over the bag of tokens.

        ``yes``, ``no`` and ``noanswer``, on either side, must match exactly. Source of that rule: HotpotQA
        (arXiv 1809.09600), its evaluation script; the F1 rewards of Search-R1's descendants (SAPO, arXiv 2603.10069)
        follow it, SQuAD's own script does not have it.
        """
        return self.grade(prediction, golds).f1

    def cover_em(self, prediction: str | None, golds: Any) -> float:
        """1.0 if the tokens of a golden answer stand in the prediction in one piece, else 0.0. Not an exact match."""
        return self.grade(prediction, golds).cover_em

    def _grade_one(self, prediction: str, normal: str, gold: str) -> Grade:
        if self.same(prediction, gold):
            return Grade(1.0, 1.0, 1.0)
        normal_gold = self.normalize(gold)
        if not normal or not normal_gold:
            return UNANSWERED
        return Grade(0.0, _token_f1(normal, normal_gold), float(f" {normal_gold} " in f" {normal} "))


def _token_f1(normal: str, normal_gold: str) -> float:
    if normal in _CLOSED_ANSWERS or normal_gold in _CLOSED_ANSWERS:
        return float(normal == normal_gold)
    tokens, gold_tokens = normal.split(), normal_gold.split()
    shared = sum((Counter(tokens) & Counter(gold_tokens)).values())
    if shared == 0:
        return 0.0
    precision, recall = shared / len(tokens), shared / len(gold_tokens)
    return 2 * precision * recall / (precision + recall)


def _same_for_squad(prediction: str, gold: str) -> bool:
    normal = squad_normalize(prediction)
    if normal != squad_normalize(gold):
        return False
    return bool(normal) or _same_text(prediction.lower(), gold.lower())


def _same_for_robust(prediction: str, gold: str) -> bool:
    form, gold_form = robust_form(prediction), robust_form(gold)
    if form.normal == gold_form.normal and (form.normal or _same_text(form.folded, gold_form.folded)):
        return True
    # Folding can join what the published form keeps apart, so its verdict is asked too.
    return form.numbers == gold_form.numbers and _same_for_squad(prediction, gold)


def _same_text(text: str, other: str) -> bool:
    return bool(text.strip()) and text.strip() == other.strip()


GRADERS: dict[str, Grader] = {
    "squad": Grader("squad", squad_normalize, _same_for_squad),
    "robust": Grader("robust", robust_normalize, _same_for_robust),
}
