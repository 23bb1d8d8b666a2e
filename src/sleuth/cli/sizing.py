"""The verb that plans runs on GPUs which aren't there yet."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sleuth.cli.app import app
from sleuth.cli.arguments import JsonOption, RecipeSettings
from sleuth.errors import UserError


@app.command()
def plan(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A folder with a config.json, or a known name: qwen2.5-3b, …")
    ],
    settings: RecipeSettings = None,
    gpus: Annotated[
        str, typer.Option("--gpus", metavar="N[,N]...", help="How many; 8-1024 doubles from the one to the other.")
    ] = "8",
    gpu: Annotated[str, typer.Option("--gpu", help="a100, h100, h200, b200, l40s or 4090.")] = "h100",
    recipe: Annotated[str, typer.Option("--recipe", help="Whose batch, limits and steps.")] = "qwen-3b",
    sampler: Annotated[
        str, typer.Option("--sampler", help="vllm (beside the trainer on the same GPUs), or trainer: its own.")
    ] = "vllm",
    parallel: Annotated[
        int | None, typer.Option("--parallel", min=1, help="GPUs that hold one copy of vLLM; default: as few as fit.")
    ] = None,
    shard: Annotated[bool, typer.Option("--shard/--whole", help="Spread weights over all GPUs (FSDP), or not.")] = True,
    searches: Annotated[float, typer.Option("--searches", min=0, help="Of a rollout, on average.")] = 2.0,
    turn_tokens: Annotated[float, typer.Option("--turn-tokens", min=1, help="Of a turn, on average.")] = 120.0,
    rollouts: Annotated[
        Path | None, typer.Option("--rollouts", metavar="FILE", help="Take the lengths from a run's rollouts instead.")
    ] = None,
    search_seconds: Annotated[float, typer.Option("--search-seconds", min=0, help="Of one search.")] = 0.15,
    search_slots: Annotated[int, typer.Option("--search-slots", min=1, help="Searches at the same time.")] = 256,
    seed: Annotated[int, typer.Option("--seed", help="Of the simulated lengths.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Say what a run on so many GPUs would need and take: memory, tokens, hours; every assumption is printed."""
    from sleuth.commands import size as command

    asked = command.Asked(
        model=model,
        gpus=_numbers(gpus),
        gpu=gpu,
        recipe=recipe,
        settings=settings or [],
        sampler=sampler,
        parallel=parallel,
        shard=shard,
        searches=searches,
        search_seconds=search_seconds,
        search_slots=search_slots,
        turn_tokens=turn_tokens,
        rollouts=rollouts,
        seed=seed,
    )
    command.plan(asked, as_json=as_json)


def _numbers(text: str) -> list[int]:
    """``8,64`` or ``8-1024``, which doubles.

    Raises:
        UserError: neither, or a range that doubling doesn't lead through.
    """
    how = "write a number, several (8,64), or a range that doubles (8-1024: 8, 16, … 1024)"
    if not text.strip():
        raise UserError(f"--gpus is empty; {how}")
    numbers: list[int] = []
    for part in text.split(","):
        first, dash, last = (piece.strip() for piece in part.partition("-"))
        if not first.isdecimal() or int(first) < 1 or (dash and not last.isdecimal()):
            raise UserError(f"--gpus {text}: {how}")
        doubled = [int(first)]
        while dash and doubled[-1] < int(last):
            doubled.append(2 * doubled[-1])
        if dash and doubled[-1] != int(last):
            raise UserError(f"--gpus {text}: a range doubles, and doubling {first} doesn't lead to {last}; {how}")
        numbers += doubled
    return numbers
