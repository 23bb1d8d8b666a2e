"""`sleuth migrate`: a training script of Search-R1 as a recipe."""

from __future__ import annotations

from pathlib import Path

from sleuth.commands.folders import check_output_file
from sleuth.commands.terminal import console
from sleuth.recipes.loader import load_recipe
from sleuth.recipes.search_r1 import absent_files, lines, migrate, read_script
from sleuth.recipes.yaml_text import dump_yaml


def run_migration(script: Path, output: Path, *, force: bool) -> None:
    """Write the recipe, and say what is not the same.

    Raises:
        UserError: no such script, or an output file that is there already.
    """
    check_output_file(output, force=force)
    migrated = migrate(read_script(script))
    migrated.recipe.setdefault("summary", f"from {script.name}")
    output.write_text(dump_yaml(migrated.recipe), encoding="utf-8")
    load_recipe(str(output), check_required=False)  # what it can't be is said now
    out = console()
    for line in lines(migrated):
        out.print(line, soft_wrap=True, highlight=False)
    for key, path in absent_files(migrated, Path()):
        out.print(
            f"to be set: {key}: no file {path} here; in the script it is relative to where that was run",
            soft_wrap=True,
            highlight=False,
        )
    out.print(f"{output}; try it: sleuth train {output} --dry-run", soft_wrap=True, highlight=False)
