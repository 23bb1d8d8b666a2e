"""Does what was retrieved hold the evidence? Told beside every score, so that a retriever's share in it is seen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

from sleuth.rewards.graders import GRADERS
from sleuth.types import Document, Question, Retriever, SearchRequest

_CLOSED = frozenset({"yes", "no"})


class Evidence(StrEnum):
    """By what recall is measured. The two can't be compared, so that every table says which it is."""

    TITLES = "titles"
    """The share of the question's supporting titles among the passages' titles."""
    ANSWER = "answer"
    """Whether the words of a golden answer stand in a passage: weaker, since they may stand there by chance."""


def evidence_kind(supporting_titles: Sequence[str], golden_answers: Sequence[str]) -> Evidence | None:
    """What recall of a question can be measured by; None for yes and no, which stand in any passage."""
    if supporting_titles:
        return Evidence.TITLES
    return None if {a.strip().lower() for a in golden_answers} & _CLOSED else Evidence.ANSWER


def recall(
    documents: Iterable[Document], supporting_titles: Sequence[str], golden_answers: Sequence[str]
) -> float | None:
    """From 0 to 1, by :func:`evidence_kind`; None where that is None."""
    kind = evidence_kind(supporting_titles, golden_answers)
    if kind is None:
        return None
    if kind is Evidence.TITLES:
        wanted = {_title(title) for title in supporting_titles}
        return len(wanted & {_title(document.title) for document in documents}) / len(wanted)
    grader = GRADERS["squad"]
    return float(any(grader.cover_em(f"{d.title} {d.text}", list(golden_answers)) == 1.0 for d in documents))


def recall_of_questions(retriever: Retriever, questions: Sequence[Question], k: int) -> dict[str, float | None]:
    """recall@k by id, with the question itself as the query; None where it can't be measured or the search failed."""
    results = retriever.search([SearchRequest(q.question, q.corpus) for q in questions], k) if questions else []
    return {
        q.id: None if result.failed else recall(result.documents[:k], q.supporting_titles, q.golden_answers)
        for q, result in zip(questions, results, strict=True)
    }


def _title(text: str) -> str:
    return " ".join(text.replace("_", " ").casefold().split())
