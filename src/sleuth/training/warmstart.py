"""Warm start: supervised training on demonstrations, so that reinforcement learning begins with some reward.

The demonstrations are played through the real :class:`~sleuth.agent.episode.Episode`, so their rows are exactly what a
rollout would be: same prompt, same observations, same token boundaries. Only policy tokens have labels.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import PrinterCallback, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from trl import SFTConfig, SFTTrainer

from sleuth.assembly import Parts, assemble, autocast_dtype
from sleuth.errors import UserError
from sleuth.recipes.loader import dump_recipe
from sleuth.recipes.schema import Recipe
from sleuth.rollouts import write_rollouts
from sleuth.training.demonstrations import demonstrations
from sleuth.training.progress import Progress
from sleuth.training.run_folder import environment, write_text
from sleuth.types import SpanKind, Trajectory

IGNORED = -100
"""The label of a token without loss."""

SHOWN = 300
"""How many demonstrations are kept to look at."""


def sft_row(trajectory: Trajectory) -> dict[str, list[int]]:
    """A trajectory as ``input_ids`` and ``labels``: every token of every span, labelled where the policy wrote it."""
    ids: list[int] = []
    labels: list[int] = []
    for span in trajectory.spans:
        ids += span.ids
        labels += span.ids if span.kind is SpanKind.POLICY else [IGNORED] * len(span.ids)
    return {"input_ids": ids, "labels": labels}


def sft_rows(trajectories: Sequence[Trajectory], max_tokens: int) -> tuple[list[dict[str, list[int]]], int]:
    """Rows of all trajectories that fit, and how many did not: a cut demonstration would teach not to finish."""
    rows = [sft_row(t) for t in trajectories]
    fitting = [r for r in rows if len(r["input_ids"]) <= max_tokens and any(x != IGNORED for x in r["labels"])]
    return fitting, len(rows) - len(fitting)


def warmstart(recipe: Recipe, out: Path, *, quiet: bool = False) -> dict[str, Any]:
    """Train the recipe's model on its demonstrations and write an ordinary model folder to ``out``.

    Beside the weights: ``warmstart.json`` (what was done, final loss) and ``demonstrations.jsonl.zst`` (the first few
    hundred, to look at).

    Returns:
        What ``warmstart.json`` holds.

    Raises:
        UserError: the folder isn't empty, or there is nothing to demonstrate with.
    """
    if out.exists() and any(path.name != "world" for path in out.iterdir()):  # a refused start leaves its world
        raise UserError(f"{out} is not empty; choose another -o folder")
    out.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    settings = recipe.warmstart
    with Progress(recipe, quiet=quiet) as progress:
        parts = assemble(recipe, out, say=progress.say)
        shown = demonstrations(recipe, parts)
        rows, too_long = sft_rows(shown, settings.max_tokens)
        if not rows:
            raise UserError(f"no demonstration fits into warmstart.max_tokens={settings.max_tokens}; raise it")
        write_rollouts(out / "demonstrations.jsonl.zst", shown[:SHOWN])
        right = sum((t.rewards.get("em") or 0.0) for t in shown) / len(shown)
        progress.say(
            f"{len(rows)} demonstrations ({right:.1%} right, {too_long} too long), "
            f"{sum(len(r['input_ids']) for r in rows) / len(rows):.0f} tokens each"
        )
        trainer = _trainer(recipe, parts, rows, out, progress)
        trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    trainer.save_model(str(out))
    parts.tokenizer.save_pretrained(str(out))
    summary = {
        "recipe": recipe.name,
        "model": recipe.model,
        "demonstrations": len(rows),
        "too_long": too_long,
        "demonstrations_em": right,
        "steps": settings.steps,
        "loss_first": losses[0] if losses else None,
        "loss_last": losses[-1] if losses else None,
        "seconds": round(time.monotonic() - started, 1),
        "comparable": recipe.data.comparable,
    }
    facts = environment(seed=recipe.seed, corpus_hash=parts.corpus_hash, prompt_hash=parts.prompt_hash)
    write_text(out / "environment.json", json.dumps(facts, indent=2, ensure_ascii=False) + "\n")
    write_text(out / "recipe.yaml", dump_recipe(recipe))
    write_text(out / "warmstart.json", json.dumps(summary, indent=2) + "\n")
    return summary


def _trainer(
    recipe: Recipe, parts: Parts, rows: list[dict[str, list[int]]], out: Path, progress: Progress
) -> SFTTrainer:
    settings = recipe.warmstart
    micro = settings.micro_batch or settings.batch
    if settings.batch % micro:
        raise UserError(f"warmstart.micro_batch={micro} must divide warmstart.batch={settings.batch}")
    gpu = torch.cuda.is_available()
    trainer = SFTTrainer(
        model=parts.model,
        args=SFTConfig(
            output_dir=str(out),
            per_device_train_batch_size=micro,
            gradient_accumulation_steps=settings.batch // micro,
            max_steps=settings.steps,
            learning_rate=settings.lr,
            lr_scheduler_type="linear",
            warmup_steps=min(math.ceil(0.03 * settings.steps), 100),
            weight_decay=0.01,
            adam_beta2=0.98,
            max_length=settings.max_tokens,
            packing=False,
            dataset_kwargs={"skip_prepare_dataset": True},
            remove_unused_columns=False,
            bf16=autocast_dtype(recipe) is not None,
            use_cpu=not gpu,
            gradient_checkpointing=recipe.model_settings.gradient_checkpointing,
            logging_steps=max(settings.steps // 50, 1),
            save_strategy="no",
            report_to=recipe.trainer.track or "none",
            disable_tqdm=True,
            seed=recipe.seed,
        ),
        train_dataset=Dataset.from_list(rows),
        processing_class=parts.tokenizer,
        callbacks=[_Watch(progress, settings.steps)],
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


class _Watch(TrainerCallback):
    def __init__(self, progress: Progress, steps: int):
        self.progress, self.steps = progress, steps

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if logs and "loss" in logs:
            self.progress.say(f"warm start step {state.global_step}/{self.steps}  loss {float(logs['loss']):.3f}")
