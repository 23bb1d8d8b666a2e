"""Reasoning that may stop to search, with the passages condensed before they enter it (Search-o1, arXiv 2501.05366).

The model never reasons over raw passages: a second message, with the reasoning so far in view, takes from them what
helps, and only that goes on ("reason in documents").
"""

from __future__ import annotations

from sleuth.evaluation.methods.answers import STOP, answer_line
from sleuth.evaluation.methods.examples import EXAMPLES
from sleuth.evaluation.methods.method import Budget, Dialogue, Find, Write, conversation, show
from sleuth.types import Question

SYSTEM = (
    "Answer a question by reasoning step by step. When a fact is missing, write <search> a short query </search> "
    "and stop; the next message tells what was found. As soon as you know, write one last line: "
    "Answer: and the answer alone, in as few words as possible."
)
CONDENSE = (
    "You are given a question, the reasoning so far, and passages that a search has found. "
    "Write down in one or two sentences what in the passages helps to go on. If nothing does, write: Nothing helpful."
)
_LAST = "\nNo search is left. Give the answer now."


def search_o1(question: Question, budget: Budget) -> Dialogue:
    """At most ``searches`` searches, each with a message that condenses its passages."""
    turns = [f"Question: {question.question}"]
    for turn in range(budget.searches + 1):
        written = yield Write(conversation(SYSTEM, _examples(), *turns), budget.turn_tokens, ("</search>", *STOP))
        if (answer := answer_line(written)) is not None:
            return answer
        thought, opened, query = written.text.partition("<search>")
        if turn == budget.searches:
            return None
        if opened and query.strip() and not written.cut:
            documents = yield Find(query.strip())
            reasoning = " ".join([*turns[1:], thought.strip()]).strip()
            told = f"Question: {question.question}\nReasoning so far: {reasoning}\nPassages:\n{show(documents, budget)}"
            condensed = yield Write(conversation(CONDENSE, (), told), budget.turn_tokens, STOP)
            said, seen = f"{thought.strip()} <search> {query.strip()} </search>", condensed.text.strip()
        else:
            said, seen = written.text.strip() or "…", "Go on: search, or give the answer."
        last = _LAST if turn == budget.searches - 1 else ""
        turns += [said.strip(), f"Found: {seen}{last}"]
    return None


def _examples() -> list[tuple[str, str]]:
    pairs = []
    for example in EXAMPLES:
        seen = f"Question: {example.question}"
        for thought, query, document in example.steps:
            pairs.append((seen, f"{thought} <search> {query} </search>"))
            seen = f"Found: {document.text}"
        pairs.append((seen, f"{example.conclusion}\nAnswer: {example.answer}"))
    return pairs
