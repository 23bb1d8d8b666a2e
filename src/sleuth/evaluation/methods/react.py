"""Thought, action, observation, in turn (ReAct, arXiv 2210.03629), with a search engine instead of its two actions."""

from __future__ import annotations

import re

from sleuth.evaluation.methods.examples import EXAMPLES
from sleuth.evaluation.methods.method import Budget, Dialogue, Find, Write, conversation, show
from sleuth.types import Question

SYSTEM = (
    "Answer a question in steps. Each step is two lines. Thought: what you know and what is missing. "
    "Action: either search[a short query], and the next message shows what was found, "
    "or finish[the answer alone, in as few words as possible]."
)
_INVALID = "Observation: no action was given. Write Action: search[query] or Action: finish[answer]."
_LAST = "\nNo search is left. Finish now."
_ACTION = re.compile(r"Action:[ \t]*(search|finish)[ \t]*\[([^\]]*)\]", re.IGNORECASE)


def react(question: Question, budget: Budget) -> Dialogue:
    """At most ``searches`` searches, and one turn more than that to finish in."""
    turns = [f"Question: {question.question}"]
    for turn in range(budget.searches + 1):
        written = yield Write(conversation(SYSTEM, _examples(budget), *turns), budget.turn_tokens, ("\nObservation:",))
        action = find_action(written.text)
        if action and action[1].lower() == "finish":
            return action[2].strip() or None
        if turn == budget.searches:
            return None
        said = written.text[: action.end()] if action else written.text
        if action and action[2].strip():
            documents = yield Find(action[2].strip())
            seen = f"Observation:\n{show(documents, budget)}"
        else:
            seen = _INVALID
        last = _LAST if turn == budget.searches - 1 else ""
        turns += [said.strip() or "Thought:", seen + last]
    return None


def find_action(text: str) -> re.Match[str] | None:
    """The first action that stands on one line: its name, and what is in its brackets. Groups and offsets of ``text``.

    Only up to each line's last bracket is searched, so that actions that are never closed take no time.
    """
    start = 0
    for line in text.split("\n"):
        closed = line.rfind("]") + 1
        if closed and (found := _ACTION.search(text, start, start + closed)) is not None:
            return found
        start += len(line) + 1
    return None


def _examples(budget: Budget) -> list[tuple[str, str]]:
    pairs = []
    for example in EXAMPLES:
        seen = f"Question: {example.question}"
        for thought, query, document in example.steps:
            pairs.append((seen, f"Thought: {thought}\nAction: search[{query}]"))
            seen = f"Observation:\n{show([document], budget)}"
        pairs.append((seen, f"Thought: {example.conclusion}\nAction: finish[{example.answer}]"))
    return pairs
