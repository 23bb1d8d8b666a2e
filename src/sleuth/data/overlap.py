"""Questions that two sets share: a test question that was trained on measures memory.

MuSiQue's questions are put together from single-hop questions of SQuAD, NQ and others (Trivedi et al. 2022), so that
its steps are looked for as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from sleuth.rewards.normal_forms import robust_form
from sleuth.types import Question

_REFERENCE = re.compile(r"#(\d+)")
_RELATION = ">>"


@dataclass(frozen=True, slots=True)
class SharedQuestion:
    """``question`` is asked under ``id`` in one set and under ``other_id`` in the other."""

    question: str
    id: str
    other_id: str


@dataclass(frozen=True, slots=True)
class SharedStep:
    """Step number ``step`` (from 1) of ``id``, as its own question, is asked under ``other_id`` in the other set.

    Attributes:
        last: whether the step's answer is the whole question's: then the other set teaches the answer itself.
    """

    question: str
    id: str
    step: int
    other_id: str
    last: bool


def shared_questions(questions: Iterable[Question], others: Iterable[Question]) -> list[SharedQuestion]:
    """Each of ``questions`` whose text is in ``others`` too, in order, with the first one there.

    Texts are compared by :func:`question_key`; a paraphrase is another question.
    """
    first = _first_ids(others)
    return [
        SharedQuestion(question.question, question.id, first[key])
        for question in questions
        if (key := question_key(question.question)) in first
    ]


def shared_steps(questions: Iterable[Question], others: Iterable[Question]) -> list[SharedStep]:
    """Each step of ``questions`` (their ``extra["decomposition"]``) whose text is in ``others`` too.

    A reference to an earlier step (``#1``) is replaced by that step's answer first. Steps that are no question but a
    relation (``X >> publisher``, from T-REx and zsRE) can't be found by their text.
    """
    first = _first_ids(others)
    return [
        SharedStep(text, question.id, number, first[key], last=number == total)
        for question in questions
        for number, total, text in step_questions(question)
        if (key := question_key(text)) in first
    ]


def step_questions(question: Question) -> Iterator[tuple[int, int, str]]:
    """(number from 1, number of steps, text) of the steps that are questions, earlier answers put in."""
    steps = question.extra.get("decomposition")
    if not isinstance(steps, list) or not all(isinstance(step, Mapping) for step in steps):
        return
    answers = [str(step.get("answer") or "") for step in steps]

    def put_in(match: re.Match[str]) -> str:
        number = int(match[1])
        return answers[number - 1] if 1 <= number <= len(answers) else match[0]

    for number, step in enumerate(steps, 1):
        text = step.get("question")
        if isinstance(text, str) and text.strip() and _RELATION not in text:
            yield number, len(steps), _REFERENCE.sub(put_in, text)


@dataclass(frozen=True, slots=True)
class OverlapReport:
    """What a test set shares with the sets that were trained on.

    Attributes:
        questions: size of the test set; ``with_steps``: how many of them have steps at all.
        shared: training set → whole questions. ``steps``: training set → steps.
        leaking: ids of test questions shared whole, or whose last step is; what a clean score leaves out.
    """

    questions: int
    with_steps: int
    shared: Mapping[str, Sequence[SharedQuestion]] = field(default_factory=dict)
    steps: Mapping[str, Sequence[SharedStep]] = field(default_factory=dict)

    @property
    def leaking(self) -> frozenset[str]:
        whole = {one.id for found in self.shared.values() for one in found}
        return frozenset(whole | {one.id for found in self.steps.values() for one in found if one.last})

    @property
    def touched(self) -> frozenset[str]:
        """Ids of test questions that share anything."""
        return self.leaking | {one.id for found in self.steps.values() for one in found}

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "questions": self.questions,
            "with_steps": self.with_steps,
            "leaking": sorted(self.leaking),
            "touched": sorted(self.touched),
            "shared": {name: [asdict(one) for one in found] for name, found in self.shared.items()},
            "steps": {name: [asdict(one) for one in found] for name, found in self.steps.items()},
        }

    def lines(self, name: str) -> list[str]:
        """For people; ``name`` is the test set's."""
        out = [
            f"{name}: {len(found):,} of {self.questions:,} questions are in {other} too"
            for other, found in self.shared.items()
        ]
        for other, found in self.steps.items():
            if self.with_steps:
                questions = len({one.id for one in found})
                last = len({one.id for one in found if one.last})
                out.append(
                    f"{name}: {questions:,} of {self.with_steps:,} questions with steps have a step that is a question "
                    f"of {other}; for {last:,} it is the last step, whose answer is the question's"
                )
        return out

    def examples(self, limit: int) -> list[str]:
        """At most ``limit`` lines, whole questions first."""
        whole = [f"{one.id} = {one.other_id}: {one.question}" for found in self.shared.values() for one in found]
        steps = [
            f"{one.id}, step {one.step} = {one.other_id}: {one.question}"
            for found in self.steps.values()
            for one in found
        ]
        return [*whole, *steps][:limit]


def overlap_report(questions: Sequence[Question], trained_on: Mapping[str, Sequence[Question]]) -> OverlapReport:
    """Whole questions and steps of ``questions`` that are in the named training sets."""
    return OverlapReport(
        questions=len(questions),
        with_steps=sum(1 for question in questions if question.extra.get("decomposition")),
        shared={name: shared_questions(questions, others) for name, others in trained_on.items()},
        steps={name: shared_steps(questions, others) for name, others in trained_on.items()},
    )


def question_key(text: str) -> str:
    """What two spellings of a question have in common: the robust grader's normal form, or the text if that is empty.

    Sets differ in capitals, in the question mark (NQ has none, Search-R1 adds one), in quotes and dashes.
    """
    form = robust_form(text)
    return form.normal or form.folded


def _first_ids(questions: Iterable[Question]) -> dict[str, str]:
    first: dict[str, str] = {}
    for question in questions:
        first.setdefault(question_key(question.question), question.id)
    return first
