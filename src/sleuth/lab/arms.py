"""Arms: the objectives that are compared, each with the settings that are its own.

An arm is written as an objective, with settings in brackets where it has any: ``search_sapo[preset=released,gamma=1]``,
``dr_grpo[aggregation.max_length=256]``, ``grpo[trainer.lr=5e-4]``. A key without a dot is a parameter of the one part
that has it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sleuth.errors import UserError
from sleuth.lab.settings import BASELINE
from sleuth.recipes.yaml_text import YamlError, parse_yaml

_NOT_AN_ARMS = ("objective", "seed", "comparison")

_WRITTEN = re.compile(r"(?P<objective>[^\[\]]+?)\s*(?:\[(?P<settings>.*)\])?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Arm:
    """One objective of a comparison.

    Attributes:
        name: in tables; the arm as it was written, unless a name was given.
        settings: dotted keys as on the command line of ``sleuth train``, with their values.
    """

    name: str
    objective: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def folder(self) -> str:
        """The name as part of a path."""
        return re.sub(r"[^A-Za-z0-9_.]+", "-", self.name).strip("-.")

    def as_settings(self) -> list[str]:
        """``key=value`` for :func:`sleuth.recipes.loader.resolve`."""
        return [f"objective={json.dumps(self.objective)}", *(f"{k}={json.dumps(v)}" for k, v in self.settings.items())]


def parse_arm(written: str, name: str | None = None) -> Arm:
    """An arm from its text.

    Raises:
        UserError: brackets that don't close, a setting without ``=``, or a parameter that no part of it has.
    """
    match = _WRITTEN.fullmatch(written.strip())
    if match is None:
        raise UserError(f"objective {written!r}: write NAME, or NAME[key=value,…] with its settings in brackets")
    objective = match["objective"].strip()
    settings: dict[str, Any] = {}
    for setting in split_outside_brackets(match["settings"] or ""):
        key, equals, text = setting.partition("=")
        if not equals or not key.strip():
            raise UserError(f"objective {written!r}: {setting!r} is no setting; write key=value, such as gamma=0.1")
        try:
            settings[_full_key(key.strip(), objective, written)] = parse_yaml(text)
        except YamlError as error:
            raise UserError(f"objective {written!r}: {text!r} is not YAML ({error}); put it in quotes") from None
    return Arm(name or written.strip(), objective, settings)


def choose_arms(asked: str | None, named: Mapping[str, str]) -> list[Arm]:
    """The arms of a comparison; plain GRPO is always one of them, and the first unless it stands elsewhere.

    Args:
        asked: arms, names of ``named`` and YAML files of named arms, joined by commas; None: all of ``named``.
        named: the recipe's own arms.

    Raises:
        UserError: nothing to compare, an arm that can't be read, or two that are called the same.
    """
    if asked is None and not named:
        raise UserError("the recipe names no arms to compare; say which: --objectives grpo,search_sapo,llds")
    arms: list[Arm] = []
    for item in split_outside_brackets(asked) if asked is not None else named:
        if item in named:
            arms.append(parse_arm(named[item], item))
        elif item.endswith((".yaml", ".yml")):
            arms += [parse_arm(written, name) for name, written in _read_arms(Path(item)).items()]
        else:
            arms.append(parse_arm(item))
    if all(arm.name != BASELINE for arm in arms):
        arms.insert(0, parse_arm(named.get(BASELINE, BASELINE), BASELINE))
    _refuse_same(arms)
    return arms


def split_outside_brackets(text: str) -> list[str]:
    """The pieces between commas that are in no bracket, without blanks around them; empty ones are left out."""
    pieces, depth, start = [], 0, 0
    for position, character in enumerate(text):
        if character in "[{(":
            depth += 1
        elif character in "]})":
            depth -= 1
        elif character == "," and depth == 0:
            pieces.append(text[start:position])
            start = position + 1
    return [piece.strip() for piece in [*pieces, text[start:]] if piece.strip()]


def _full_key(key: str, objective: str, written: str) -> str:
    """``gamma`` → ``search_sapo.gamma``, by the parts of the objective; the recipe's own keys stay."""
    from sleuth.objectives import TABLE
    from sleuth.recipes.schema import Recipe

    if key in _NOT_AN_ARMS:
        raise UserError(f"objective {written!r}: {key} is not an arm's to set, since arms are compared by it")
    if "." in key or key in Recipe.model_fields:
        return key

    parts = [TABLE[part.strip()] for part in objective.split("+") if part.strip() in TABLE]
    owners = [entry.name for entry in parts if key in entry.parameter_names]
    if len(owners) != 1:
        known = ", ".join(f"{entry.name}.{name}" for entry in parts for name in entry.parameter_names) or "none"
        problem = "belongs to several parts; write it with its part" if owners else "is no parameter of it"
        raise UserError(f"objective {written!r}: {key} {problem}; known: {known}")
    return f"{owners[0]}.{key}"


def _read_arms(path: Path) -> dict[str, str]:
    try:
        arms = parse_yaml(path.read_text(encoding="utf-8-sig"))
    except YamlError as error:
        raise UserError(f"{path}: not a YAML file ({error})") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: can't be read ({error})") from None
    if not isinstance(arms, dict) or not arms or not all(isinstance(text, str) for text in arms.values()):
        raise UserError(f"{path}: write one arm a line, such as `sapo-1: search_sapo[gamma=1]`")
    return {str(name): text for name, text in arms.items()}


def _refuse_same(arms: Sequence[Arm]) -> None:
    by_folder: dict[str, Arm] = {}
    for arm in arms:
        if (other := by_folder.get(arm.folder)) is not None:
            both = arm.name if other.name == arm.name else f"{other.name} and {arm.name}"
            raise UserError(f"two arms are called the same ({both}); give them names of their own in a YAML file")
        by_folder[arm.folder] = arm
