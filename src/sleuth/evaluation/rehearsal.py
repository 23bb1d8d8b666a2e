"""A method played through once without a model, as long as it can get: what it would ask, read and cost."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from sleuth.evaluation.methods.method import Budget, Find, Method, Write
from sleuth.samplers.writer import Written
from sleuth.types import Document, Question

_PROBE = Question("probe", "What is the capital of the country where the author of the book was born?", ["Paris"])
_REPLY = Written("Thought: more is needed.\nAction: search[more]\n<search> more")
"""A search in every method's form, and never an answer."""

_CHARACTERS_A_TOKEN = 4


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """The longest way of a method through one question.

    Attributes:
        prompt: SHA-256 (hex) of all that it shows the model.
        calls, searches: most that it makes. ``tokens_in``: about so many at four characters a token. ``tokens_out``:
            most that it lets the model write.
    """

    prompt: str
    calls: int
    searches: int
    tokens_in: int
    tokens_out: int


def rehearse(method: Method, budget: Budget) -> Rehearsal:
    """Play ``method`` against a model that always wants to search and a retriever that always finds full passages."""
    documents = [Document(str(n), f"Title {n}", " ".join(["word"] * budget.passage_words)) for n in range(budget.k)]
    writes: list[Write] = []
    searches = 0
    dialogue = method(_PROBE, budget)
    try:
        need = next(dialogue)
        while True:
            if isinstance(need, Find):
                searches += 1
                fresh = [Document(f"{searches}-{d.id}", f"{d.title}.{searches}", d.text) for d in documents]
                need = dialogue.send(fresh)
            else:
                writes.append(need)
                need = dialogue.send(_REPLY)
    except StopIteration:
        pass
    text = "\x1e".join("\x1f".join((m.role, m.content)) for write in writes for m in write.messages)
    return Rehearsal(
        hashlib.sha256(text.encode()).hexdigest(),
        len(writes),
        searches,
        _characters(writes) // _CHARACTERS_A_TOKEN,
        sum(write.max_tokens for write in writes),
    )


def _characters(writes: Sequence[Write]) -> int:
    return sum(len(message.content) for write in writes for message in write.messages)
