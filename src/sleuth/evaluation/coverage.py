"""Does the index hold the answers at all? Asked before anything else is paid for."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from sleuth.errors import UserError
from sleuth.rewards.graders import GRADERS
from sleuth.seeds import derive_seed
from sleuth.types import Question, Retriever, SearchRequest

_QUESTIONS = 200


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many of ``questions`` have a golden answer in the best ``k`` passages for the question itself.

    Attributes:
        failed: searches that gave an error; ``error`` is the first one. They are not in ``questions``.
    """

    k: int
    questions: int
    found: int
    failed: int = 0
    error: str | None = None

    @property
    def share(self) -> float:
        return self.found / max(self.questions, 1)

    def line(self) -> str:
        """One line for people."""
        failed = f"; {self.failed} searches failed ({self.error})" if self.failed else ""
        return (
            f"retriever: {self.share:.0%} of {self.questions} questions have their answer in the top {self.k} "
            f"for the question itself{failed}"
        )


def answer_coverage(retriever: Retriever, questions: Sequence[Question], k: int, *, seed: int = 0) -> Coverage:
    """Search for at most 200 of the questions, drawn by ``seed``.

    An answer counts as found where its words stand in a row in a passage (cover-EM of the ``squad`` grader). For
    questions of several hops a low share is no fault, since an agent searches again; 0 almost always is one. Yes and no
    stand in any passage, so that questions with such answers are left out.

    Raises:
        UserError: every search failed.
    """
    rng = random.Random(derive_seed(seed, "coverage"))
    asked = [q for q in questions if not {a.strip().lower() for a in q.golden_answers} & {"yes", "no"}]
    asked = rng.sample(asked, min(len(asked), _QUESTIONS))
    results = retriever.search([SearchRequest(q.question, q.corpus) for q in asked], k) if asked else []
    sound = [(q, r) for q, r in zip(asked, results, strict=True) if not r.failed]
    error = next((r.error for r in results if r.failed), None)
    if asked and not sound:
        raise UserError(f"every search failed ({error}); mend the retriever before anything is run")
    grader = GRADERS["squad"]
    found = sum(
        any(grader.grade(f"{d.title} {d.text}", q.golden_answers).cover_em == 1.0 for d in r.documents)
        for q, r in sound
    )
    return Coverage(k, len(sound), found, len(asked) - len(sound), error)
