"""Retrieval interleaved with a chain of thought: each new sentence is the next query (IRCoT, arXiv 2212.10509).

Passages pile up, and every sentence is written with all of them in view. Where the paper gives the passages to a reader
of its own in the end, here the same model reads them.
"""

from __future__ import annotations

from collections.abc import Sequence

from sleuth.evaluation.methods.answers import answer_line, whole_answer
from sleuth.evaluation.methods.examples import EXAMPLES, Example
from sleuth.evaluation.methods.method import Budget, Dialogue, Find, Write, conversation, show
from sleuth.types import Document, Question

SYSTEM = (
    "Answer a question with the help of passages, one sentence at a time. Given the passages and the thoughts so far, "
    "write the next thought as one sentence: Thought: and what the passages tell. "
    "As soon as the thoughts tell the answer, write Answer: and the answer alone, in as few words as possible."
)
_LAST = "Now give the answer. Answer: and the answer alone."


def ircot(question: Question, budget: Budget) -> Dialogue:
    """Search, one sentence, search for that sentence, …; the answer as soon as a sentence is one."""
    documents: dict[str, Document] = {}
    thoughts: list[str] = []
    query = question.question
    for _ in range(budget.searches):
        found: list[Document] = yield Find(query)
        documents |= {f"{d.title}\n{d.text}": d for d in found}
        asked = conversation(SYSTEM, _examples(budget), _asked(question.question, documents, thoughts, budget))
        written = yield Write(asked, budget.turn_tokens, ("\n",))
        if (answer := answer_line(written)) is not None:
            return answer
        query = written.text.removeprefix("Thought:").strip()
        if not query:
            break
        thoughts.append(query)
    asked_last = f"{_asked(question.question, documents, thoughts, budget)}\n{_LAST}"
    return whole_answer(
        (yield Write(conversation(SYSTEM, _examples(budget), asked_last), budget.answer_tokens, ("\n",)))
    )


def _asked(question: str, documents: dict[str, Document], thoughts: Sequence[str], budget: Budget) -> str:
    so_far = " ".join(thoughts) or "none"
    return f"Passages:\n{show(list(documents.values()), budget)}\nQuestion: {question}\nThoughts so far: {so_far}"


def _examples(budget: Budget) -> list[tuple[str, str]]:
    first, second = EXAMPLES
    return [_first_thought(first, budget), _answer(second, budget)]


def _first_thought(example: Example, budget: Budget) -> tuple[str, str]:
    document = example.documents[0]
    return _asked(example.question, {"": document}, [], budget), f"Thought: {document.text}"


def _answer(example: Example, budget: Budget) -> tuple[str, str]:
    documents = {d.title: d for d in example.documents}
    thoughts = [*(d.text for d in example.documents), example.conclusion]
    return _asked(example.question, documents, thoughts, budget), f"Answer: {example.answer}"
