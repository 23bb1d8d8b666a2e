"""Raw settings into typed ones, with one clear line for whatever is wrong.

Errors name the dotted key as the user would write it on the command line; an unknown key gets the nearest known one.
"""

from __future__ import annotations

import difflib
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from sleuth.errors import UserError

Model = TypeVar("Model", bound=BaseModel)


def validated(model: type[Model], data: Mapping[str, Any], *, where: str, prefix: str = "") -> Model:
    """``data`` as a ``model``.

    Args:
        where: what the settings belong to, for the message (``recipe laptop``).
        prefix: dotted key of ``data`` itself, e.g. ``protocol.settings``; "" for a whole recipe.

    Raises:
        UserError: unknown keys (with the nearest known one) or wrong values; names each dotted key.
    """
    unknown = list(_unknown_keys(model, data, prefix))
    if unknown:
        known = sorted(known_keys(model, prefix))
        raise UserError(f"{where}: " + "; ".join(describe_unknown(key, known) for key in unknown))
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise UserError(f"{where}: " + "; ".join(_describe(error, data, prefix))) from None


def describe_unknown(key: str, known: Iterable[str]) -> str:
    """``unknown setting 'trainer.lrr'; did you mean 'trainer.lr'?``."""
    nearest = nearest_key(key, known)
    return f"unknown setting {key!r}" + (f"; did you mean {nearest!r}?" if nearest else "")


def nearest_key(key: str, known: Iterable[str]) -> str | None:
    """The known key that ``key`` most likely means: by its whole name, or by its last part alone (``lr``)."""
    known = list(known)
    parent, _, leaf = key.rpartition(".")
    siblings = [k for k in known if k.rpartition(".")[0] == parent]
    for candidates, wanted in ((siblings, key), (known, key)):
        if found := difflib.get_close_matches(wanted, candidates, 1, 0.75):
            return found[0]
    by_leaf: dict[str, str] = {}
    for candidate in sorted(known, key=lambda k: k.count(".")):
        by_leaf.setdefault(candidate.rpartition(".")[2], candidate)
    found = difflib.get_close_matches(leaf, by_leaf, 1, 0.7)
    if found:
        return by_leaf[found[0]]
    close = difflib.get_close_matches(key, siblings or known, 1, 0.4)
    return close[0] if close else None


def known_keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Every dotted key of ``model``, groups included."""
    for name, field in model.model_fields.items():
        key = f"{prefix}.{name}" if prefix else name
        yield key
        if (inner := _model_in(field.annotation)) is not None:
            yield from known_keys(inner, key)


def _unknown_keys(model: type[BaseModel], data: Mapping[str, Any], prefix: str) -> Iterator[str]:
    for name, value in data.items():
        key = f"{prefix}.{name}" if prefix else str(name)
        field = model.model_fields.get(name)
        if field is None:
            yield key
        elif isinstance(value, Mapping) and (inner := _model_in(field.annotation)) is not None:
            yield from _unknown_keys(inner, value, key)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The settings class that a field may hold, alone or as one member of a union."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in (Union, types.UnionType):
        for member in get_args(annotation):
            if (found := _model_in(member)) is not None:
                return found
    return None


def _describe(error: ValidationError, data: Any, prefix: str) -> list[str]:
    """One text a wrong key. A union's members each complain: those that looked deepest into the value count."""
    messages: dict[str, list[str]] = {}
    values: dict[str, Any] = {}
    for problem in error.errors():
        key, value = _locate(problem, data, prefix)
        message = problem["msg"].removeprefix("Value error, ").removeprefix("Input ")
        if "instance of" in message:
            message = "should be a group of settings"
        messages.setdefault(key, []).append("is missing" if problem["type"] == "missing" else message)
        values[key] = value
    deepest = [key for key in messages if not any(other.startswith(f"{key}.") for other in messages)]
    return [_sentence(key, values[key], list(dict.fromkeys(messages[key]))) for key in deepest]


def _locate(problem: Any, data: Any, prefix: str) -> tuple[str, Any]:
    key, value = prefix, data
    for part in problem["loc"]:
        # pydantic puts the names of union members into the path; what isn't in the data is one of those.
        in_mapping = isinstance(value, Mapping) and part in value
        in_list = isinstance(value, list | tuple) and isinstance(part, int) and part < len(value)
        if in_mapping or in_list:
            value = value[part]
        elif problem["type"] != "missing" or part is not problem["loc"][-1]:
            continue
        key = f"{key}.{part}" if key else str(part)
    return key, value


def _sentence(key: str, value: Any, messages: list[str]) -> str:
    if messages == ["is missing"]:
        return f"{key} is missing"
    said = ", or ".join(messages)
    if isinstance(value, Mapping):
        return f"{key}: {said}" if key else said
    return f"{key}={value!r} {said}"
