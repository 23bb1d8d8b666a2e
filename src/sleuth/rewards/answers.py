"""Golden answers in all the shapes that question sets give them, as one list of strings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sleuth.errors import UserError


def golden_answers(value: Any, row: str = "this row") -> list[str]:
    """The accepted answers of one question, in their order and as they are written.

    Equal for all five forms: ``"Paris"``, ``["Paris"]``, a numpy array, Search-R1's ``{"target": …}`` and the JSON text
    ``'["Paris"]'``. SQuAD's ``{"text": […]}`` and TriviaQA's ``{"value": …, "aliases": […]}`` are read too. Numbers
    become text.

    Args:
        value: what the row holds.
        row: names the row in the message, e.g. ``"dev.jsonl, line 3 (id q17)"``.

    Raises:
        UserError: there is none (``[]``, None), or one isn't text.
    """
    answers = _answers(value, row)
    if not answers:
        raise UserError(f"{row}: no golden answer ({value!r}); give at least one or leave the row out")
    return answers


def _answers(value: Any, row: str) -> list[str]:
    if isinstance(value, Mapping):
        return _of_object(value, row)
    if hasattr(value, "tolist"):  # a numpy array or scalar, without importing numpy
        return _answers(value.tolist(), row)
    if isinstance(value, str):
        listed = _json_list(value)
        return [value] if listed is None else listed
    if value is None:
        return []
    if isinstance(value, list | tuple):
        return [_text(answer, row) for answer in value]
    return [_text(value, row)]


def _of_object(value: Mapping[str, Any], row: str) -> list[str]:
    for field in ("target", "text"):
        if field in value:
            return _answers(value[field], row)
    if "value" in value:
        return list(dict.fromkeys([_text(value["value"], row), *_answers(value.get("aliases"), row)]))
    known = '"target", "text" or "value"'
    raise UserError(f"{row}: golden answers as an object need {known}, found {sorted(map(str, value))}")


def _json_list(text: str) -> list[str] | None:
    """The answers of a JSON list, None for any other text: an answer may well start with a bracket."""
    if not text.lstrip().startswith("["):
        return None
    try:
        items = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not all(isinstance(item, str | int | float) and not isinstance(item, bool) for item in items):
        return None
    return [str(item) for item in items]


def _text(answer: Any, row: str) -> str:
    if isinstance(answer, str):
        return answer
    if isinstance(answer, int | float) and not isinstance(answer, bool):
        return str(answer)
    raise UserError(f"{row}: a golden answer is {answer!r}, not text; write each accepted answer as a string")
