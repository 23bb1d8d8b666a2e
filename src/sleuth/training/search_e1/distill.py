"""The distillation stage: a policy learns from itself with a better rollout of the same question before its eyes.

The engine is transformers' ``Trainer`` (optimiser, precision, checkpoints); the loss is
:func:`sleuth.objectives.distillation.distil`. The teacher is the policy as the stage found it: the model without its
adapters, or a copy.
"""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers
from torch import Tensor
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from sleuth.assembly import autocast_dtype, build_model, model_source
from sleuth.errors import RunFailed
from sleuth.objectives.distillation import distil
from sleuth.recipes.schema import Recipe
from sleuth.seeds import derive_seed
from sleuth.training.checkpoints import publish, remove_unfinished
from sleuth.training.run_folder import RunFolder
from sleuth.training.search_e1.hidden_states import frozen_head_of, head_of, hidden_states
from sleuth.training.search_e1.settings import DistillSettings
from sleuth.training.search_e1.views import Views
from sleuth.training.teacher import Teacher

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True)
class Row:
    """One pair at its place in the stage. ``weight``: of each of its kept tokens in its update's loss."""

    views: Views
    weight: float


def schedule_rows(views: Sequence[Views], settings: DistillSettings, seed: int) -> list[Row]:
    """All pairs of all epochs in the order in which they are trained on; weights of an update sum to 1 over its tokens.

    Counted here, over whole updates: so the number of passes that an update takes changes nothing.
    """
    order: list[Views] = []
    for epoch in range(settings.epochs):
        shuffled = list(views)
        random.Random(derive_seed(seed, "pairs", epoch)).shuffle(shuffled)
        order += shuffled
    rows: list[Row] = []
    for start in range(0, len(order), settings.batch):
        update = order[start : start + settings.batch]
        tokens = sum(v.tokens for v in update)
        by_token = settings.aggregation == "token_mean"
        rows += [Row(v, 1 / tokens if by_token else 1 / (v.tokens * len(update))) for v in update]
    return rows


def distillation_loss(model: torch.nn.Module, teacher: Teacher, batch: dict[str, Tensor], settings: DistillSettings):
    """The stage's loss on a padded batch: :class:`~sleuth.objectives.distillation.Distilled` of its kept tokens, in
    the order of the rows.

    Args:
        batch: as :func:`collate` makes it.
    """
    with teacher.scoring():
        seen = hidden_states(model, batch["teacher_ids"], batch["teacher_attention"])[batch["teacher_kept"]]
        teacher_head = frozen_head_of(model)
    states = hidden_states(model, batch["student_ids"], batch["student_attention"])[batch["student_kept"]]
    return distil(
        states,
        seen,
        head_of(model),
        teacher_head,
        batch["tokens"],
        kind=settings.divergence,
        clip=settings.clip,
        top_k=settings.top_k,
        rest=settings.rest,
        temperature=settings.temperature,
    )


def collate(rows: Sequence[Row], pad: int) -> dict[str, Tensor]:
    """Both views of some pairs, padded on the right.

    Returns:
        For each view ``_ids``, ``_attention`` and ``_kept`` (B, T), the last True where a state predicts a kept token;
        ``tokens`` and ``weights`` (N,): those tokens, row by row, and what each weighs.
    """
    batch: dict[str, Tensor] = {}
    for name in ("student", "teacher"):
        prompts: list[list[int]] = [getattr(row.views, name) for row in rows]
        width = max(len(p) + len(r.views.response) for p, r in zip(prompts, rows, strict=True))
        ids = torch.full((len(rows), width), pad)
        attention = torch.zeros(len(rows), width, dtype=torch.long)
        kept = torch.zeros(len(rows), width, dtype=torch.bool)
        for i, (prompt, row) in enumerate(zip(prompts, rows, strict=True)):
            whole = prompt + row.views.response
            ids[i, : len(whole)] = torch.tensor(whole)
            attention[i, : len(whole)] = 1
            kept[i, len(prompt) - 1 : len(whole) - 1] = torch.tensor(row.views.kept)
        batch |= {f"{name}_ids": ids, f"{name}_attention": attention, f"{name}_kept": kept}
    tokens = [i for row in rows for i, k in zip(row.views.response, row.views.kept, strict=True) if k]
    weights = [row.weight for row in rows for _ in range(row.views.tokens)]
    return batch | {"tokens": torch.tensor(tokens), "weights": torch.tensor(weights)}


def run_stage(
    recipe: Recipe,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    views: Sequence[Views],
    folder: Path,
    *,
    seed: int,
    progress: Callable[[dict[str, Any]], None] = lambda record: None,
) -> PreTrainedModel:
    """Train ``model`` on the pairs and return it, adapters merged; from the folder's last checkpoint, if it has one.

    Args:
        model: the policy at the stage's start, which becomes the teacher.
        folder: gets ``metrics.jsonl`` and ``checkpoints/step-N``, with N the number of updates.
        seed: of the order and of fresh adapters.
        progress: called with every update's record.

    Raises:
        RunFailed: the loss is no longer finite.
    """
    settings = recipe.search_e1.distill
    run = RunFolder(folder)
    run.checkpoints.mkdir(parents=True, exist_ok=True)
    remove_unfinished(run)
    rows = schedule_rows(views, settings, seed)
    torch.manual_seed(derive_seed(seed, "adapters"))
    policy = _with_adapters(model, settings)
    done = run.checkpoint_steps()
    run.rewind(done[-1] if done else 0)
    updates = math.ceil(len(rows) / settings.batch)
    trainer = _DistillationTrainer(recipe, policy, tokenizer, rows, run, updates, seed % 2**31, progress)
    if done and done[-1] >= updates:
        trainer._load_from_checkpoint(str(run.checkpoint(done[-1])))
    else:
        trainer.train(resume_from_checkpoint=str(run.checkpoint(done[-1])) if done else None)
    policy.eval()
    return policy.merge_and_unload() if settings.lora is not None else policy


def merged_model(recipe: Recipe) -> PreTrainedModel:
    """The recipe's model; where it is a checkpoint of adapters, its base with them merged into it."""
    folder = Path(model_source(recipe))
    file = folder / "adapter_config.json"
    if not file.is_file():
        return build_model(recipe)
    from peft import PeftModel

    base = json.loads(file.read_text(encoding="utf-8"))["base_model_name_or_path"]
    model = build_model(recipe.model_copy(update={"model": base}))
    return PeftModel.from_pretrained(model, folder).merge_and_unload()


def save_model(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """An ordinary model folder, which appears when it is whole."""
    temporary = folder.with_name(f".{folder.name}-unfinished")
    shutil.rmtree(temporary, ignore_errors=True)
    model.save_pretrained(temporary)
    tokenizer.save_pretrained(temporary)
    shutil.rmtree(folder, ignore_errors=True)  # of a process that was killed right behind this line
    os.replace(temporary, folder)


def _with_adapters(model: PreTrainedModel, settings: DistillSettings) -> Any:
    if settings.lora is None:
        return model
    from peft import LoraConfig, get_peft_model

    return get_peft_model(
        model,
        LoraConfig(
            r=settings.lora,
            lora_alpha=settings.lora_alpha or 2 * settings.lora,
            lora_dropout=0.0,
            target_modules=settings.lora_targets,
            task_type="CAUSAL_LM",
        ),
    )


class _DistillationTrainer(Trainer):
    def __init__(
        self,
        recipe: Recipe,
        model: Any,
        tokenizer: PreTrainedTokenizerBase,
        rows: list[Row],
        run: RunFolder,
        updates: int,
        seed: int,
        progress: Callable[[dict[str, Any]], None],
    ):
        s = self._settings = recipe.search_e1.distill
        micro = s.pairs_a_pass
        pad: int = tokenizer.pad_token_id
        self.teacher = Teacher(model, "copy" if s.lora is None else "base", every=0)
        self.teacher.before_batch(1)
        self._rows = rows
        self.sums: dict[str, float] = {}
        _switch_off_dropout(model)
        watch = _Watch(run, updates, s.save_every, progress)
        super().__init__(
            model=model,
            args=TrainingArguments(
                output_dir=str(run.checkpoints),
                per_device_train_batch_size=micro,
                gradient_accumulation_steps=s.batch // micro,
                max_steps=updates,
                learning_rate=s.lr,
                lr_scheduler_type="constant_with_warmup",
                warmup_steps=s.warmup_updates,
                weight_decay=s.weight_decay,
                max_grad_norm=s.max_grad_norm,
                bf16=autocast_dtype(recipe) is not None,
                use_cpu=not torch.cuda.is_available(),
                gradient_checkpointing=recipe.model_settings.gradient_checkpointing,
                logging_strategy="steps",
                logging_steps=1,
                save_strategy="no",
                report_to="none",
                remove_unused_columns=False,
                disable_tqdm=True,
                dataloader_pin_memory=torch.cuda.is_available(),
                seed=seed,
            ),
            train_dataset=rows,
            data_collator=lambda chosen: collate(chosen, pad),
            processing_class=tokenizer,
            callbacks=[watch],
        )
        watch.trainer = self
        self.remove_callback(PrinterCallback)

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        return torch.utils.data.SequentialSampler(self._rows)

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Tensor:
        result = distillation_loss(model, self.teacher, inputs, self._settings)
        weights = inputs["weights"]
        loss = (result.loss * weights).sum()
        if not torch.isfinite(loss):
            raise RunFailed(f"distillation: the loss of update {self.state.global_step + 1} is {loss.item()}")
        for name in ("loss", "kl", "clipped", "gain"):
            self._add(name, float((getattr(result, name).detach() * weights).sum()))
        self._add("tokens", len(weights))
        # Our weights are of the whole update already. Engines that know of no such losses divide by the passes.
        divided = not getattr(self, "loss_is_scaled_for_ga", False)
        return loss * self.current_gradient_accumulation_steps if divided else loss

    def _add(self, name: str, value: float) -> None:
        self.sums[name] = self.sums.get(name, 0.0) + value

    def flush(self) -> dict[str, float]:
        """What the update that is done says, by the names of :mod:`sleuth.diagnostics.names`."""
        sums, self.sums = self.sums, {}
        return {f"distill/{name}": value for name, value in sums.items()}

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        # The engine warns of tied weights, which a file holds once, as if they were missing.
        level = transformers.logging.get_verbosity()
        transformers.logging.set_verbosity_error()
        try:
            super()._load_from_checkpoint(resume_from_checkpoint, model)
        finally:
            transformers.logging.set_verbosity(level)


class _Watch(TrainerCallback):
    trainer: _DistillationTrainer

    def __init__(self, run: RunFolder, updates: int, save_every: int, progress: Callable[[dict[str, Any]], None]):
        self.run, self.updates, self.save_every, self.progress = run, updates, save_every, progress
        self._record: dict[str, Any] = {}
        self._started = time.perf_counter()

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._started = time.perf_counter()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._record = {"step": state.global_step, **self.trainer.flush()}
        now = time.perf_counter()
        self._record["seconds/update"] = now - self._started
        self._started = now
        last = state.global_step >= self.updates
        if last or (self.save_every and state.global_step % self.save_every == 0):
            control.should_save = True

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if not self._record or logs is None or "grad_norm" not in logs:
            return
        record = self._record | {"distill/grad_norm": logs["grad_norm"]}
        self.run.log(record)
        self.progress(record)
        self._record = {}

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        publish(self.trainer, self.run, state.global_step)
        self.run.drop_checkpoints([state.global_step])


def _switch_off_dropout(model: torch.nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
