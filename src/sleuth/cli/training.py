"""Verbs that make a policy: training, warm start, distillation, comparisons, export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sleuth.cli.app import app
from sleuth.cli.arguments import RecipeName, RecipeOption, RecipeSettings


@app.command()
def train(
    recipe: RecipeName,
    settings: RecipeSettings = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="RUN_DIR", help="Run folder; default: runs/NAME.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the run's last checkpoint.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what the run would do and need, and stop.")] = False,
) -> None:
    """Train a search agent and score it before and after."""
    from sleuth.commands import train as command

    if dry_run:
        command.dry_run(recipe, settings or [], output=output, resume=resume)
    else:
        command.train(recipe, settings or [], output=output, resume=resume)


@app.command()
def warmstart(
    recipe: RecipeName,
    settings: RecipeSettings = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Model folder; default: runs/NAME-warmstart.")
    ] = None,
) -> None:
    """Teach a model the protocol from demonstrations."""
    from sleuth.commands import train as command

    command.warmstart(recipe, settings or [], output=output)


@app.command()
def distill(
    pool: Annotated[str, typer.Argument(metavar="POOL", help="A rollouts file with several of each question.")],
    settings: RecipeSettings = None,
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="RUN_OR_MODEL", help="The run, model folder or hub model that sampled it."),
    ] = None,
    recipe: RecipeOption = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Model folder; default: runs/POOL-distilled.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the folder -o.")] = False,
) -> None:
    """Let a model learn from its own better rollouts: pairs of a pool, then self-distillation."""
    from sleuth.commands import distill as command

    command.distill(pool, settings or [], model=model, recipe=recipe, output=output, resume=resume)


@app.command()
def compare(
    source: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE_OR_COMPARISON",
            help="A recipe; or a comparison's folder, to go on. With --table and --export a folder or an exported "
            "file, or several.",
        ),
    ],
    settings: RecipeSettings = None,
    objectives: Annotated[
        str | None,
        typer.Option(
            "--objectives",
            metavar="ARM[,ARM]...",
            help="Such as search_sapo[gamma=1],llds; names or a YAML file of arms too. Default: the recipe's arms.",
        ),
    ] = None,
    seeds: Annotated[
        str | None, typer.Option("--seeds", metavar="N", help="How many (5), which (5-9) or a list (1,4); default 3.")
    ] = None,
    regimes: Annotated[
        str | None, typer.Option("--regimes", metavar="NAME[,NAME]...", help="Of the recipe's; default: all.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Default: runs/NAME-comparison.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", min=1, help="Runs side by side; default: one a core.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be run, and stop.")] = False,
    table: Annotated[
        bool,
        typer.Option(
            "--table", help="Run nothing: show what is there, and write table and pictures (see docs/lab.md)."
        ),
    ] = False,
    export: Annotated[
        Path | None,
        typer.Option("--export", metavar="FILE", help="Run nothing: write every metric of all runs to FILE.jsonl.zst."),
    ] = None,
) -> None:
    """Compare objectives: same start, same questions, same budget. What is finished is never run again."""
    from sleuth.commands import compare as command

    if table or export is not None:
        command.check_runs_nothing(objectives=objectives, seeds=seeds, regimes=regimes, jobs=jobs)
        sources = [source, *(settings or [])]
        if export is not None:
            command.export_comparison(sources, export)
        if table:
            command.show(sources, output=output)
    else:
        command.compare(
            source,
            settings or [],
            objectives=objectives,
            seeds=seeds,
            regimes=regimes,
            output=output,
            jobs=jobs,
            dry_run=dry_run,
        )


@app.command()
def export(
    source: Annotated[str, typer.Argument(metavar="RUN", help="A run folder: its result is written.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Model folder; default: export in the run.")
    ] = None,
    step: Annotated[int | None, typer.Option("--step", metavar="N", help="Another checkpoint than the result.")] = None,
    dtype: Annotated[str, typer.Option(help="Of the written weights: auto, float32, bfloat16 or float16.")] = "auto",
    push: Annotated[
        str | None, typer.Option("--push", metavar="USER/NAME", help="Upload it to the model hub too.")
    ] = None,
    private: Annotated[bool, typer.Option("--private", help="A private repository.")] = False,
) -> None:
    """Write a run's result as an ordinary model folder with a card: LoRA merged, ready for vLLM."""
    from sleuth.commands import export as command

    command.export(source, output=output, step=step, dtype=dtype, push=push, private=private)


@app.command()
def migrate(
    script: Annotated[Path, typer.Argument(metavar="SCRIPT", help="A training script of Search-R1 (train_grpo.sh).")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The recipe.")] = Path("recipe.yaml"),
    force: Annotated[bool, typer.Option("--force", help="Write over a file that exists.")] = False,
) -> None:
    """Turn a training script of Search-R1 into a recipe, and say what has no counterpart."""
    from sleuth.commands import migrate as command

    command.run_migration(script, output, force=force)


@app.command(name="recipes")
def list_recipes() -> None:
    """List the recipes that come with Sleuth."""
    from sleuth.commands import lists as command

    command.list_recipes()


@app.command(name="objectives")
def list_objectives(
    name: Annotated[str | None, typer.Argument(help="Show this one's formula, source and parameters.")] = None,
) -> None:
    """List the objectives that a recipe may name."""
    from sleuth.commands import lists as command

    command.list_objectives(name)
