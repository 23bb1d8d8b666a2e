"""The answer from memory alone."""

from __future__ import annotations

from sleuth.evaluation.methods.answers import whole_answer
from sleuth.evaluation.methods.examples import EXAMPLES
from sleuth.evaluation.methods.method import Budget, Dialogue, Write, conversation
from sleuth.types import Question

SYSTEM = "Answer each question with the answer alone, in as few words as possible."


def direct(question: Question, budget: Budget) -> Dialogue:
    """One message, no search: what the model knows."""
    examples = [(f"Question: {e.question}", f"Answer: {e.answer}") for e in EXAMPLES]
    asked = conversation(SYSTEM, examples, f"Question: {question.question}")
    return whole_answer((yield Write(asked, budget.answer_tokens, ("\n",))))
