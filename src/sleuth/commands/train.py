"""`sleuth train` and `sleuth warmstart`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from sleuth.errors import UserError
from sleuth.recipes.loader import load_recipe

RUNS = Path("runs")


def train(recipe: str, settings: Sequence[str], *, output: Path | None, resume: bool) -> None:
    """Train; with ``resume`` the recipe is the one that the run folder holds, ``settings`` on top.

    Raises:
        UserError: a wrong recipe, a run folder that already holds a run, or nothing to resume.
    """
    if resume:
        folder = output or _run_to_resume(recipe)
        if not (folder / "recipe.yaml").is_file():
            raise UserError(f"{folder}: no run to resume (no recipe.yaml in it); name its folder with -o")
        loaded = load_recipe(folder / "recipe.yaml", settings)
    else:
        loaded = load_recipe(recipe, settings)
        folder = output or _free_folder(RUNS / loaded.name)
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UserError(f"{folder} is not empty; go on with it by --resume, or choose another folder with -o")
    from sleuth.training.trl import train as run_training

    try:
        run_training(loaded, folder, resume=resume)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"interrupted; `sleuth train {folder} --resume` goes on from its last checkpoint"
        ) from None


def warmstart(recipe: str, settings: Sequence[str], *, output: Path | None) -> None:
    """Supervised training on the recipe's demonstrations; leaves a model folder.

    Raises:
        UserError: a wrong recipe, or an output folder that isn't empty.
    """
    loaded = load_recipe(recipe, settings)
    folder = output or _free_folder(RUNS / f"{loaded.name}-warmstart")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} is not empty; choose another folder with -o")
    from sleuth.training.warmstart import warmstart as run_warmstart

    run_warmstart(loaded, folder)


def dry_run(recipe: str, settings: Sequence[str]) -> None:
    """Print what the run would do and need."""
    from sleuth.commands.plan import print_plan

    print_plan(load_recipe(recipe, settings))


def _free_folder(wanted: Path) -> Path:
    """``wanted``, or the first of ``wanted-2``, ``wanted-3``, … that doesn't exist."""
    folder, number = wanted, 1
    while folder.exists():
        number += 1
        folder = wanted.with_name(f"{wanted.name}-{number}")
    return folder


def _run_to_resume(recipe: str) -> Path:
    """The run folder itself, or the latest run of a recipe of this name."""
    named = Path(recipe)
    if named.name == "recipe.yaml" and named.is_file():
        return named.parent
    if (named / "recipe.yaml").is_file():
        return named
    numbered = re.compile(rf"{re.escape(named.stem)}(?:-(\d+))?")
    runs = [(int(match[1] or 1), path) for path in RUNS.glob("*") if (match := numbered.fullmatch(path.name))]
    if not runs:
        raise UserError(f"no run of {recipe!r} is in {RUNS}/; name its folder: sleuth train RUN_DIR --resume")
    return max(runs)[1]
