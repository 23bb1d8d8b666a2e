"""What RUN_OR_MODEL means: the recipe to talk by, and the weights to load."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sleuth.errors import UserError
from sleuth.recipes.loader import load_recipe
from sleuth.recipes.schema import Recipe


@dataclass(frozen=True, slots=True)
class Policy:
    """A model and how to talk to it.

    Attributes:
        recipe: ``model`` names the weights.
        folder: the run or model folder that the recipe came from; None for a bare model.
    """

    recipe: Recipe
    folder: Path | None


def find_policy(source: str, settings: Sequence[str] = (), recipe: str | None = None) -> Policy:
    """The policy that ``source`` names.

    * a run folder: its recipe, and the checkpoint that is the run's result (the latest one while it goes on);
    * a checkpoint of a run, or a folder that ``sleuth warmstart`` made: those weights and their recipe;
    * any other model folder or hub name: the recipe named by ``recipe``, or the defaults.

    Args:
        settings: ``key=value`` on top of the recipe.
        recipe: talk by this recipe, whatever the folder's own.

    Raises:
        UserError: a run without a checkpoint, or a wrong recipe or setting.
    """
    folder = Path(source)
    home = _home(folder)
    written = str(home / "recipe.yaml") if home is not None and recipe is None else recipe
    loaded = load_recipe(written, settings, check_required=False) if written else _default_recipe(settings)
    weights = source
    if home is not None and folder == home and ((home / "checkpoints").is_dir() or not _is_model(home)):
        weights = str(_checkpoint(home))
    return Policy(loaded.model_copy(update={"model": weights}), home)


def check_model(policy: Policy) -> None:
    """Refuse a bare model that isn't there, before anything else that it leaves open is asked for.

    Raises:
        UserError: no run, model folder or reachable hub model has that name.
    """
    if policy.folder is not None:
        return
    from sleuth.assembly import build_tokenizer

    name = policy.recipe.model
    try:
        build_tokenizer(policy.recipe)
    except UserError as error:
        why = str(error).removeprefix(f"{name}: ")
        raise UserError(f"{name}: no run, model folder or reachable hub model has this name ({why})") from None


def split_arguments(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """(everything else, settings): a setting is ``name.name=…`` and not the name of a file that exists."""
    settings = [a for a in arguments if re.match(r"[A-Za-z_][\w.]*=", a) and not Path(a).exists()]
    return [a for a in arguments if a not in settings], settings


def _home(folder: Path) -> Path | None:
    """The folder with the recipe that belongs to ``folder``: itself, or the run that it is a checkpoint of."""
    if (folder / "recipe.yaml").is_file():
        return folder
    if folder.parent.name == "checkpoints" and (folder.parent.parent / "recipe.yaml").is_file():
        return folder.parent.parent
    return None


def _is_model(folder: Path) -> bool:
    """Whether weights lie in the folder itself, as ``sleuth warmstart`` and ``sleuth export`` leave them."""
    return any((folder / name).is_file() for name in ("config.json", "adapter_config.json"))


def _checkpoint(run: Path) -> Path:
    summary = run / "summary.json"
    if summary.is_file():
        try:
            kept = json.loads(summary.read_text(encoding="utf-8")).get("checkpoint")
        except ValueError:
            raise UserError(f"{summary}: not JSON; name a checkpoint in {run / 'checkpoints'} instead") from None
        if kept and (run / kept).is_dir():
            return run / kept
    numbers = [int(path.name[5:]) for path in (run / "checkpoints").glob("step-*") if path.name[5:].isdigit()]
    if not numbers and (run / "evaluation.json").is_file():
        raise UserError(f"{run} is an evaluation, no run or model; see its tables: sleuth eval {run} --table")
    if not numbers:
        begun = (run / "checkpoints").is_dir() or (run / "environment.json").is_file()
        further = f"go on with it: sleuth train {run} --resume"
        if not begun:
            further = f"start it: sleuth train {run / 'recipe.yaml'}"
        raise UserError(f"{run}: this run has no checkpoint yet; {further}")
    return run / "checkpoints" / f"step-{max(numbers)}"


def _default_recipe(settings: Sequence[str]) -> Recipe:
    from sleuth.recipes.loader import resolve

    return resolve({"name": "defaults"}, settings)
