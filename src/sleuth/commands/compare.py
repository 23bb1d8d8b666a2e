"""`sleuth compare`: objectives side by side."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sleuth.commands.folders import check_output_file, check_output_folder, check_writable
from sleuth.commands.terminal import console
from sleuth.errors import RunFailed, UserError

if TYPE_CHECKING:
    from sleuth.lab.comparison import Comparison
    from sleuth.lab.folder import ComparisonFolder

RUNS = Path("runs")
_EXAMPLE = "sleuth compare {recipe} {settings}"


def compare(
    source: str,
    settings: Sequence[str],
    *,
    objectives: str | None,
    seeds: str | None,
    regimes: str | None,
    output: Path | None,
    jobs: int | None,
    dry_run: bool,
) -> None:
    """Train every arm in every regime with every seed, as far as that isn't done yet, and show what came out.

    Args:
        source: a recipe, or the folder of a comparison, whose unfinished runs are then made.

    Raises:
        UserError: a wrong recipe, arm, regime or setting, or a folder that holds something else; nothing was started.
        RunFailed: some runs failed; the others are there, with their table.
        RunStopped: interrupted; everything can be resumed.
    """
    from sleuth.lab.charts import check_charts
    from sleuth.lab.display import Display
    from sleuth.lab.folder import ComparisonFolder

    # Before torch is imported: runs side by side have one thread each.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    check_charts()
    if ComparisonFolder.holds(Path(source)):
        _refuse_options(settings, objectives=objectives, seeds=seeds, regimes=regimes, output=output)
        folder = ComparisonFolder.read(Path(source))
        seconds_per_step = None
    else:
        folder, seconds_per_step = _planned(source, settings, objectives, seeds or "3", regimes, output)
    from sleuth.lab.runner import default_jobs, run_cells

    at_a_time = jobs or default_jobs()
    results = {result.run: result for result in folder.results()}
    todo = [cell for cell in folder.cells if not results[cell.run].done]
    steps = {cell.run: folder.design.recipe_of(cell).trainer.steps for cell in todo}
    done = {run: min(len(results[run].rewards), total) for run, total in steps.items()}
    _print_plan(folder, steps, done, at_a_time, seconds_per_step)
    if dry_run:
        return
    with folder.locked():
        folder.write()
        with Display(steps, done, console(stderr=True)) as display:
            run_cells(folder, todo, at_a_time, display)
        _finish(folder)
    failed = sum(result.error is not None for result in folder.results())
    if failed:
        raise RunFailed(f"{failed} of {len(folder.cells)} runs failed; the same command tries them again")


def check_runs_nothing(**options: object) -> None:
    """Refuse what only matters to runs.

    Raises:
        UserError: something was given.
    """
    given = [f"--{name}" for name, value in options.items() if value is not None]
    if given:
        raise UserError(f"{given[0]} has no effect with --table or --export, which run nothing; drop it")


def show(sources: Sequence[str], *, output: Path | None) -> None:
    """Table, verdict and pictures again, without running anything. Those of one folder are written into it.

    Args:
        sources: comparisons' folders and exported files; several are put together.
        output: folder for table and pictures of anything but one folder; None: only print.

    Raises:
        UserError: a source isn't there, or they don't compare the same.
    """
    from sleuth.lab.charts import check_charts
    from sleuth.lab.folder import ComparisonFolder
    from sleuth.lab.sources import read_sources

    check_charts()
    paths = _paths(sources)
    if len(paths) == 1 and paths[0].is_dir():
        if output is not None:
            raise UserError("-o goes with an exported file or several sources; a folder's table is written into it")
        _finish(ComparisonFolder.read(paths[0]))
        return
    comparison, _ = read_sources(paths)
    if output is not None:
        check_output_folder(output)
        output.mkdir(parents=True, exist_ok=True)
        _write(comparison, output)
    _print(comparison, output)


def export_comparison(sources: Sequence[str], file: Path) -> None:
    """Write every metric of the runs of these comparisons to one file.

    Raises:
        UserError: no comparison there, or the file exists.
    """
    from sleuth.lab.export import export
    from sleuth.lab.sources import read_sources

    check_output_file(file, force=False)
    export(*read_sources(_paths(sources)), file)
    console().print(f"{file}: {file.stat().st_size / 1e6:.1f} MB")


def _paths(sources: Sequence[str]) -> list[Path]:
    for source in sources:
        if "=" in source and not Path(source).exists():
            raise UserError(f"{source} has no effect with --table or --export, which run nothing; drop it")
    return [Path(source) for source in sources]


def _planned(
    source: str, settings: Sequence[str], objectives: str | None, seeds: str, regimes: str | None, output: Path | None
) -> tuple[ComparisonFolder, float | None]:
    """The folder with what is asked for now added to what it holds, and the seconds that a step takes, if known."""
    from sleuth.lab.arms import choose_arms
    from sleuth.lab.design import CELL_DEFAULTS, Design, parse_seeds
    from sleuth.lab.folder import ComparisonFolder
    from sleuth.lab.settings import ComparisonSettings
    from sleuth.recipes.loader import load_recipe

    recipe = load_recipe(source, [*CELL_DEFAULTS, *settings], example=_EXAMPLE)
    of_recipe = recipe.comparison or ComparisonSettings()
    given = [setting.partition("=")[0] for setting in settings]
    design = Design.of(recipe, choose_arms(objectives, of_recipe.arms), given)
    cells = design.cells(design.choose_regimes(regimes), parse_seeds(seeds))
    design.check()
    path = output or RUNS / f"{recipe.name}-comparison"
    if ComparisonFolder.holds(path):
        folder = ComparisonFolder.read(path)
        folder.add(design, cells)
    else:
        check_output_folder(path, may_hold=["world", ".lock", "base-recipe.yaml"])
        folder = ComparisonFolder(path, design, cells)
    check_writable(path)
    return folder, of_recipe.seconds_per_step


def _refuse_options(settings: Sequence[str], **options: object) -> None:
    given = [f"--{name}" for name, value in options.items() if value is not None] + list(settings)
    if given:
        raise UserError(
            f"{given[0]}: a comparison's folder goes on as it was planned; to add arms, regimes or seeds name the "
            "recipe, with the folder as -o"
        )


def _print_plan(
    folder: ComparisonFolder, steps: Mapping[str, int], done: Mapping[str, int], jobs: int, seconds: float | None
) -> None:
    from sleuth.lab.design import seeds_text
    from sleuth.lab.display import duration

    left = sum(steps.values()) - sum(done.values())
    regimes = ", ".join(name for name in folder.design.regimes if any(c.regime == name for c in folder.cells))
    seeds = seeds_text({cell.seed for cell in folder.cells})
    arms = len({cell.arm.name for cell in folder.cells})
    out = console(stderr=True)
    out.print(
        f"{folder.path}: {len(folder.cells)} runs ({arms} arms; regimes {regimes}; {seeds}), "
        f"{len(folder.cells) - len(steps)} of them finished",
        soft_wrap=True,
    )
    if not steps:
        return
    if seconds is None:
        estimate = "how long that takes shows after the first steps"
    else:
        estimate = f"about {duration(left * seconds / jobs)} at {seconds:g} CPU seconds a step on cores that are idle"
    out.print(f"{len(steps)} runs to go, {left:,} steps, {jobs} at a time: {estimate}", soft_wrap=True)


def _finish(folder: ComparisonFolder) -> None:
    from sleuth.commands.train import write_report_of

    comparison = folder.write()
    _write(comparison, folder.path)
    write_report_of(folder.path)
    _print(comparison, folder.path)


def _write(comparison: Comparison, folder: Path) -> None:
    from sleuth.lab.charts import draw
    from sleuth.lab.table import markdown
    from sleuth.training.run_folder import write_text

    write_text(folder / "table.md", markdown(comparison))
    draw(comparison, folder)


def _print(comparison: Comparison, folder: Path | None) -> None:
    from sleuth.lab.table import rich_table

    out = console()
    out.print(rich_table(comparison))
    out.print()
    for sentence in comparison.verdict:
        out.print(f"* {sentence}", soft_wrap=True)
    if folder is not None:
        left = ", ".join(
            sorted(path.name for path in folder.iterdir() if path.suffix in (".html", ".json", ".md", ".svg"))
        )
        out.print(f"\n{folder}/: {left}", soft_wrap=True)
