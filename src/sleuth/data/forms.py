"""The forms of a question set's rows, each read as one question."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from sleuth.data.rows import Row
from sleuth.errors import UserError
from sleuth.rewards.answers import golden_answers
from sleuth.types import Question

_IDS = ("id", "_id", "qid", "question_id")
_ANSWERS = ("golden_answers", "answers", "answer", "possible_answers", "reward_model", "ground_truth")
_OWN_FIELDS = ("id", "question", "golden_answers", "data_source", "corpus", "supporting_titles")
# FlashRAG numbers rows within a split, so that its data sets, and Search-R1's mixture of two of them, share ids.
_ID_WITHIN_SPLIT = re.compile(r"(?:train|dev|validation|test)_\d+")


def question_of(row: Row) -> Question:
    """The question that a row holds.

    * id: ``id``, ``_id``, ``qid`` or ``question_id``; else Search-R1's split and index; else file name and row number.
      An id that only counts within a split (``train_17``) gets the data source in front.
    * question: ``question``, ``extra_info.question``, or what follows ``Question:`` in the last message of ``prompt``.
    * golden answers: ``golden_answers``, ``answers``, ``answer`` (with ``answer_aliases``), ``possible_answers``,
      ``reward_model.ground_truth`` or ``ground_truth``, in any form of :func:`sleuth.rewards.answers.golden_answers`.
    * supporting titles: ``supporting_titles``, HotpotQA's ``supporting_facts`` or MuSiQue's ``paragraphs``.
    * everything else stays in ``extra``, FlashRAG's ``metadata`` unpacked; but for ``prompt`` and ``reward_model``,
      another trainer's wrapping of the same question and answers.

    Raises:
        UserError: names place and field.
    """
    fields = unpacked(row.fields, row.place)
    text = _question_text(fields, row.place)
    data_source = _text_or_none(fields, "data_source", row.place) or ""
    id_field, question_id = _id(fields, row, data_source)
    place = f'{row.place} (id "{question_id}")'
    if not text.strip():
        raise UserError(f'{place}: "question" is blank')
    answer_field, answers = _golden_answers(fields, place)
    used = {*_OWN_FIELDS, id_field, answer_field, "prompt", "reward_model"}
    if answer_field == "answer":
        used.add("answer_aliases")
    return Question(
        id=question_id,
        question=text,
        golden_answers=answers,
        data_source=data_source,
        corpus=_text_or_none(fields, "corpus", place),
        supporting_titles=_supporting_titles(fields, place),
        extra={name: value for name, value in fields.items() if name not in used},
    )


def question_row(question: Question) -> dict[str, Any]:
    """A question as a row of Sleuth's own JSONL; :func:`question_of` gives the same question back."""
    row: dict[str, Any] = {
        "id": question.id,
        "question": question.question,
        "golden_answers": question.golden_answers,
        "data_source": question.data_source,
    }
    if question.corpus is not None:
        row["corpus"] = question.corpus
    if question.supporting_titles:
        row["supporting_titles"] = question.supporting_titles
    return row | question.extra


# ---------------------------------------------------------------------------------------------------------------------
# Fields


def unpacked(fields: dict[str, Any], place: str) -> dict[str, Any]:
    """The row without the boxes that formats put fields in: FlashRAG's metadata, and what our own parquet carries.

    Raises:
        UserError: the text in our own parquet's box is no JSON object.
    """
    fields = dict(fields)
    extra_info = fields.get("extra_info")
    if isinstance(extra_info, dict) and isinstance(extra_info.get("sleuth"), str):
        columns = ("id", "question", "golden_answers", "data_source")
        try:
            carried = json.loads(extra_info["sleuth"])
        except (ValueError, RecursionError):
            carried = None
        if not isinstance(carried, dict):
            raise UserError(f'{place}: "extra_info.sleuth" holds no JSON object; convert the question set again')
        return {name: fields[name] for name in columns if name in fields} | carried
    if isinstance(fields.get("metadata"), dict):
        return fields.pop("metadata") | fields
    return fields


def _question_text(fields: dict[str, Any], place: str) -> str:
    text = fields.get("question")
    if text is None:
        text = _nested(fields, "extra_info", "question")
    if text is None:
        text = _from_prompt(fields.get("prompt"))
    if not isinstance(text, str):
        found = "no" if text is None else f"{type(text).__name__} as"
        raise UserError(f'{place}: {found} "question"; each row needs one, as text')
    return text


def _from_prompt(prompt: Any) -> str | None:
    """The question inside another trainer's prompt, which stands after its last ``Question:``."""
    if isinstance(prompt, list) and prompt and isinstance(prompt[-1], dict):
        prompt = prompt[-1].get("content")
    if not isinstance(prompt, str):
        return None
    _, marker, question = prompt.rpartition("Question:")
    return question.strip() if marker else None


def _id(fields: dict[str, Any], row: Row, data_source: str) -> tuple[str | None, str]:
    """The field that the id was read from, None where it was made, and the id."""
    field = next((name for name in _IDS if fields.get(name) is not None), None)
    if field is not None:
        value = fields[field]
        if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
            raise UserError(f'{row.place}: "{field}" is {value!r}; an id is text or an integer')
        identity = str(value)
    else:
        index, split = _nested(fields, "extra_info", "index"), _nested(fields, "extra_info", "split")
        if index is not None:
            identity = f"{split or 'train'}_{index}"
        else:
            name = Path(row.place.rpartition(", ")[0]).name.partition(".")[0]
            identity = f"{name}-{row.number}"
    if data_source and _ID_WITHIN_SPLIT.fullmatch(identity):
        identity = f"{data_source}_{identity}"
    return field, identity


def _golden_answers(fields: dict[str, Any], place: str) -> tuple[str, list[str]]:
    field = next((name for name in _ANSWERS if fields.get(name) is not None), None)
    if field is None:
        raise UserError(f"{place}: no golden answers; give them as {', '.join(_ANSWERS[:3])} or reward_model")
    value = fields[field]
    if field == "reward_model":
        value = _nested(fields, "reward_model", "ground_truth")
    answers = golden_answers(value, f'{place}, "{field}"')
    aliases = fields.get("answer_aliases")
    if field == "answer" and aliases is not None and not (hasattr(aliases, "__len__") and len(aliases) == 0):
        answers = list(dict.fromkeys([*answers, *golden_answers(aliases, f'{place}, "answer_aliases"')]))
    if not any(answer.strip() for answer in answers):
        raise UserError(f'{place}: "{field}" is blank; give at least one golden answer or leave the row out')
    return field, answers


def _supporting_titles(fields: dict[str, Any], place: str) -> list[str]:
    titles: Any = fields.get("supporting_titles")
    if titles is None:
        titles = _titles_of_facts(fields.get("supporting_facts"))
    if titles is None and isinstance(fields.get("paragraphs"), list):
        paragraphs = [p for p in fields["paragraphs"] if isinstance(p, dict)]
        titles = [p.get("title") for p in paragraphs if p.get("is_supporting")]
    if titles is None:
        return []
    if not (isinstance(titles, list) and all(isinstance(title, str) for title in titles)):
        raise UserError(f"{place}: supporting titles must be a list of strings, found {titles!r:.80}")
    return list(dict.fromkeys(titles))


def _titles_of_facts(facts: Any) -> Any:
    """HotpotQA's supporting facts: pairs of title and sentence, or the two as columns."""
    if isinstance(facts, dict):
        return facts.get("title")
    if isinstance(facts, list) and all(isinstance(fact, list | tuple) and len(fact) == 2 for fact in facts):
        return [title for title, _ in facts]
    return None


def _text_or_none(fields: dict[str, Any], name: str, place: str) -> str | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise UserError(f'{place}: "{name}" is {value!r}, not text')
    return value


def _nested(fields: dict[str, Any], box: str, name: str) -> Any:
    inside = fields.get(box)
    return inside.get(name) if isinstance(inside, dict) else None
