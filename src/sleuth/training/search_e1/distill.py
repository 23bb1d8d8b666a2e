"""The distillation stage: a policy learns from itself with a better rollout of the same question before its eyes.

The engine is transformers' ``Trainer`` (optimiser, precision, checkpoints, several processes); the loss is
:func:`sleuth.objectives.distillation.distil`. The teacher is the policy as the stage found it: the model without its
adapters, or a copy.

Both views are read within one call of the model, which is what the engine wraps: in that call it casts, and behind it
it brings the processes' gradients together.
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
from torch import Tensor
from transformers import PrinterCallback, Trainer, TrainerControl, TrainerState, TrainingArguments

from sleuth.assembly import autocast_dtype, build_model, model_source
from sleuth.errors import RunFailed, RunStopped
from sleuth.objectives.distillation import Distilled, distil
from sleuth.recipes.schema import Recipe
from sleuth.seeds import derive_seed
from sleuth.training.checkpoints import (
    full_disk_is_said,
    publish,
    remove_unfinished,
    tied_weights_are_not_missing,
)
from sleuth.training.processes import TIMEOUT, Processes
from sleuth.training.run_folder import RunFolder
from sleuth.training.search_e1.hidden_states import frozen_head_of, head_of, hidden_states
from sleuth.training.search_e1.settings import DistillSettings
from sleuth.training.search_e1.views import Views
from sleuth.training.step_callback import StepCallback
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


@dataclass(frozen=True, slots=True)
class Passes:
    """The rows of a stage as so many processes take them.

    Pass k of process i has the rows from ``(k * processes + i) * size``. All processes make as many passes: where the
    rows don't suffice, ones that weigh nothing stand in.

    Attributes:
        rows: all of them. ``size``: rows in a pass. ``each``: passes of each process in an update.
    """

    rows: list[Row]
    size: int
    each: int

    @classmethod
    def of(cls, rows: Sequence[Row], settings: DistillSettings, processes: int = 1) -> Passes:
        size = min(settings.pairs_a_pass, -(-settings.batch // processes))
        together = size * processes
        each = -(-settings.batch // together)
        if processes == 1:
            return cls(list(rows), size, each)
        nothing = Row(min((row.views for row in rows), key=lambda v: len(v.teacher) + len(v.response)), 0.0)
        out: list[Row] = []
        for start in range(0, len(rows), settings.batch):
            update = list(rows[start : start + settings.batch])
            last = start + settings.batch >= len(rows)  # may be a short one, for the engine too
            out += update + [nothing] * (-len(update) % together if last else each * together - len(update))
        return cls(out, size, each)


def distillation_loss(
    model: torch.nn.Module, teacher: Teacher, batch: dict[str, Tensor], settings: DistillSettings
) -> Distilled:
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
    processes: Processes = Processes(),
    stop: Callable[[], bool] = lambda: False,
    how_to_continue: str = "",
) -> PreTrainedModel:
    """Train ``model`` on the pairs and return it, adapters merged; from the folder's last checkpoint, if it has one.

    Args:
        model: the policy at the stage's start, which becomes the teacher.
        folder: gets ``metrics.jsonl`` and ``checkpoints/step-N``, with N the number of updates.
        seed: of the order and of fresh adapters.
        progress: called with every update's record, by the main process.
        processes: that share the updates; all get the same arguments, and all get the model.
        stop: asked behind every update whether to end there, with a checkpoint.
        how_to_continue: for the message of a full disk.

    Raises:
        RunFailed: the loss is no longer finite, or the disk is full. RunStopped: as ``stop`` wanted.
    """
    settings = recipe.search_e1.distill
    run = RunFolder(folder, how_to_continue)

    def begin() -> int:
        run.checkpoints.mkdir(parents=True, exist_ok=True)
        remove_unfinished(run)
        done = max(run.checkpoint_steps(), default=0)
        run.rewind(done)
        return done

    done = processes.from_main(begin)
    rows = schedule_rows(views, settings, seed)
    torch.manual_seed(derive_seed(seed, "adapters"))
    policy = _with_adapters(model, settings)
    updates = math.ceil(len(rows) / settings.batch)
    watch = _Watch(run, updates, settings.save_every, progress, stop)
    trainer = _DistillationTrainer(recipe, policy, tokenizer, rows, watch, seed % 2**31, processes)
    try:
        if done >= updates:
            trainer._load_from_checkpoint(str(run.checkpoint(done)))
        else:
            trainer.train(resume_from_checkpoint=str(run.checkpoint(done)) if done else None)
    finally:
        policy.__dict__.pop("forward", None)  # ours, with what the engine put around it
    if processes.any(stop()):
        made = max(done, trainer.state.global_step)
        raise RunStopped(f"stopped after update {made} of {updates} of the distillation")
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
    try:
        model.save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
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
        watch: _Watch,
        seed: int,
        processes: Processes,
    ):
        s = self._settings = recipe.search_e1.distill
        pad: int = tokenizer.pad_token_id
        self.teacher = Teacher(model, "copy" if s.lora is None else "base", every=0)
        self.teacher.before_batch(1)
        passes = Passes.of(rows, s, processes.count)
        self.processes = processes
        self.sums: dict[str, float] = {}
        _switch_off_dropout(model)
        self._watch = watch
        super().__init__(
            model=model,
            args=TrainingArguments(
                output_dir=str(watch.run.checkpoints),
                per_device_train_batch_size=passes.size,
                gradient_accumulation_steps=passes.each,
                max_steps=watch.updates,
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
                ddp_find_unused_parameters=False,
                ddp_timeout=int(TIMEOUT.total_seconds()),
                seed=seed,
            ),
            train_dataset=passes.rows,
            data_collator=lambda chosen: collate(chosen, pad),
            processing_class=tokenizer,
            callbacks=[watch],
        )
        watch.trainer = self
        self.remove_callback(PrinterCallback)
        plain = model.forward

        def forward(*args: Any, pairs: dict[str, Tensor] | None = None, **kwargs: Any) -> Any:
            return plain(*args, **kwargs) if pairs is None else distillation_loss(model, self.teacher, pairs, s)

        model.forward = forward

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        data: Any = train_dataset or self.train_dataset
        return torch.utils.data.SequentialSampler(data)

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Tensor:
        result = model(pairs=inputs)
        weights = inputs["weights"]
        loss = (result.loss * weights).sum()
        if self.processes.any(not torch.isfinite(loss)):
            raise RunFailed(f"distillation: the loss of update {self.state.global_step + 1} is {loss.item()}")
        for name in ("loss", "kl", "clipped", "gain"):
            self._add(name, float((getattr(result, name).detach() * weights).sum()))
        self._add("tokens", int((weights > 0).sum()))
        # Our weights are of the whole update already: what the engine makes a mean over processes and passes is a sum.
        loss = loss * self.processes.count
        divided = not getattr(self, "loss_is_scaled_for_ga", False)
        return loss * self.current_gradient_accumulation_steps if divided else loss

    def _add(self, name: str, value: float) -> None:
        self.sums[name] = self.sums.get(name, 0.0) + value

    def flush(self) -> dict[str, float]:
        """What the update that is done says, by the names of :mod:`sleuth.diagnostics.names`; all processes call it."""
        sums, self.sums = self.sums, {}
        parts = self.processes.exchange(sums)
        return {f"distill/{name}": sum(part[name] for part in parts) for name in sums}

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        # All processes write parts of it; none goes on before all have.
        with self.processes.agreement(), full_disk_is_said(self._watch.run, self.state.global_step):
            super()._save_checkpoint(model, trial)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        with tied_weights_are_not_missing():
            super()._load_from_checkpoint(resume_from_checkpoint, model)


class _Watch(StepCallback):
    trainer: _DistillationTrainer

    def __init__(
        self,
        run: RunFolder,
        updates: int,
        save_every: int,
        progress: Callable[[dict[str, Any]], None],
        stop: Callable[[], bool],
    ):
        super().__init__()
        self.run, self.updates, self.save_every, self.progress, self.stop = run, updates, save_every, progress, stop
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
        if self.trainer.processes.any(self.stop()):
            control.should_save = control.should_training_stop = True

    def step_logged(self, record: dict[str, Any], logs: dict[str, Any], control: TrainerControl) -> None:
        record["distill/grad_norm"] = logs["grad_norm"]

        def written() -> None:
            self.run.log(record)
            self.progress(record)

        self.trainer.processes.from_main(written)

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        def published() -> None:
            publish(self.trainer, self.run, state.global_step)
            self.run.drop_checkpoints([state.global_step])

        self.trainer.processes.from_main(published)


def _switch_off_dropout(model: torch.nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
