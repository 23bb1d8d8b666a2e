"""`sleuth plan`: memory, tokens, steps and hours of a run on many GPUs, from a stated model and a simulated step."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.table import Table

from sleuth.commands.terminal import console
from sleuth.errors import UserError
from sleuth.recipes.loader import load_recipe
from sleuth.recipes.schema import Recipe
from sleuth.sizing.devices import Device, Shares, find_device
from sleuth.sizing.lengths import LengthModel, Lengths, MeasuredLengths
from sleuth.sizing.memory import BYTES, MemorySettings, activations, gathered, held, logits, total
from sleuth.sizing.schedule import Cluster, Overlapped, Searches, StepTimes, Work, overlapped, play
from sleuth.sizing.shapes import Shape, find_shape

_GB = 1e9
_RESERVE = 0.08
_LEAST_CACHE = 1e9
"""Bytes for keys and values on a GPU without which nothing is sampled."""
_EXAMPLE = "sleuth plan MODEL --recipe {recipe} {settings}"


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line asks for; see ``sleuth plan --help``."""

    model: str
    gpus: Sequence[int]
    gpu: str
    recipe: str
    settings: Sequence[str]
    sampler: str
    parallel: int | None
    shard: bool
    searches: float
    search_seconds: float
    search_slots: int
    turn_tokens: float
    rollouts: Path | None
    seed: int


@dataclass(frozen=True, slots=True)
class Row:
    """A number of GPUs: what one of them holds, in bytes, and what a step takes."""

    gpus: int
    held: dict[str, float]
    update: float
    cache: float
    times: StepTimes
    overlap: Overlapped | None


def plan(asked: Asked, *, as_json: bool) -> None:
    """Print the plan.

    Raises:
        UserError: an unknown model, accelerator or recipe, settings that can't be, or a model that doesn't fit.
    """
    recipe = load_recipe(asked.recipe, asked.settings, check_required=False, example=_EXAMPLE)
    name, shape = find_shape(asked.model)
    device = find_device(asked.gpu)
    lengths = _lengths(asked, recipe)
    work = _work(recipe)
    if asked.sampler not in ("vllm", "trainer"):
        raise UserError(f"--sampler {asked.sampler}: write vllm or trainer")
    rows = [_row(asked, recipe, shape, device, lengths, work, gpus) for gpus in asked.gpus]
    if as_json:
        print(json.dumps(_as_json(name, shape, device, recipe, work, rows), indent=2))
        return
    out = console()
    lines = [*_facts(name, shape, recipe, work, lengths, rows[0]), *_assumptions(asked, device, lengths, work, rows[0])]
    width = max(len(label) for label, _ in lines)
    for label, text in lines:
        out.print(f"{label:<{width}}  {text}", soft_wrap=True)
    out.print()
    out.print(_memory_table(rows, device))
    out.print()
    out.print(_time_table(rows, recipe, device))
    for line in _warnings(rows, work, device, asked.shard):
        out.print(line, soft_wrap=True)


def _lengths(asked: Asked, recipe: Recipe) -> Lengths:
    if asked.rollouts is not None:
        from sleuth.rollouts import read_rollouts

        try:
            return MeasuredLengths.of(read_rollouts(asked.rollouts))
        except ValueError as error:
            raise UserError(f"{asked.rollouts}: {error}; name a rollouts file of a run") from None
    limits = recipe.limits
    most = limits.max_turns - 1
    return LengthModel(
        searches=asked.searches,
        turn=asked.turn_tokens,
        observation=limits.max_observation_tokens,
        max_searches=most if limits.max_searches is None else min(most, limits.max_searches),
        max_turn=min(limits.max_turn_tokens, limits.max_tokens),
        max_tokens=limits.max_tokens,
    )


def _work(recipe: Recipe) -> Work:
    from sleuth.objectives import resolve

    t, m = recipe.trainer, recipe.model_settings
    objective = resolve(recipe.objective, recipe.parameters, recipe.aggregation, t.kl_coefficient)
    return Work(
        prompts=t.prompts,
        group=t.group,
        updates=t.updates_per_batch,
        micro_batch=t.micro_batch,
        checkpointing=m.gradient_checkpointing,
        reference=bool(t.kl_coefficient),
        teacher=objective.needs_teacher,
        weights=BYTES[m.dtype],
        compute=2 if m.mixed_precision != "no" else BYTES[m.dtype],
    )


def _row(asked: Asked, recipe: Recipe, shape: Shape, device: Device, lengths: Lengths, work: Work, gpus: int) -> Row:
    m = recipe.model_settings
    parallel = asked.parallel or _smallest_parallel(shape, device, gpus)
    if gpus % parallel:
        raise UserError(f"--parallel {parallel} doesn't divide {gpus} GPUs")
    memory = MemorySettings(
        weights=work.weights,
        compute=work.compute,
        lora=m.lora,
        reference=work.reference,
        checkpointing=work.checkpointing,
        shards=gpus if asked.shard else 1,
        sampler=2 if asked.sampler == "vllm" else 0,
        sampler_shards=parallel,
    )
    parts = held(shape.parameters, shape, memory)
    own = -(-work.rollouts // work.updates // gpus)
    tokens = min(work.micro_batch or own, own) * (recipe.limits.max_tokens + lengths.prompt)
    update = activations(shape, tokens, memory) + logits(shape, tokens) + gathered(shape, memory)
    room = device.memory * (1 - _RESERVE)
    # The two follow each other: what an update needs is free for keys and values during rollouts.
    whole = shape.parameters * work.weights if asked.shard and gpus > 1 and asked.sampler == "trainer" else 0.0
    cache = room - total(parts) - whole
    cluster = Cluster(gpus, device, Shares(), "vllm", parallel, max(cache, 1.0), asked.shard)
    if asked.sampler == "trainer":
        cluster = replace(cluster, engine="trainer", parallel=1)
    searches = Searches(asked.search_seconds, slots=asked.search_slots)
    times = play(shape, work, lengths, searches, cluster, asked.seed)
    overlap = overlapped(shape, work, lengths, searches, cluster, asked.seed) if asked.sampler == "vllm" else None
    return Row(gpus, parts, update, cache, times, overlap)


def _smallest_parallel(shape: Shape, device: Device, gpus: int) -> int:
    """GPUs that share one copy of the sampling engine: as few as leave half of their memory free."""
    parallel = 1
    while shape.parameters * 2 > parallel * device.memory / 2 and parallel < min(8, gpus):
        parallel *= 2
    return parallel


def _fits(row: Row, device: Device) -> bool:
    room = device.memory * (1 - _RESERVE)
    return total(row.held) + row.update <= room and row.cache > _LEAST_CACHE


# What is printed -----------------------------------------------------------------------------------------------------


def _facts(
    name: str, shape: Shape, recipe: Recipe, work: Work, lengths: Lengths, row: Row
) -> Iterator[tuple[str, str]]:
    t = recipe.trainer
    yield "model", f"{name}: {shape.parameters:,} parameters, {shape.cache_bytes() / 1024:,.0f} KiB of cache a token"
    yield (
        "step",
        f"{work.prompts:,} prompts × {work.group} = {work.rollouts:,} rollouts, {work.updates} updates, objective "
        f"{recipe.objective} (recipe {recipe.name})",
    )
    mean = row.times.tokens / work.rollouts
    yield (
        "tokens",
        f"{mean:,.0f} a rollout on average, {row.times.tokens / 1e6:,.1f} M a step, "
        f"{row.times.tokens * t.steps / 1e9:,.2f} G in {t.steps:,} steps",
    )


def _assumptions(asked: Asked, device: Device, lengths: Lengths, work: Work, row: Row) -> Iterator[tuple[str, str]]:
    shares = Shares()
    yield (
        "assumed",
        f"{device.name}: {device.flops / 1e12:,.0f} TFLOP/s in 16 bits and {device.bandwidth / 1e12:.2f} TB/s (its "
        f"maker's figures), links of {device.link / _GB:,.0f} GB/s in machines of 8 and {device.network / _GB:,.1f} "
        "GB/s between them",
    )
    yield (
        "",
        f"of these {shares.training:.0%} in training passes, {shares.reading:.0%} in passes over known tokens, "
        f"{shares.decoding:.0%} of the bandwidth while sampling (+ {shares.decode_overhead * 1e3:g} ms a token), "
        f"{shares.links:.0%} of the links; collectives run while passes do",
    )
    if isinstance(lengths, MeasuredLengths):
        yield "", f"lengths: drawn from the {len(lengths.rollouts):,} rollouts of {asked.rollouts}"
    else:
        yield (
            "",
            f"lengths: a prompt of {lengths.prompt} tokens, {lengths.searches:g} searches on average (geometric, at "
            f"most {lengths.max_searches}), turns of {lengths.turn:g} tokens on average (log-normal, σ "
            f"{lengths.spread:g}, at most {lengths.max_turn}), {lengths.observation} tokens of passages each",
        )
    yield (
        "",
        f"retriever: {asked.search_seconds:g} s a search, {asked.search_slots} at once, "
        + (
            f"{asked.search_slots / asked.search_seconds:,.0f} a second at most" if asked.search_seconds else "no limit"
        ),
    )
    how = "spread over all GPUs (FSDP)" if asked.shard else "whole on every GPU (DDP)"
    if max(asked.gpus) == 1:
        how = "whole on the one GPU"
    engine = "vLLM on the same GPUs, which gives its memory back" if asked.sampler == "vllm" else "the trainer's own"
    yield "", f"weights, gradients, optimiser: {how}; sampler: {engine}; rewards cost nothing"


def _memory_table(rows: Sequence[Row], device: Device) -> Table:
    names = list(rows[0].held)
    table = Table("GPUs", *[f"{n}" for n in names], "held", "+ update", "or cache", "fits", box=None, pad_edge=False)
    for row in rows:
        sizes = [_gb(row.held[n]) for n in names]
        fits = "yes" if _fits(row, device) else "no"
        table.add_row(f"{row.gpus:,}", *sizes, _gb(total(row.held)), _gb(row.update), _gb(max(row.cache, 0)), fits)
    table.title = f"GB on each GPU ({device.memory / _GB:g} GB, {_RESERVE:.0%} kept free)"
    table.title_justify = "left"
    return table


def _time_table(rows: Sequence[Row], recipe: Recipe, device: Device) -> Table:
    """A row that doesn't fit is marked; one without room for keys and values has no times, since it can't sample."""
    steps = recipe.trainer.steps
    table = Table(
        *("GPUs", "rollout", "of it tail", "searching", "score", "update", "sync", "step", "tokens/s/GPU"),
        *(f"{steps:,} steps, h", "GPU-hours", "overlapped", "h"),
        box=None,
        pad_edge=False,
    )
    for row in rows:
        gpus = f"{row.gpus:,}" if _fits(row, device) else f"{row.gpus:,} (doesn't fit)"
        if row.cache <= _LEAST_CACHE:
            table.add_row(gpus, *["–"] * (len(table.columns) - 1))
            continue
        t = row.times
        hours = t.step * steps / 3600
        split = ("–", "–")
        if row.overlap is not None:
            split = (f"{row.overlap.step:,.1f} ({row.overlap.sampling:,})", f"{row.overlap.step * steps / 3600:,.1f}")
        table.add_row(
            gpus,
            *(f"{t.rollout:,.1f}", f"{t.tail:.0%}", f"{t.searching:.0%}", f"{t.score:,.1f}", f"{t.update:,.1f}"),
            *(f"{t.sync:,.1f}", f"{t.step:,.1f}", f"{t.tokens / t.step / row.gpus:,.0f}"),
            *(f"{hours:,.1f}", f"{hours * row.gpus:,.0f}"),
            *split,
        )
    table.title = "Seconds of a step; overlapped: the next batch is sampled (on so many GPUs) while this one is trained"
    table.title_justify = "left"
    return table


def _warnings(rows: Sequence[Row], work: Work, device: Device, sharded: bool) -> Iterator[str]:
    for row in rows:
        if row.times.idle_ranks:
            yield (
                f"{row.gpus:,} GPUs: an update has {work.rollouts // work.updates:,} rollouts, so that "
                f"{row.times.idle_ranks:.0%} of the GPUs have none; fewer updates a batch, or more prompts"
            )
    if not any(_fits(row, device) for row in rows):
        more = "more GPUs" if sharded else "more GPUs without --whole"
        yield f"it fits nowhere here: {more}, a smaller trainer.micro_batch, or LoRA (model_settings.lora)"


def _as_json(
    name: str, shape: Shape, device: Device, recipe: Recipe, work: Work, rows: Sequence[Row]
) -> dict[str, Any]:
    return {
        "model": name,
        "parameters": shape.parameters,
        "shape": asdict(shape),
        "device": asdict(device),
        "shares": asdict(Shares()),
        "work": asdict(work),
        "steps": recipe.trainer.steps,
        "rows": [
            {
                "gpus": row.gpus,
                "bytes": row.held | {"update": row.update, "cache": max(row.cache, 0.0)},
                "fits": _fits(row, device),
                "seconds": asdict(row.times) | {"step": row.times.step},
                "overlapped": None if row.overlap is None else asdict(row.overlap),
                "hours": row.times.step * recipe.trainer.steps / 3600,
            }
            for row in rows
        ],
    }


def _gb(size: float) -> str:
    return f"{size / _GB:,.1f}"
