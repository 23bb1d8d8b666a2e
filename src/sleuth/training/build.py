"""TRL's trainer, set up for a recipe."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import torch
from trl import GRPOConfig

from sleuth.assembly import Parts, autocast_dtype, build_agent, build_sampler
from sleuth.objectives import resolve
from sleuth.objectives.compose import Objective
from sleuth.recipes.schema import Recipe
from sleuth.training.processes import TIMEOUT, Processes
from sleuth.training.progress import Progress
from sleuth.training.run_folder import RunFolder
from sleuth.training.scores import dev_rollouts
from sleuth.training.served_sampling import follow, served_policy
from sleuth.training.teacher_pass import teacher_pass
from sleuth.training.trl import SearchGRPOTrainer
from sleuth.training.watch import Watch
from sleuth.types import SamplingParams


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """How a rollout batch becomes updates.

    Attributes:
        rollouts: in a batch. ``micro_batch``: rollouts in one pass. ``accumulate``: passes an update.
        updates: optimiser updates a batch.
        rows: rollouts that the engine asks for, which are more where these can't be dealt evenly.
    """

    rollouts: int
    micro_batch: int
    accumulate: int
    updates: int
    rows: int

    @classmethod
    def of(cls, recipe: Recipe, processes: int = 1) -> BatchPlan:
        """Passes and rollouts of each of so many processes."""
        t = recipe.trainer
        rollouts = t.prompts * t.group
        own = -(-rollouts // t.updates_per_batch // processes)
        micro = min(t.micro_batch or own, own)
        accumulate = -(-own // micro)
        return cls(
            rollouts, micro, accumulate, t.updates_per_batch, micro * accumulate * processes * t.updates_per_batch
        )

    def engine_group(self, group: int) -> int:
        """What the engine takes for the size of groups, which must divide its rows: it decides nothing."""
        return next(n for n in (group, *range(2, self.rows + 1)) if self.rows % n == 0)


def recipe_objective(recipe: Recipe) -> Objective:
    """The recipe's objective, refused where its trainer settings leave it nothing to work on."""
    t = recipe.trainer
    objective = resolve(recipe.objective, recipe.parameters, recipe.aggregation, t.kl_coefficient)
    objective.check_training(t.updates_per_batch)
    return objective


def build_trainer(
    recipe: Recipe, parts: Parts, run: RunFolder, progress: Progress, processes: Processes = Processes()
) -> SearchGRPOTrainer:
    """The engine, set up for this recipe."""
    t = recipe.trainer
    plan = BatchPlan.of(recipe, processes.count)
    gpu = torch.cuda.is_available()
    if "tensorboard" in t.track:
        os.environ.setdefault("TENSORBOARD_LOGGING_DIR", str(run.path / "tensorboard"))
    args = GRPOConfig(
        output_dir=str(run.checkpoints),
        per_device_train_batch_size=plan.micro_batch,
        gradient_accumulation_steps=plan.accumulate,
        steps_per_generation=plan.accumulate * plan.updates,
        num_generations=plan.engine_group(t.group),
        max_completion_length=recipe.limits.max_tokens,
        max_steps=t.steps * plan.updates,
        learning_rate=t.lr,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=t.warmup_steps * plan.updates,
        weight_decay=t.weight_decay,
        max_grad_norm=t.max_grad_norm,
        beta=0.0,  # the reference KL is our objective's, see SearchGRPOTrainer
        temperature=recipe.sampling.temperature,
        disable_dropout=True,
        bf16=autocast_dtype(recipe) is not None,
        use_cpu=not gpu,
        gradient_checkpointing=recipe.model_settings.gradient_checkpointing,
        logging_strategy="steps",
        logging_steps=plan.updates,
        save_strategy="no",
        report_to=t.track or "none",
        run_name=recipe.name,
        remove_unused_columns=False,
        disable_tqdm=True,
        dataloader_pin_memory=gpu,
        ddp_find_unused_parameters=False,
        ddp_timeout=int(TIMEOUT.total_seconds()),
        seed=recipe.seed,
    )
    if hasattr(parts.retriever, "prepare"):
        parts.retriever.prepare({q.corpus for q in parts.train})
    served = served_policy(recipe)
    watch = Watch(recipe, run, progress)
    objective = recipe_objective(recipe)
    trainer = SearchGRPOTrainer(
        model=parts.model,
        tokenizer=parts.tokenizer,
        args=args,
        agent=build_agent(parts, served or build_sampler(recipe, parts.model, placed=True)),
        reward=parts.reward,
        objective=objective,
        teacher=teacher_pass(recipe, parts) if objective.needs_teacher else None,
        questions=parts.train,
        params=SamplingParams(recipe.sampling.temperature, recipe.sampling.top_p, recipe.sampling.top_k),
        updates_per_batch=plan.updates,
        steps=t.steps,
        prompts=t.prompts,
        group=t.group,
        on_batch=watch.batch_rolled_out,
        processes=processes,
        max_weight=None if served is None else served.settings.max_weight,
        peft_config=_lora(recipe),
        callbacks=[watch],
    )
    from transformers import PrinterCallback

    trainer.remove_callback(PrinterCallback)
    if served is not None:
        follow(served, recipe, trainer, run.path, processes)
    watch.trainer = trainer
    watch.dev = lambda: dev_rollouts(recipe, parts, processes.spread(trainer.agent, trainer.model))
    return trainer


def _lora(recipe: Recipe) -> Any:
    settings = recipe.model_settings
    if settings.lora is None:
        return None
    from peft import LoraConfig

    return LoraConfig(
        r=settings.lora,
        lora_alpha=settings.lora_alpha or 2 * settings.lora,
        target_modules=settings.lora_targets,
        task_type="CAUSAL_LM",
    )
