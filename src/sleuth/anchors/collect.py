"""Anchors of questions without named evidence: a model searches for it with Sleuth's own retriever.

The collector knows the golden answer and has to find what proves it. Each of its messages is one search or the final
list; what it lists counts only if it is a passage that a search really returned (arXiv 2608.12764 does the same with a
search engine and pages of the web).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict, Field

from sleuth.anchors.rows import Anchor, AnchorRow
from sleuth.anchors.verify import Answers, hide_answers, problem_of
from sleuth.errors import UserError
from sleuth.samplers.writer import Message, Writer, WriteRequest
from sleuth.seeds import derive_seed
from sleuth.types import Document, Question, Retriever, SamplingParams, SearchRequest

PROMPT = """\
Somebody has to answer a question by searching. You know the answer. Find the passages that prove it, as many as you \
can, so that they can be told where to look.

Question: {question}
Answer: {answer}

Write one of two things, and nothing else:
SEARCH: a short query, after which you are shown passages, each with its number and title
or, when you have found enough, one line for every passage that helps:
- number | title | what the passage says that helps, in at most 25 words, without the answer itself"""

LAST = "There are no more searches. Write the list now."

FOUND = "{passages}\n\nSearch again (SEARCH: query) or write the list (- number | title | what it says that helps)."

_SEARCH = re.compile(r"^\W*search\W*:\s*(.+)$", re.IGNORECASE | re.MULTILINE)
_LINE = re.compile(r"^\s*[-*•]\s*\[?(\d+)\]?\s*\|\s*([^|\n]+?)\s*\|\s*(.+?)\s*$", re.MULTILINE)


class CollectSettings(BaseModel):
    """How evidence is looked for.

    Attributes:
        searches: of a question, at most. ``k``: passages each. ``passage_words``: shown of a passage.
        max_tokens: of a message.
        prompt: must contain ``{question}`` and ``{answer}``.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    searches: int = Field(default=4, ge=1)
    k: int = Field(default=5, ge=1)
    passage_words: int = Field(default=120, ge=10)
    max_tokens: int = Field(default=400, ge=16)
    temperature: float = Field(default=0.0, ge=0)
    prompt: str = PROMPT


@dataclass(slots=True)
class _Talk:
    """One question's conversation."""

    question: Question
    messages: list[Message]
    shown: list[Document] = field(default_factory=list)
    searches: int = 0
    list: str | None = None
    error: str | None = None


def collect_anchors(
    questions: Sequence[Question],
    writer: Writer,
    retriever: Retriever,
    answers: Answers = "refuse",
    settings: CollectSettings | None = None,
    seed: int = 0,
) -> list[AnchorRow | None]:
    """A row for each question; None where the model or the retriever failed, which is worth another try.

    Raises:
        UserError: the endpoint refuses for good.
    """
    settings = settings or CollectSettings()
    talks = [_Talk(q, [Message("user", _asked(settings.prompt, q))]) for q in questions]
    params = SamplingParams(settings.temperature)
    for turn in range(settings.searches + 1):
        live = [t for t in talks if t.list is None and t.error is None]
        if not live:
            break
        written = writer.write(
            [
                WriteRequest(
                    tuple(t.messages), settings.max_tokens, seed=derive_seed(seed, "anchors", t.question.id, turn)
                )
                for t in live
            ],
            params,
        )
        searching: list[tuple[_Talk, str]] = []
        for talk, message in zip(live, written, strict=True):
            if message.failed:
                talk.error = message.error
                continue
            talk.messages.append(Message("assistant", message.text))
            query = _SEARCH.search(message.text)
            if query is None or _LINE.search(message.text) or turn == settings.searches:
                talk.list = message.text
            else:
                searching.append((talk, query.group(1).strip()))
        _search(searching, retriever, settings, last=turn == settings.searches - 1)
    return [None if t.error is not None else _row(t, answers) for t in talks]


def _search(
    searching: Sequence[tuple[_Talk, str]], retriever: Retriever, settings: CollectSettings, *, last: bool
) -> None:
    if not searching:
        return
    results = retriever.search([SearchRequest(query, talk.question.corpus) for talk, query in searching], settings.k)
    for (talk, _), result in zip(searching, results, strict=True):
        talk.searches += 1
        if result.failed:
            talk.error = result.error
            continue
        lines = []
        for document in result.documents:
            known = next((n for n, d in enumerate(talk.shown) if d.id == document.id), None)
            if known is None:
                talk.shown.append(document)
                known = len(talk.shown) - 1
            text = " ".join(document.text.split()[: settings.passage_words])
            lines.append(f"[{known + 1}] {document.title}: {text}")
        shown = FOUND.replace("{passages}", "\n".join(lines) or "Nothing was found.")
        talk.messages.append(Message("user", f"{shown}\n{LAST}" if last else shown))


def _row(talk: _Talk, answers: Answers) -> AnchorRow:
    question = talk.question
    anchors: list[Anchor] = []
    problems: list[str] = []
    for number, title, explanation in _LINE.findall(talk.list or ""):
        found = talk.shown[int(number) - 1 : int(number)] if int(number) else []
        if answers == "hide":
            explanation = hide_answers(explanation, question.golden_answers)
        problem = problem_of(question, title, explanation, found, answers)
        if problem:
            problems.append(problem)
        else:
            anchors.append(Anchor(found[0].title, explanation, found[0].id))
    if not anchors and not problems:
        problems.append("the model listed nothing")
    unique = {anchor.passage: anchor for anchor in reversed(anchors)}
    return AnchorRow(question.id, question.question, tuple(reversed(unique.values())), "collected", tuple(problems))


def _asked(prompt: str, question: Question) -> str:
    for name in ("{question}", "{answer}"):
        if name not in prompt:
            raise UserError(f"the collector's prompt must contain {name}")
    values = {"question": question.question, "answer": " or ".join(question.golden_answers[:3])}
    return re.sub(r"\{(question|answer)\}", lambda m: values[m.group(1)], prompt)
