"""Finds a recipe by name or path, follows ``extends``, applies ``key.sub=value`` settings, checks the result.

Paths in a recipe file that begin with ``./`` or ``../`` are relative to that file; all others, and those given on the
command line, to the current folder.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sleuth.errors import UserError
from sleuth.jsonl import write_atomically
from sleuth.recipes.schema import Recipe
from sleuth.recipes.validation import describe_unknown, known_keys, nearest_key, validated
from sleuth.recipes.yaml_text import YamlError, dump_yaml, parse_yaml

FOLDER = Path(__file__).parent

ALIASES = {"corpus": "retriever.corpus"}
"""Short names on the command line."""

_PATHS = ("model", "data.train", "data.dev", "data.test", "retriever.corpus", "warmstart.demonstrations")

_EXAMPLES = {
    "retriever.corpus": "corpus=passages.jsonl",
    "data.train": "data.train=train.jsonl",
    "data.dev": "data.dev=dev.jsonl",
    "data.test": "data.test=test.jsonl",
    "model": "model=HuggingFaceTB/SmolLM2-135M-Instruct",
}

_OWN = ("name", "summary", "expect")
"""What a recipe says of itself, and one that extends it doesn't inherit."""


@dataclass(frozen=True, slots=True)
class RecipeSummary:
    """A line of ``sleuth recipes``."""

    name: str
    summary: str
    expect: str


def load_recipe(
    recipe: str | os.PathLike[str],
    settings: Sequence[str] = (),
    *,
    check_required: bool = True,
    example: str = "sleuth train {recipe} {settings}",
) -> Recipe:
    """A recipe, resolved.

    Args:
        recipe: the name of a shipped recipe, or a YAML file.
        settings: ``key.sub=value``, values in YAML; later ones win.
        check_required: refuse a recipe whose ``requires`` aren't all set.
        example: the command line that such a refusal gives as an example.

    Raises:
        UserError: no such recipe, broken YAML, a circle of ``extends``, an unknown key, a wrong value, a required
            setting that isn't set; the message names it.
    """
    path = _find(os.fspath(recipe))
    loaded = resolve(_read(path, chain=()), settings)
    if check_required:
        _check_required(loaded, os.fspath(recipe), example)
    return loaded


def resolve(raw: dict[str, Any], settings: Sequence[str] = ()) -> Recipe:
    """Raw settings, changed by ``key.sub=value``, as a recipe.

    Raises:
        UserError: an unknown key or a wrong value.
    """
    raw = dict(raw)
    for setting in settings:
        _apply(raw, setting)
    return validated(Recipe, raw, where=f"recipe {raw.get('name', 'unnamed')}")


def dump_recipe(recipe: Recipe) -> str:
    """YAML that :func:`load_recipe` reads back as the same recipe, every setting written out."""
    return dump_yaml(recipe.model_dump(mode="json"))


def write_recipe(recipe: Recipe, path: str | os.PathLike[str]) -> None:
    """Write :func:`dump_recipe` to a file, whole or not at all."""
    with write_atomically(Path(path)) as out:
        out.write(dump_recipe(recipe).encode())


def shipped_recipes() -> list[RecipeSummary]:
    """The recipes that come with the package, by name."""
    recipes = [load_recipe(path, check_required=False) for path in sorted(FOLDER.glob("*.yaml"))]
    return [RecipeSummary(r.name, r.summary, r.expect) for r in recipes]


def _find(name: str, folder: Path | None = None) -> Path:
    """``folder``: where a recipe that this one extends is looked for first."""
    written = Path(name)
    if written.suffix in (".yaml", ".yml") or len(written.parts) > 1:
        path = folder / written if folder is not None and (folder / written).exists() else written
        if path.is_dir() and (path / "recipe.yaml").is_file():  # a run folder
            return path / "recipe.yaml"
        if not path.is_file():
            raise UserError(f"{name}: no such recipe file; check the path, or name one that `sleuth recipes` lists")
        return path
    shipped = FOLDER / f"{name}.yaml"
    if shipped.is_file():
        return shipped
    names = [path.stem for path in sorted(FOLDER.glob("*.yaml"))]
    nearest = nearest_key(name, names)
    hint = f"did you mean {nearest!r}?" if nearest else f"shipped: {', '.join(names)}"
    raise UserError(f"no recipe is called {name!r}; {hint} (a file of your own: {name}.yaml)")


def _read(path: Path, chain: tuple[Path, ...]) -> dict[str, Any]:
    if path.resolve() in chain:
        circle = " → ".join(p.name for p in [*chain[chain.index(path.resolve()) :], path])
        raise UserError(f"{path}: recipes extend each other in a circle ({circle}); take one `extends` out")
    try:
        text = path.read_text(encoding="utf-8-sig")
        raw = parse_yaml(text)
    except YamlError as error:
        raise UserError(f"{path}: not a YAML file ({error})") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: not UTF-8; save the file as UTF-8") from None
    except OSError as error:
        raise UserError(f"{path}: can't be read ({error.strerror or error})") from None
    if raw is None:
        what = "no setting is in this file" if text.strip() else "the file is empty"
        raise UserError(f"{path}: {what}; a recipe is a mapping of settings, such as `extends: laptop`")
    if not isinstance(raw, dict) or not all(isinstance(key, str) for key in raw):
        raise UserError(f"{path}: a recipe is a mapping of settings, such as `extends: laptop`")
    _anchor_paths(raw, path.parent)
    base = raw.pop("extends", None)
    raw.setdefault("name", path.stem)
    if base is None:
        return raw
    if not isinstance(base, str):
        raise UserError(f"{path}: extends={base!r} must be the name of one recipe, or one file")
    inherited = _read(_find(base, path.parent), (*chain, path.resolve()))
    return _merge({key: value for key, value in inherited.items() if key not in _OWN}, raw)


def _anchor_paths(raw: dict[str, Any], folder: Path) -> None:
    for key in _PATHS:
        *groups, leaf = key.split(".")
        holder: Any = raw
        for group in groups:
            holder = holder.get(group) if isinstance(holder, dict) else None
        if isinstance(holder, dict) and leaf in holder:
            value = holder[leaf]
            holder[leaf] = [_anchor(v, folder) for v in value] if isinstance(value, list) else _anchor(value, folder)


def _anchor(value: Any, folder: Path) -> Any:
    if isinstance(value, str) and value.startswith(("./", "../")):
        return os.path.normpath(folder / value)
    return value


def _merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """``over`` on top of ``base``: mappings are merged, everything else is replaced."""
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        merged[key] = _merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def _apply(raw: dict[str, Any], setting: str) -> None:
    key, equals, text = setting.partition("=")
    key = key.strip()
    if not equals or not key:
        raise UserError(f"{setting!r} is not a setting; write key=value, such as trainer.steps=100")
    try:
        value = parse_yaml(text)
    except YamlError as error:
        raise UserError(f"{key}={text!r}: the value is not YAML ({error}); put it in quotes") from None
    path = _full_key(ALIASES.get(key, key)).split(".")
    holder = raw
    for depth, group in enumerate(path[:-1], start=1):
        inner = holder.get(group)
        if inner is not None and not isinstance(inner, dict):
            raise UserError(f"{key}={text}: {'.'.join(path[:depth])} is {inner!r} here and has no settings of its own")
        holder[group] = dict(inner or {})
        holder = holder[group]
    old = holder.get(path[-1])
    holder[path[-1]] = _merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value


def _full_key(key: str) -> str:
    """``grpo.clip_low`` → ``parameters.grpo.clip_low``; keys of a recipe stay as they are."""
    head, dot, _ = key.partition(".")
    if key == "aggregation.max_length":
        return f"parameters.{key}"
    if head in Recipe.model_fields:
        return key
    from sleuth.objectives import TABLE

    if dot and head in TABLE:
        return f"parameters.{key}"
    parameters = [f"{name}.{field}" for name, entry in TABLE.items() for field in entry.parameter_names]
    raise UserError(describe_unknown(key, [*known_keys(Recipe), *ALIASES, *parameters]))


def _check_required(recipe: Recipe, name: str, example: str) -> None:
    missing = [key for key in recipe.requires if _value(recipe, key) in (None, "", [])]
    if missing:
        settings = " ".join(_EXAMPLES.get(key, f"{key}=…") for key in missing)
        line = example.format(recipe=name, settings=settings)
        raise UserError(f"recipe {recipe.name} needs {', '.join(missing)}; for example: {line}")


def _value(recipe: Recipe, key: str) -> Any:
    value: Any = recipe
    for part in key.split("."):
        if part not in type(value).model_fields:
            raise UserError(f"recipe {recipe.name}: " + describe_unknown(key, known_keys(Recipe)) + " (in `requires`)")
        value = getattr(value, part)
    return value
