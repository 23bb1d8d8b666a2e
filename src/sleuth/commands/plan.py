"""`sleuth train --dry-run`: what a run would do and need, checked with the parts of the run but for its weights."""

from __future__ import annotations

import math
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sleuth.assembly import (
    TINY,
    UNTRAINED_TINY,
    build_protocol,
    build_retriever,
    build_tokenizer,
    build_tools,
    check_parts_of_corpus,
    model_source,
)
from sleuth.commands.terminal import console
from sleuth.errors import UserError
from sleuth.plugins import load_object
from sleuth.question_sets import QuestionSets, question_sets, world_files
from sleuth.recipes.schema import Recipe
from sleuth.sizing.memory import BYTES, MemorySettings, activations, held, logits, total
from sleuth.sizing.shapes import Shape, shape_of_config
from sleuth.types import Tool

_GIB = 1 << 30
_HUB_TIMEOUT = 5.0


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What is known of a model without its weights. ``shape``: its config, None when only the name is known."""

    parameters: int
    source: str
    shape: Any = None


def print_plan(recipe: Recipe, *, resumed: Sequence[str] = ()) -> None:
    """Print the plan; everything that can be checked without weights is checked.

    Args:
        resumed: lines about the run that would go on, before all others.

    Raises:
        UserError: an unknown objective, parameter, setting, kind or tool, a missing, unreadable or broken file.
    """
    lines = [("" if number else "resume", text) for number, text in enumerate(resumed)] + list(plan(recipe))
    width = max(len(label) for label, _ in lines)
    out = console()
    for label, text in lines:
        out.print(f"{label:<{width}}  {text}", soft_wrap=True)


def plan(recipe: Recipe) -> Iterator[tuple[str, str]]:
    """The lines of the plan, as (label, text)."""
    from sleuth.objectives import resolve
    from sleuth.rewards.reward import Reward

    t = recipe.trainer
    objective = resolve(recipe.objective, recipe.parameters, recipe.aggregation, t.kl_coefficient)
    objective.check_training(t.updates_per_batch)
    Reward(recipe.reward)
    tools = build_tools(recipe)
    rollouts = t.prompts * t.group
    per_update = rollouts // t.updates_per_batch
    micro = t.micro_batch or per_update
    tokens = recipe.limits.max_tokens
    yield "recipe", f"{recipe.name}{f': {recipe.summary}' if recipe.summary else ''}"
    yield from _data(recipe)
    yield "objective", f"{recipe.objective}, reward {_reward(recipe)}"
    yield "batch", f"{t.prompts:,} prompts × {t.group} rollouts = {rollouts:,} rollouts a step"
    yield (
        "updates",
        f"{t.updates_per_batch} a step, each of {per_update:,} rollouts in {per_update // micro:,} × {micro:,}; "
        f"{t.steps:,} steps: {t.steps * t.updates_per_batch:,} updates, {t.steps * rollouts:,} rollouts",
    )
    if recipe.schedule == "search_e1":
        yield "schedule", _rounds(recipe)
    yield (
        "tokens",
        f"at most {tokens:,} behind a prompt, {rollouts * tokens:,} a step, {t.steps * rollouts * tokens:,} in all; "
        f"{recipe.limits.max_turns} turns, at most {recipe.limits.max_turn_tokens:,} sampled tokens each",
    )
    facts, problem = model_facts(recipe)
    if facts is None:
        _check_protocol(recipe, tools)
        yield "model", f"{recipe.model}: {problem}; memory can't be estimated"
        return
    _check_protocol(recipe, tools)
    yield "model", f"{recipe.model}: {facts.parameters:,} parameters ({facts.source}), in {recipe.model_settings.dtype}"
    yield from _memory(recipe, facts, rollouts, micro)


def model_facts(recipe: Recipe) -> tuple[ModelFacts | None, str]:
    """Size and shape of the recipe's model, or None and why not. Reads configs alone: local, cached or from the hub.

    Raises:
        UserError: no model is set, or a folder holds none.
    """
    if recipe.model == UNTRAINED_TINY:
        from sleuth.world.tiny import make_tiny_model

        model = make_tiny_model(0)
        return ModelFacts(sum(p.numel() for p in model.parameters()), "untrained", model.config), ""
    source = model_source(recipe)
    if os.path.isdir(source):
        if not (Path(source) / "config.json").is_file():
            raise UserError(f"{source}: no config.json in this folder; name a folder that save_pretrained wrote")
        where = "in the package" if recipe.model == TINY else "from its folder"
        return _from_config(source, where), ""
    try:
        return _from_config(source, "by its config"), ""
    except UserError:
        raise
    except Exception:  # no network, a proxy's answer, offline mode: none of them stops a dry run
        reason = "its config is not cached and the hub can't be reached"
    by_name = re.search(r"(\d+(?:\.\d+)?)([bBmM])(?![a-zA-Z])", source)
    if by_name is None:
        return None, reason
    size = int(float(by_name[1]) * (1e9 if by_name[2] in "bB" else 1e6))
    return ModelFacts(size, f"by its name, since {reason}"), ""


def _from_config(source: str, where: str) -> ModelFacts:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    folder = source if os.path.isdir(source) else _fetch_config(source)
    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    return ModelFacts(sum(p.numel() for p in model.parameters()), where, config.get_text_config())


def _fetch_config(name: str) -> str:
    """The cached folder with a hub model's config; fetched when the hub answers, but no weights."""
    from huggingface_hub import HfApi, hf_hub_download, try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError

    try:
        cached = try_to_load_from_cache(name, "config.json")
        if isinstance(cached, str):
            return os.path.dirname(cached)
        HfApi().model_info(name, timeout=_HUB_TIMEOUT)  # fails at once where a download would try again and again
        return os.path.dirname(hf_hub_download(name, "config.json"))
    except HFValidationError:
        raise UserError(f"model={name}: neither a folder nor a hub name (owner/model); check the path") from None
    except RepositoryNotFoundError:
        raise UserError(f"model={name}: no such folder, and no such model on the hub; check the spelling") from None


def _check_protocol(recipe: Recipe, tools: Mapping[str, Tool]) -> None:
    """With the policy's own tokenizer where that needs no download, else by its kind alone.

    Raises:
        UserError: unknown kind, or (with the tokenizer) a wrong setting or a tokenizer that doesn't fit.
    """
    if _tokenizer_is_here(recipe):
        from sleuth.agent.codec import TokenCodec

        build_protocol(recipe, TokenCodec(build_tokenizer(recipe)), tools)
    elif ":" in recipe.protocol.kind:
        load_object(recipe.protocol.kind)
    elif recipe.protocol.kind not in ("tags", "tool_calls"):
        kind = recipe.protocol.kind
        raise UserError(f"protocol.kind={kind!r} is not known; write tags, tool_calls, or your own module:function")


def _tokenizer_is_here(recipe: Recipe) -> bool:
    if recipe.model == UNTRAINED_TINY or os.path.isdir(model_source(recipe)):
        return True
    from huggingface_hub import try_to_load_from_cache

    return isinstance(try_to_load_from_cache(model_source(recipe), "tokenizer_config.json"), str)


def _data(recipe: Recipe) -> Iterator[tuple[str, str]]:
    notes: list[str] = []
    with tempfile.TemporaryDirectory() as scratch:  # a world is made in full: what no world can have is found out
        world = world_files(recipe, Path(scratch))
        sets = question_sets(recipe, world, say=notes.append)
        retriever, _ = build_retriever(recipe, world)
        check_parts_of_corpus(retriever, [*sets.train, *sets.dev, *sets.test])
    if not sets.train:
        raise UserError("the recipe has no training questions; set data.train=FILE")
    counts = f"train {len(sets.train):,}, dev {len(sets.dev):,}, test {len(sets.test):,}"
    if recipe.world is not None:
        w = recipe.world
        worlds = w.train.worlds + w.dev.worlds + w.test.worlds
        counts += f", made from {worlds:,} HopWorlds in the run folder"
    yield "questions", counts
    yield from (("", note) for note in [*notes, *_small_dev(recipe, sets)])
    corpus = recipe.retriever.corpus
    if corpus is not None:
        size = f", {os.path.getsize(corpus) / 1e6:,.1f} MB" if os.path.isfile(corpus) else ""
        yield "passages", f"{corpus}{size}, by {recipe.retriever.kind}"
    elif recipe.world is not None:
        yield "passages", f"those of the worlds, by {recipe.retriever.kind}"
    else:
        yield "passages", f"by {recipe.retriever.kind}"


def _small_dev(recipe: Recipe, sets: QuestionSets) -> Iterator[str]:
    """Says that a dev set split off train is smaller than asked for: half of train is the most that it gets."""
    if recipe.data.dev is None and recipe.world is None and len(sets.dev) < recipe.data.dev_size:
        yield (
            f"data.dev_size={recipe.data.dev_size:,} is more than half of the training questions; "
            f"dev gets {len(sets.dev):,} of them, train keeps {len(sets.train):,}"
        )


def _rounds(recipe: Recipe) -> str:
    s = recipe.search_e1
    asked = f"{s.pool.questions:,}" if s.pool.questions else "all"
    last = "" if s.end_on == "distill" else "; the last round ends without it"
    teacher = "a copy of all weights" if s.distill.lora is None else "the policy without its adapters"
    return (
        f"{s.rounds} rounds of {recipe.trainer.steps:,} steps, each followed by a pool of {asked} training questions × "
        f"{s.pool.rollouts} rollouts and a distillation of its pairs{last}; its teacher is {teacher}"
    )


def _reward(recipe: Recipe) -> str:
    if isinstance(recipe.reward, str):
        return recipe.reward
    if recipe.reward.function is not None:
        return recipe.reward.function
    return " + ".join(f"{weight:g} × {name}" for name, weight in recipe.reward.weights.items() if weight)


def _memory(recipe: Recipe, facts: ModelFacts, rollouts: int, micro: int) -> Iterator[tuple[str, str]]:
    import torch

    model, size = recipe.model_settings, BYTES[recipe.model_settings.dtype]
    shape = _shape(facts)
    settings = MemorySettings(
        weights=size,
        compute=2 if model.mixed_precision == "bf16" else size,
        lora=model.lora,
        reference=bool(recipe.trainer.kl_coefficient),
        checkpointing=model.gradient_checkpointing,
    )
    parts = held(facts.parameters, shape, settings)
    yield "memory", f"{_gib(total(parts))} held: " + ", ".join(f"{name} {_gib(n)}" for name, n in parts.items())
    if shape is None:
        yield "", "activations and cache can't be estimated without the config of a dense model"
        return
    tokens = micro * recipe.limits.max_tokens
    kept = activations(shape, tokens, settings)
    projected = logits(shape, tokens, kernel=torch.cuda.is_available())
    rows = min(rollouts, recipe.sampling.max_rows or rollouts)
    cache = rows * recipe.limits.max_tokens * shape.cache_bytes(size)
    yield "", f"+ {_gib(kept + projected)} in an update: activations {_gib(kept)}, logits {_gib(projected)}"
    yield "", f"or {_gib(cache)} in a rollout: keys and values of {rows:,} rollouts"
    most = total(parts) + max(kept + projected, cache)
    yield "", f"at most about {_gib(most)}, were every rollout as long as it may be"


def _shape(facts: ModelFacts) -> Shape | None:
    if facts.shape is None:
        return None
    try:
        return shape_of_config(facts.shape.to_dict())
    except (UserError, KeyError):  # a kind of model whose costs are others
        return None


def _gib(n: float) -> str:
    return f"{n / _GIB:,.1f} GiB" if n >= _GIB / 10 else f"{math.ceil(n / (1 << 20)):,} MiB"
