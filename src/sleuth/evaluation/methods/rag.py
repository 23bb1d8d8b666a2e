"""Single-shot retrieval-augmented generation: one search for the question itself (Lewis et al., arXiv 2005.11401)."""

from __future__ import annotations

from collections.abc import Sequence

from sleuth.evaluation.methods.answers import whole_answer
from sleuth.evaluation.methods.examples import EXAMPLES
from sleuth.evaluation.methods.method import Budget, Dialogue, Find, Write, conversation, show
from sleuth.types import Document, Question

SYSTEM = (
    "Answer each question with the help of the passages above it. Give the answer alone, in as few words as possible."
)


def rag(question: Question, budget: Budget) -> Dialogue:
    """The best passages for the question, then one message."""
    documents = yield Find(question.question)
    examples = [(_asked(e.question, e.documents, budget), f"Answer: {e.answer}") for e in EXAMPLES]
    asked = conversation(SYSTEM, examples, _asked(question.question, documents, budget))
    return whole_answer((yield Write(asked, budget.answer_tokens, ("\n",))))


def _asked(question: str, documents: Sequence[Document], budget: Budget) -> str:
    return f"Passages:\n{show(documents, budget)}\nQuestion: {question}"
