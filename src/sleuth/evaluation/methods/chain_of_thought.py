"""Thinking before answering, from memory alone (Wei et al., arXiv 2201.11903)."""

from __future__ import annotations

from sleuth.evaluation.methods.answers import STOP, answer_line
from sleuth.evaluation.methods.examples import EXAMPLES
from sleuth.evaluation.methods.method import Budget, Dialogue, Write, conversation
from sleuth.types import Question

SYSTEM = (
    "Answer each question. First think step by step in a few sentences. "
    "Then write one last line: Answer: and the answer alone, in as few words as possible."
)


def chain_of_thought(question: Question, budget: Budget) -> Dialogue:
    """One message, no search: thoughts, then the answer on a line of its own."""
    examples = [(f"Question: {e.question}", f"Thought: {e.thoughts}\nAnswer: {e.answer}") for e in EXAMPLES]
    asked = conversation(SYSTEM, examples, f"Question: {question.question}")
    return answer_line((yield Write(asked, budget.turn_tokens, STOP)))
