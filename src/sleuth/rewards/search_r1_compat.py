"""The grading of the field's first tables, faults included: for comparison with them, and for nothing else.

Search-R1 (arXiv 2503.09516) reads the last ``<answer>`` element of everything, its own prompt and the retrieved pages
included, and compares normal forms without a look at what is left of them. So an unanswered rollout is right where the
prompt's example is, a page can answer, and ``a`` equals ``The``. Nothing in Sleuth uses it unless it is named.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sleuth.errors import UserError
from sleuth.rewards.graders import GRADERS, UNANSWERED, Grade, Grader
from sleuth.rewards.normal_forms import squad_normalize
from sleuth.types import SpanKind, Trajectory

_OPEN, _CLOSE = "<answer>", "</answer>"


class _SearchR1Compat(Grader):
    def _grade_one(self, prediction: str, normal: str, gold: str) -> Grade:
        if self.same(prediction, gold):
            return Grade(1.0, 1.0, 1.0)
        normal_gold = self.normalize(gold)
        # Its "substring EM" has no token boundaries: piano covers no.
        covered = float(normal_gold in normal)
        if not normal or not normal_gold:
            return Grade(0.0, 0.0, covered) if covered else UNANSWERED
        return Grade(0.0, super()._grade_one(prediction, normal, gold).f1, covered)


SEARCH_R1_COMPAT = _SearchR1Compat(
    name="search-r1-compat",
    normalize=squad_normalize,
    same=lambda prediction, gold: squad_normalize(prediction) == squad_normalize(gold),
    note="for comparison with old tables only",
)
"""Its EM and substring EM; F1, which it has not, is ``squad``'s."""

EVALUATION_GRADERS: dict[str, Grader] = {**GRADERS, SEARCH_R1_COMPAT.name: SEARCH_R1_COMPAT}
"""What an evaluation may name. Rewards may name those of :data:`sleuth.rewards.graders.GRADERS` alone."""


def evaluation_grader(name: str) -> Grader:
    """The grader of that name.

    Raises:
        UserError: there is none.
    """
    if name not in EVALUATION_GRADERS:
        raise UserError(f'no grader "{name}"; there are {", ".join(EVALUATION_GRADERS)}')
    return EVALUATION_GRADERS[name]


def search_r1_answer(text: str) -> str | None:
    """What Search-R1 takes for the answer: the last answer element of prompt and rollout together, if there are two.

    Two, since the first is taken for the prompt's example.
    """
    elements = list(_elements(text))
    return elements[-1].strip() if len(elements) > 1 else None


def search_r1_prediction(spans: list[dict[str, Any]]) -> str | None:
    """:func:`search_r1_answer` of the spans of a saved rollout (``sleuth.rollout/1``), by their texts."""
    return search_r1_answer("".join(str(span.get("text") or "") for span in spans))


def compat_prediction(trajectory: Trajectory) -> str | None:
    """What Search-R1 takes for a rollout's answer: :func:`search_r1_answer` of all its text where its prompt speaks of
    the element, as Search-R1's does; of any other prompt the answer as it was given."""
    prompt = "".join(span.text for span in trajectory.spans if span.kind is SpanKind.PROMPT)
    if _OPEN not in prompt:
        return trajectory.answer
    return search_r1_answer("".join(span.text for span in trajectory.spans))


def _elements(text: str) -> Iterator[str]:
    end = 0
    while (start := text.find(_OPEN, end)) >= 0:
        start += len(_OPEN)
        stop = text.find(_CLOSE, start)
        if stop < 0:
            return
        yield text[start:stop]
        end = stop + len(_CLOSE)
