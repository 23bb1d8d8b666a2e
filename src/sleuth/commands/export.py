"""`sleuth export`."""

from __future__ import annotations

from pathlib import Path

from sleuth.commands.folders import check_output_folder
from sleuth.commands.policy import find_policy
from sleuth.commands.terminal import console
from sleuth.errors import UserError


def export(source: str, *, output: Path | None, step: int | None, dtype: str, push: str | None, private: bool) -> None:
    """Write a run's result as a model folder, and upload it where that is wanted.

    Raises:
        UserError: no run, no such checkpoint, or what :mod:`sleuth.training.export` refuses.
    """
    if dtype not in ("auto", "float32", "bfloat16", "float16"):
        raise UserError(f"--dtype {dtype}: write auto, float32, bfloat16 or float16")
    if step is not None:
        source = str(Path(source) / "checkpoints" / f"step-{step}")
        if not Path(source).is_dir():
            there = sorted(Path(source).parent.glob("step-*"), key=lambda p: int(p.name[5:]))
            raise UserError(f"{source}: no such checkpoint; there are {', '.join(p.name for p in there) or 'none'}")
    policy = find_policy(source)
    checkpoint = Path(policy.recipe.model or "")
    if policy.folder is None or not (policy.folder / "environment.json").is_file():
        raise UserError(f"{source} is no run; name the folder of one")
    folder = output or policy.folder / "export"
    check_output_folder(folder)
    from transformers.utils.logging import disable_progress_bar

    from sleuth.recipes.loader import load_recipe
    from sleuth.training import export as exporting

    recipe = load_recipe(policy.folder / "recipe.yaml", check_required=False)
    disable_progress_bar()
    exporting.export(checkpoint, recipe, policy.folder, folder, dtype=dtype)
    out = console()
    out.print(f"{checkpoint.name} of {policy.folder}: {folder}", soft_wrap=True)
    if push is not None:
        address = exporting.push(folder, push, private=private, say=out.print)
        out.print(address, soft_wrap=True)
