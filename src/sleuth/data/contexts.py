"""Context lists, where each question brings its own paragraphs, pooled into one corpus."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from sleuth.data.forms import unpacked
from sleuth.data.rows import Row
from sleuth.errors import UserError
from sleuth.types import Question

_CONTEXTS = ("context", "contexts", "paragraphs")
_TEXTS = ("text", "paragraph_text", "sentences", "content")


@dataclass(frozen=True, slots=True)
class Paragraph:
    """``supporting`` is None where the row doesn't say it of its paragraphs one by one."""

    title: str
    text: str
    supporting: bool | None = None


def paragraphs_of(row: Row) -> list[Paragraph]:
    """The paragraphs that a row brings with it, white space squeezed; empty where it has none.

    Read are HotpotQA's and 2WikiMultihopQA's ``context`` (pairs of title and sentences), the same as columns, as the
    ``datasets`` hub has it, and lists of objects with a title and a text (MuSiQue's ``paragraphs``, IRCoT's
    ``contexts``).

    Raises:
        UserError: names place and field.
    """
    fields = unpacked(row.fields, row.place)
    name = next((name for name in _CONTEXTS if isinstance(fields.get(name), list | dict)), None)
    if name is None:
        return []
    context = fields[name]
    if isinstance(context, dict):
        texts = next((context[field] for field in _TEXTS if isinstance(context.get(field), list)), None)
        titles = context.get("title")
        if not isinstance(titles, list) or texts is None or len(titles) != len(texts):
            raise UserError(f'{row.place}: "{name}" as columns needs title and sentences, equally long')
        context = list(zip(titles, texts, strict=True))
    return [_paragraph(item, f'{row.place}, "{name}" {number}') for number, item in enumerate(context, 1)]


class Pool:
    """Distinct paragraphs, numbered in the order of their first appearance.

    Only a digest of each is kept: a paragraph is the same when title and text are.
    """

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def id_of(self, paragraph: Paragraph) -> str:
        """Its id, which is new when the paragraph is."""
        digest = hashlib.blake2b(f"{paragraph.title}\n{paragraph.text}".encode(errors="surrogatepass"), digest_size=16)
        return str(self._numbers.setdefault(digest.digest(), len(self._numbers)))

    def add(self, paragraphs: Iterable[Paragraph]) -> Iterator[dict[str, str]]:
        """Corpus rows in Search-R1's form, ``{"id", "contents": "\\"Title\\"\\ntext"}``, of those that are new."""
        for paragraph in paragraphs:
            known = len(self)
            identity = self.id_of(paragraph)
            if len(self) > known:
                yield {"id": identity, "contents": f'"{paragraph.title}"\n{paragraph.text}'}


def pooled_question(question: Question, paragraphs: list[Paragraph], pool: Pool) -> Question:
    """The question with ids into the pool instead of the paragraphs that its row brought.

    ``extra`` gets ``context_ids`` (all of its paragraphs), ``supporting_ids`` (those that hold the evidence: marked so,
    or with a supporting title) and, from MuSiQue's steps, ``decomposition`` (question, answer and title of each) and
    ``hops``.
    """
    if not paragraphs:
        return question
    ids = [pool.id_of(paragraph) for paragraph in paragraphs]
    titles = [_squeezed(title) for title in question.supporting_titles]
    supporting = [
        identity
        for identity, paragraph in zip(ids, paragraphs, strict=True)
        if (paragraph.title in titles if paragraph.supporting is None else paragraph.supporting)
    ]
    extra = {name: value for name, value in question.extra.items() if name not in _CONTEXTS}
    extra |= {"context_ids": list(dict.fromkeys(ids)), "supporting_ids": list(dict.fromkeys(supporting))}
    steps = extra.pop("question_decomposition", None)
    if isinstance(steps, list) and all(isinstance(step, dict) for step in steps):
        extra["decomposition"] = [_step(step, paragraphs) for step in steps]
        extra.setdefault("hops", len(steps))
    return replace(question, supporting_titles=titles, extra=extra)


def _paragraph(item: Any, place: str) -> Paragraph:
    if isinstance(item, dict):
        title = item.get("title")
        text = next((item[field] for field in _TEXTS if item.get(field) is not None), None)
        supporting = item.get("is_supporting")
    elif isinstance(item, list | tuple) and len(item) == 2:
        (title, text), supporting = item, None
    else:
        raise UserError(f"{place}: neither a pair of title and sentences nor an object with title and text")
    if isinstance(text, list) and all(isinstance(sentence, str) for sentence in text):
        text = " ".join(text)
    if not isinstance(title, str) or not isinstance(text, str):
        raise UserError(f"{place}: title and text must be text, found {title!r:.40} and {text!r:.40}")
    return Paragraph(_squeezed(title), _squeezed(text), None if supporting is None else bool(supporting))


def _squeezed(text: str) -> str:
    return " ".join(text.split())


def _step(step: dict[str, Any], paragraphs: list[Paragraph]) -> dict[str, Any]:
    index = step.get("paragraph_support_idx")
    title = paragraphs[index].title if isinstance(index, int) and 0 <= index < len(paragraphs) else None
    return {"question": step.get("question"), "answer": step.get("answer"), "title": title}
