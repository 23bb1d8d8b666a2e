"""What a method is: a generator that says what it needs next, a message or passages, and returns its answer.

It does no I/O and knows no model, so that the same few lines run on a local model in lock-step batches and on an
endpoint with hundreds of questions at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

from sleuth.samplers.writer import Message
from sleuth.types import Document, Question


@dataclass(frozen=True, slots=True)
class Write:
    """The method needs the model's next message; it is sent a :class:`~sleuth.samplers.writer.Written`."""

    messages: tuple[Message, ...]
    max_tokens: int
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Find:
    """The method needs passages; it is sent a list of documents, best first, perhaps none."""

    query: str


Dialogue = Generator[Write | Find, Any, str | None]
"""Returns the answer, or None where the model never gave one."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What every method may use at most; the agent's limits are the same numbers.

    Attributes:
        k: passages a search. ``searches``: in all (single-shot RAG makes one).
        turn_tokens: of one message. ``answer_tokens``: of a message that is an answer and nothing else.
        passage_words: a passage's text is cut there, whoever counts the tokens.
    """

    k: int = 3
    searches: int = 4
    turn_tokens: int = 512
    answer_tokens: int = 32
    passage_words: int = 100


Method = Callable[[Question, Budget], Dialogue]


def conversation(system: str, examples: Sequence[tuple[str, str]], *turns: str) -> tuple[Message, ...]:
    """A system message, examples as (user, assistant), and turns that begin with the user and alternate."""
    messages = [Message("system", system)]
    for asked, answered in examples:
        messages += [Message("user", asked), Message("assistant", answered)]
    messages += [Message("assistant" if number % 2 else "user", turn) for number, turn in enumerate(turns)]
    return tuple(messages)


def show(documents: Sequence[Document], budget: Budget) -> str:
    """Passages as every method shows them."""
    if not documents:
        return "Nothing was found."
    return "\n".join(
        f"[{n}] {d.title}: {' '.join(d.text.split()[: budget.passage_words])}" for n, d in enumerate(documents, start=1)
    )
