"""Verbs that look at what a run left."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sleuth.cli.app import app
from sleuth.cli.arguments import JsonOption


@app.command()
def diagnose(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH...",
            help="A run folder, a rollouts file, or metrics of Sleuth, verl or TRL (JSONL, CSV, JSON, console).",
        ),
    ],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="RULE.FIELD=VALUE", help="Such as low_tail.limit=0.2; may be repeated."),
    ] = None,
    run: Annotated[str | None, typer.Option("--run", metavar="NAME", help="Which run of a wandb export.")] = None,
    fail_on: Annotated[
        str | None,
        typer.Option("--fail-on", metavar="LEVEL", help="Exit with 1 on an alarm of early, late or dead, or worse."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say whether a run drifts, since when, where, what to do, and what can't be told from what is there."""
    from sleuth.commands import diagnose as command

    code = command.diagnose(paths, settings=settings or [], run=run, fail_on=fail_on, as_json=as_json)
    raise typer.Exit(code)


@app.command()
def report(
    source: Annotated[
        Path, typer.Argument(metavar="RUN|ROLLOUTS|COMPARISON", help="A run folder, a rollouts file or a comparison.")
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Default: report.html in the folder.")
    ] = None,
    objective: Annotated[
        str | None, typer.Option("--objective", help="Whose advantages are shown; default: the run's own, or grpo.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME.PARAM=VALUE", help="Of that objective; may be repeated.")
    ] = None,
    tokenizer: Annotated[
        str | None, typer.Option("--tokenizer", help="Model folder or hub name, for the texts of single tokens.")
    ] = None,
    rollouts: Annotated[int, typer.Option("--rollouts", min=1, help="Show so many at most.")] = 5000,
    watch: Annotated[bool, typer.Option("--watch", help="Make it again as the run goes on.")] = False,
    every: Annotated[int, typer.Option("--every", min=1, help="Seconds between two looks of --watch.")] = 15,
    open_it: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Make one HTML file of a run: curves, alarms, drift and every rollout. Opens without a network."""
    from sleuth.commands import report as command

    command.report(
        source,
        output=output,
        objective=objective,
        settings=settings or [],
        tokenizer=tokenizer,
        rollouts=rollouts,
        watch=watch,
        every=every,
        open_it=open_it,
    )


@app.command()
def replay(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Saved rollouts (JSONL); one batch.")],
    objective: Annotated[
        list[str],
        typer.Option("--objective", metavar="NAME[+NAME]...", help="Several (repeated, or by commas) are compared."),
    ],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME.PARAM=VALUE", help="Such as search_sapo.gamma=0.2; may be repeated."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Apply objectives to saved rollouts: advantages, losses and gradients, without a model."""
    from sleuth.commands import replay as command

    command.replay(file, objective, settings or [], as_json=as_json)
