"""`sleuth train` and `sleuth warmstart`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from sleuth.commands.folders import check_output_folder, check_writable, free_folder
from sleuth.commands.terminal import console
from sleuth.errors import INTERRUPTED, OtherProcess, RunFailed, RunStopped, UserError
from sleuth.evaluation.table import AVERAGE, NOT_COMPARABLE
from sleuth.recipes.loader import load_recipe
from sleuth.recipes.schema import Recipe

RUNS = Path("runs")
_WARMSTART = "sleuth warmstart {recipe} {settings}"
_DRY_RUN = "sleuth train {recipe} {settings} --dry-run"


def train(recipe: str, settings: Sequence[str], *, output: Path | None, resume: bool) -> None:
    """Train; with ``resume`` the recipe is the one that the run folder holds, ``settings`` on top.

    Raises:
        UserError: a wrong recipe, a run folder that isn't empty or can't be written, or nothing to resume.
        RunStopped: interrupted; says how to go on.
    """
    from sleuth.training.processes import Processes
    from sleuth.training.run import train as run_training

    processes = Processes.join()
    loaded, folder = processes.from_main(lambda: _loaded(recipe, settings, output, resume))
    try:
        summary = run_training(loaded, folder, resume=resume, processes=processes)
    except (RunFailed, RunStopped):
        write_report_of(folder)
        raise
    except KeyboardInterrupt:
        if not processes.main:
            raise OtherProcess(INTERRUPTED) from None
        raise RunStopped(f"interrupted; {_further(folder)}") from None
    if not processes.main:
        return
    report = write_report_of(folder)
    print_summary(summary, folder)
    if report is not None:
        console().print(f"curves, alarms and the saved rollouts (trainer.save_rollouts_every): {report}")


def _further(folder: Path) -> str:
    """What is left of a run that was interrupted at once."""
    from sleuth.training.run_folder import RunFolder

    if not (folder / "recipe.yaml").is_file():
        return "nothing was begun"
    how = f"`sleuth train {folder} --resume`"
    rounds = (folder / "rounds").is_dir()
    if not RunFolder(folder / "rounds" / "1" / "rl" if rounds else folder).checkpoint_steps():
        return f"{how} starts it over"
    return f"{how} goes on {'in the stage that it was in' if rounds else 'from its last checkpoint'}"


def _loaded(recipe: str, settings: Sequence[str], output: Path | None, resume: bool) -> tuple[Recipe, Path]:
    """The recipe and the run's folder."""
    if not resume:
        loaded = load_recipe(recipe, settings)
        folder = output or free_folder(RUNS / loaded.name)
        _check_run_folder(folder)
        if (Path(recipe) / "recipe.yaml").is_file():
            console().print(f"starting anew by the recipe of {recipe}, in {folder}; --resume goes on with {recipe}")
        return loaded, folder
    folder = output or _run_to_resume(recipe)
    if not (folder / "recipe.yaml").is_file():
        raise UserError(f"{folder}: no run to resume (no recipe.yaml in it); name its folder with -o")
    check_writable(folder)
    return load_recipe(folder / "recipe.yaml", settings), folder


def write_report_of(run: Path) -> Path | None:
    """Write the run's ``report.html``; one that can't be made is said, and takes nothing from the run."""
    from sleuth.report.sources import find_source
    from sleuth.report.write import write_report

    file = run / "report.html"
    try:
        write_report(find_source(run), file)
    except Exception as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())
        console(stderr=True).print(f"warning: no report was made ({why}); try `sleuth report {run}`", soft_wrap=True)
        return None
    return file


def print_summary(summary: Mapping[str, Any], folder: Path) -> None:
    """Exact match before and after, on the same questions, and where everything is."""
    table = Table(
        f"test, {summary['questions']:,} questions", "EM before", "EM after", "gain", box=None, pad_edge=False
    )
    for mode in ("sampled", "greedy"):
        if mode in summary:
            before, after = (_overall(summary[mode][when])["em"] for when in ("before", "after"))
            table.add_row(mode, _interval(before), _interval(after), _interval(summary[mode]["gain_em"], sign="+"))
    out = console()
    if summary["questions"]:
        out.print(table)
        if not summary.get("comparable", True):
            out.print(NOT_COMPARABLE)
    if "kept" in summary:
        out.print(f"kept: {summary['kept']}")
    out.print(f"{_steps(summary)} in {summary['seconds']:.0f} s; the trained model: {folder / summary['checkpoint']}")
    out.print(f'ask it something: sleuth ask {folder} "…"')


def _steps(summary: Mapping[str, Any]) -> str:
    if "distillation_updates" not in summary:
        return f"{summary['steps']} steps"
    rl, distillation = summary["rl_steps"], summary["distillation_updates"]
    return f"{rl} steps of reinforcement learning and {distillation} updates of distillation"


def _overall(lines: Mapping[str, Any]) -> Mapping[str, Any]:
    return lines.get(AVERAGE) or next(iter(lines.values()))


def _interval(interval: Mapping[str, float] | None, sign: str = "") -> str:
    if interval is None:
        return "–"
    return f"{interval['mean']:{sign}.3f} [{interval['low']:{sign}.3f}, {interval['high']:{sign}.3f}]"


def warmstart(recipe: str, settings: Sequence[str], *, output: Path | None) -> None:
    """Supervised training on the recipe's demonstrations; leaves a model folder.

    Raises:
        UserError: a wrong recipe, or an output folder that isn't empty or can't be written.
    """
    loaded = load_recipe(recipe, settings, example=_WARMSTART)
    folder = output or free_folder(RUNS / f"{loaded.name}-warmstart")
    check_output_folder(folder, may_hold=["world"])
    from sleuth.training.warmstart import warmstart as run_warmstart

    run_warmstart(loaded, folder)


def dry_run(recipe: str, settings: Sequence[str], *, output: Path | None, resume: bool) -> None:
    """Print what the run would do and need; with ``resume`` where it would go on and what is left, too.

    Raises:
        UserError: what :func:`train` would refuse, as far as that is known without weights.
    """
    from sleuth.commands.plan import print_plan

    if resume:
        from sleuth.training.outlook import outlook
        from sleuth.training.run_folder import RunFolder

        of_run, folder = _loaded(recipe, settings, output, resume)
        in_force, lines = outlook(of_run, RunFolder(folder))
        print_plan(in_force, resumed=lines)
        return
    loaded = load_recipe(recipe, settings, example=_DRY_RUN)
    _check_run_folder(output or free_folder(RUNS / loaded.name))
    print_plan(loaded)


def _check_run_folder(folder: Path) -> None:
    """A start that was refused may have left the recipe's world, which the next one uses."""
    check_output_folder(folder, instead="go on with it by --resume, or choose", may_hold=["world"])


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
