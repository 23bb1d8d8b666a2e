"""The TRL adapter: a ``GRPOTrainer`` whose rollouts are Sleuth's episodes and whose loss is Sleuth's objective.

TRL gives the data loop, generation hooks, optimiser, accelerate, PEFT, checkpoints and trackers. Five of its methods
are overridden: ``_generate_and_score_completions`` (keeps the rows, since ``rollout_func`` is given prompts only, and
puts our advantages in), ``_prepare_inputs`` (deals the rows to updates and passes, and counts the tokens of every
optimiser step),
``_get_per_token_logps_and_entropies`` (leaves out what nobody reads), ``compute_loss`` and ``_get_grad_norm`` (notes
that of every update). Written for TRL 1.16; ``tests/training/test_trl.py`` holds what this relies on.

With several processes each rolls out its share of a batch's rows, and all get all trajectories. Credit, updates and
denominators are those of the whole batch; a process then scores and trains the rows that it is dealt, whoever rolled
them out. So the number of processes changes nothing but rounding.
"""

from __future__ import annotations

import contextlib
import copy
import math
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

import torch
from datasets import Dataset
from torch import Tensor, nn
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from trl import GRPOConfig, GRPOTrainer
from trl.trainer.utils import add_fused_lm_head, use_adapter

from sleuth.agent.agent import SearchAgent
from sleuth.diagnostics.behaviour import behaviour
from sleuth.diagnostics.token_labels import ANSWER, token_labels
from sleuth.objectives.aggregation import StepTotals
from sleuth.objectives.compose import Objective
from sleuth.objectives.credit import assign_credit
from sleuth.objectives.tokens import Tokens
from sleuth.objectives.zero_variance import rows_with_copies
from sleuth.seeds import derive_seed
from sleuth.training.checkpoints import full_disk_is_said, tied_weights_are_not_missing
from sleuth.training.importance import importance_weights
from sleuth.training.micro_batches import PADDING, at_rows, deal, joined
from sleuth.training.processes import Processes, refresh, whole_weights
from sleuth.training.prompts import PromptSampler
from sleuth.training.run_folder import TRAINING_STATE, RunFolder
from sleuth.training.step_record import MicroBatch, StepRecord
from sleuth.training.teacher_pass import TeacherPass, behind_other_prompts, write_readings
from sleuth.types import Question, SamplingParams, Span, SpanKind, Trajectory


class SearchGRPOTrainer(GRPOTrainer):
    """See the module.

    Args:
        agent: answers questions with the model in training.
        reward: fills ``reward`` and ``rewards`` of trajectories; a failed one keeps None.
        questions: training rows; the dataset that TRL sees holds their texts and numbers.
        updates_per_batch: optimiser updates made of one rollout batch.
        steps: rollout batches of the whole run.
        prompts, group: a batch's questions, and rollouts of each.
        on_batch: called with the step's number and its trajectories as soon as these are rewarded.
        processes: that share the work; all get the same arguments.
        teacher: of an objective that needs one, made once the engine has its model.
        max_weight: cut of the importance weights, where another engine samples; None: the model itself samples.

    Attributes:
        batch_metrics: of the batch in training, what its rollouts say.
        record: of the batch in training, what its updates say.
    """

    args: GRPOConfig
    model: Any
    _tag_names: ClassVar[list[str]] = ["sleuth", "grpo"]  # type: ignore[misc]

    def __init__(
        self,
        *,
        model: Any,
        tokenizer: Any,
        args: GRPOConfig,
        agent: SearchAgent,
        reward: Callable[[Sequence[Trajectory]], None],
        objective: Objective,
        questions: Sequence[Question],
        params: SamplingParams,
        updates_per_batch: int,
        steps: int,
        prompts: int,
        group: int,
        on_batch: Callable[[int, Sequence[Trajectory]], None],
        processes: Processes = Processes(),
        teacher: Callable[[nn.Module], TeacherPass] | None = None,
        max_weight: float | None = None,
        peft_config: Any = None,
        callbacks: list | None = None,
    ):
        self.agent = agent
        self._reward = reward
        self._objective = objective
        self._questions = list(questions)
        self._params = params
        self.updates_per_batch = updates_per_batch
        self._group = group
        self._max_weight = max_weight
        self.steps = steps
        self.processes = processes
        self._run_folder = RunFolder(Path(args.output_dir or ".").parent)
        self._rows = PromptSampler(
            rows=len(self._questions),
            prompts=prompts,
            group=group,
            repeats=args.steps_per_generation or 1,
            steps=steps,
            seed=args.seed,
            size=args.generation_batch_size,
        )
        self.on_batch = on_batch
        self._trajectories: list[Trajectory] = []
        # What this process trains: its trajectories, their rows in the batch, and which of them each pass works on.
        self._own: list[Trajectory] = []
        self._own_rows: list[int] = []
        self._passes: list[list[int]] = []
        self._scoring: Tensor | None = None
        self._empty_update = False
        self.record = StepRecord(updates_per_batch)
        self.batch_metrics: dict[str, float] = {}
        # TRL would load the reference by the model's name; ours is the start model as it was given.
        own_copy = bool(objective.kl_coefficient) and peft_config is None
        self._reference = copy.deepcopy(model).eval().requires_grad_(False) if own_copy else None
        dataset = Dataset.from_dict(
            {"prompt": [q.question for q in self._questions], "row": list(range(len(self._questions)))}
        )
        super().__init__(
            model=model,
            reward_funcs=self._rewards_of_own,
            args=args,
            train_dataset=dataset,
            processing_class=tokenizer,
            rollout_func=_rollout,
            peft_config=peft_config,
            callbacks=callbacks,
        )
        self._teacher = None if teacher is None else teacher(self.model)
        if self._teacher is not None and (self.is_fsdp_enabled or self.is_deepspeed_enabled):
            self._teacher.teacher.check_whole()
        if self._reference is not None:
            self._reference.to(self.accelerator.device)
            add_fused_lm_head(self._reference, temperature=self.temperature)

    # Rollouts -----------------------------------------------------------------------------------------------------

    @property
    def batch_step(self) -> int:
        """Number of the rollout batch in work, from 1."""
        return self.state.global_step // self.updates_per_batch + 1

    def _get_train_sampler(self, dataset: Dataset | None = None) -> PromptSampler:
        return self._rows

    def roll_out(self) -> dict[str, list]:
        """Answer the step's rows and reward the answers; of those that this process trains, TRL's raw material."""
        step = self.batch_step
        self._trajectories = self._answer(step, [self._questions[row] for row in self._rows.batch(step)])
        self.on_batch(step, self._trajectories)
        self._deal(step)
        pad = self._tokenizer.pad_token_id
        # A rollout that ended before its first token, or failed, still needs a row: it is there and trains nothing.
        return {
            "prompt_ids": [t.prompt_ids for t in self._own],
            "completion_ids": [t.completion_ids or [pad] for t in self._own],
            "logprobs": [t.completion_logprobs or [0.0] for t in self._own],
            "env_mask": [_trained_tokens(t) or [0] for t in self._own],
        }

    def _answer(self, step: int, questions: Sequence[Question]) -> list[Trajectory]:
        """The batch's rewarded trajectories. Groups are rolled out and rewarded whole, if there are enough of them."""
        n, processes = self._group, self.processes
        groups = [f"{step}.{i // n}.{q.id}" for i, q in enumerate(questions)]
        share = processes.share(len(questions) // n)
        own = range(share.start * n, share.stop * n)
        if len(questions) // n < processes.count:
            share = processes.share(len(questions))
            own = range(share.start, share.stop)
        refresh(self.agent.sampler)
        with processes.agreement(), whole_weights(self.model):
            answers = self.agent.answer(
                [questions[i] for i in own],
                self._params,
                seeds=[derive_seed(self.args.seed, "rollout", step, i) for i in own],
                ids=[f"{groups[i]}-{i % n}" for i in own],
                groups=[groups[i] for i in own],
                step=step,
            )
            self._reward(answers)
        return [t for part in processes.exchange(answers) for t in part]

    def _deal(self, step: int) -> None:
        """Which rollouts of the batch this process trains, pass by pass."""
        rewards, groups, valid = self._rewards_of_batch()
        row_of = list(range(len(self._trajectories)))
        if self._objective.zero_variance == "copy":
            row_of = rows_with_copies(rewards, groups, valid, seed=self._copies_seed(step)).tolist()
        lengths = [len(self._trajectories[row].completion_ids) for row in row_of]
        passes = deal(
            lengths,
            self.updates_per_batch,
            self.args.per_device_train_batch_size,
            self.processes.count,
            derive_seed(self.args.seed, "shuffle", step),
        )[self.processes.index]
        places = [place for part in passes for place in part]
        order = sorted(range(len(places)), key=lambda i: places[i])
        number = {i: n for n, i in enumerate(order)}
        size = self.args.per_device_train_batch_size
        self._passes = [[number[k * size + i] for i in range(size)] for k in range(len(passes))]
        self._own_rows = [PADDING if places[i] == PADDING else row_of[places[i]] for i in order]
        nobody = Trajectory("", "", "", [], [Span(SpanKind.PROMPT, self._trajectories[0].prompt_ids)])
        self._own = [nobody if row == PADDING else self._trajectories[row] for row in self._own_rows]

    def _rewards_of_batch(self) -> tuple[Tensor, Tensor, Tensor]:
        """(B,) each: rewards, groups and which rollouts are valid, of the whole batch."""
        n = len(self._trajectories)
        rewards = torch.tensor([t.reward or 0.0 for t in self._trajectories])
        return rewards, torch.arange(n) // self._group, torch.tensor([not t.failed for t in self._trajectories])

    def _copies_seed(self, step: int) -> int:
        return derive_seed(self.args.seed, "copies", step)

    def _rewards_of_own(self, prompts: list, completions: list, **columns: Any) -> list[float | None]:
        """For TRL's own log; credit takes them from the trajectories."""
        return [t.reward or 0.0 for t in self._own]

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        step = self.batch_step
        told: dict[str, float] = {}
        if self._teacher is not None:
            told["teacher/renewed"] = float(self._teacher.teacher.before_batch(step))
        out = super()._generate_and_score_completions(inputs)
        if self.processes.count > 1:  # of groups that TRL takes for whole
            for name in ("reward_std", "frac_reward_zero_std"):
                self._metrics["train"].pop(name, None)
        device = out["completion_ids"].device
        rewards, groups, valid = self._rewards_of_batch()
        mask = _padded([_trained_tokens(t) for t in self._trajectories])
        credit = assign_credit(
            self._objective,
            rewards,
            groups,
            valid,
            mask,
            self._trajectories,
            seed=self._copies_seed(step),
            teacher=partial(self._teacher_scores, out, mask, told) if self._teacher else None,
        )
        columns = out["completion_ids"].size(1)
        rows = torch.tensor(self._own_rows)
        kept = _at(credit.kept, rows)
        out["rollout_advantages"] = _at(credit.rollouts, rows).to(device)
        advantages = _at(credit.tokens, rows)[:, :columns]
        out["advantages"] = nn.functional.pad(advantages, (0, columns - advantages.size(1))).to(device)
        out["tool_mask"] = out["tool_mask"] * kept[:, None].to(device)
        kinds, turns = token_labels(self._own, columns)
        out["kinds"], out["turns"] = kinds.to(device), turns.to(device)
        out["rows"] = rows.to(device)
        out["order"] = torch.arange(len(rows), device=device)
        if self._objective.needs_answers:
            out["searches"] = torch.tensor([t.counts.get("searches", 0) for t in self._own], device=device)
        if self._objective.kl_coefficient:
            out["ref_per_token_logps"] = self._reference_log_probs(out)
        self.batch_metrics = behaviour(self._trajectories)
        self.batch_metrics["groups"] = len(self._trajectories) // self._group
        self.batch_metrics |= credit.statistics | told
        self._trajectories, self._own = [], []
        return out

    def _teacher_scores(
        self, out: dict[str, Any], mask: Tensor, told: dict[str, float], wanted: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The policy's log-probs before the first update and the teacher's, (B, T) each; NaN where it has not read.

        Every process scores those of its own rows that are ``wanted``, and all get all scores.

        Args:
            out: of this process's rows. ``mask``: (B, T), the policy tokens of the whole batch.
            told: gets what there is to tell of it.
        """
        assert self._teacher is not None
        started = time.perf_counter()
        questions = [self._questions[row] for row in self._rows.batch(self.batch_step)]
        readings = self._teacher.prompts.readings(self._trajectories, questions, wanted.tolist())
        places = {row: place for place, row in enumerate(self._own_rows)}
        own = [n for n, row in enumerate(readings.rows) if row in places]
        prompts = [readings.prompts[n] for n in own]
        found = self._read_both(out, [places[readings.rows[n]] for n in own], prompts)
        width = mask.size(1)
        old, scores = (torch.full(mask.shape, torch.nan) for _ in range(2))
        for rows, *values in self.processes.exchange(([readings.rows[n] for n in own], *found)):
            if rows:
                for whole, part in zip((old, scores), values, strict=True):
                    whole[rows] = nn.functional.pad(part, (0, max(width - part.size(1), 0)))[:, :width]
        old, scores = (torch.where(mask.bool(), values, torch.nan) for values in (old, scores))
        write_readings(self._trajectories, readings, scores)
        told |= readings.statistics()
        told["seconds/teacher"] = time.perf_counter() - started
        return old, scores

    @torch.no_grad()
    def _read_both(
        self, out: dict[str, Any], places: Sequence[int], prompts: Sequence[Sequence[int]]
    ) -> tuple[Tensor, Tensor]:
        """(n, T) each, on the CPU: log-probs of these rows of ``out`` under the policy, and behind these prompts under
        the teacher."""
        assert self._teacher is not None
        n, columns = len(places), out["completion_ids"].size(1)
        # Where weights are gathered for a pass, processes that read less have to make as many passes as the others.
        most = max(self.processes.exchange(n))
        if not most:
            return torch.zeros(0, columns), torch.zeros(0, columns)
        places = [*places, *[0] * (most - n)]
        filler = out["prompt_ids"][0][out["prompt_mask"][0].bool()].tolist()
        rows = at_rows(out, torch.tensor(places))
        behind = behind_other_prompts(
            [*prompts, *[filler] * (most - n)],
            rows["completion_ids"],
            rows["completion_mask"],
            self._tokenizer.pad_token_id,
        )
        old = rows.get("old_per_token_logps")
        if old is None:  # no update comes before the loss, so the engine has made no pass of its own
            old = self._log_probs(rows, *_model_inputs(rows))
        with self._teacher.teacher.scoring():
            scores = self._log_probs(rows, *behind, columns)
        return old[:n].float().cpu(), scores[:n].float().cpu()

    def _log_probs(self, rows: dict[str, Any], ids: Tensor, attention: Tensor, columns: int) -> Tensor:
        """(n, T) log-probs of the policy tokens of these rows under the model as it is."""
        self._scoring = rows["completion_mask"] * rows["tool_mask"]
        try:
            log_probs, _, _ = self._get_per_token_logps_and_entropies(
                self.model, ids, attention, columns, batch_size=self.args.per_device_train_batch_size
            )
        finally:
            self._scoring = None
        return log_probs

    @torch.no_grad()
    def _reference_log_probs(self, batch: dict[str, Any]) -> Tensor:
        """(B, T) under the start model: its copy, or with LoRA the model with its adapters switched off."""
        if self._reference is not None:
            context: Any = contextlib.nullcontext()
            model = self._reference
        else:
            context = use_adapter(self.accelerator.unwrap_model(self.model), adapter_name=None)
            model = self.model
        with context:
            log_probs, _, _ = self._get_per_token_logps_and_entropies(
                model, *_model_inputs(batch), batch_size=self.args.per_device_train_batch_size
            )
        return log_probs

    def _prepare_inputs(self, generation_batch: Any) -> dict[str, Any]:
        before = self._buffered_inputs
        inputs = super()._prepare_inputs(generation_batch)
        parts = self._buffered_inputs
        if parts is None or parts is before:  # a part of the batch in work, or an evaluation
            return inputs
        whole = joined(parts)
        whole = at_rows(whole, whole["order"].argsort())  # TRL has shuffled them; the batch's own deal counts
        parts[:] = [at_rows(whole, torch.tensor(numbers)) for numbers in self._passes]
        per_update = self.args.gradient_accumulation_steps
        for start in range(0, len(parts), per_update):
            update = parts[start : start + per_update]
            totals = sum(
                (StepTotals.of(p["tool_mask"] * p["completion_mask"], p["rollout_advantages"]) for p in update),
                StepTotals(0, 0),
            )
            if self.processes.count > 1:
                totals = totals.all_reduce(self.accelerator.device)
            for part in update:
                part["step_totals"] = totals
        return parts[self._step % len(parts)]

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: Tensor,
        attention_mask: Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        compute_entropy: bool = False,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor | None, None]:
        """(B, T) log-probs and entropies of policy tokens, 0 elsewhere, without the work that nobody reads.

        TRL pads a whole rollout batch to its longest row and scores every token of a completion. Here no pass computes
        the columns that are padding in all of its rows, and only policy tokens meet the vocabulary: in a search rollout
        most tokens are passages.
        """
        policy = self._policy_tokens(len(input_ids), logits_to_keep).to(input_ids.device)
        log_probs: list[Tensor] = []
        entropies: list[Tensor] = []
        size = batch_size or len(input_ids)
        for start in range(0, len(input_ids), size):
            rows = slice(start, start + size)
            used = attention_mask[rows].any(dim=0).nonzero()
            first, end = int(used[0]), int(used[-1]) + 1
            cut = input_ids.size(1) - end
            ids = input_ids[rows, first:end]
            labels = torch.full_like(ids, -100)
            scored = policy[rows, : logits_to_keep - cut]
            labels[:, -scored.size(1) :] = torch.where(scored, ids[:, -scored.size(1) :], -100)
            if not scored.any():  # a pass of failed rollouts: one token keeps the graph, and counts for nothing
                labels[0, -1] = ids[0, -1]
            with self.accelerator.autocast():
                out = model(
                    input_ids=ids, attention_mask=attention_mask[rows, first:end], labels=labels, fused_lm_head=True
                )
            for kept, values in ((log_probs, out.log_probs), (entropies, out.entropy)):
                if values is not None:
                    kept.append(nn.functional.pad(values[:, -scored.size(1) :].where(scored, 0.0), (0, cut)))
        return torch.cat(log_probs), torch.cat(entropies) if entropies else None, None

    def _policy_tokens(self, rows: int, columns: int) -> Tensor:
        """(rows, columns) bool, of the batch that is being scored: the rollouts' own masks, or those of an update."""
        if self._scoring is not None:
            return self._scoring[:, :columns].bool()
        policy = torch.zeros(rows, columns, dtype=torch.bool)
        for row, trajectory in enumerate(self._own):
            mask = trajectory.completion_mask
            policy[row, : len(mask)] = torch.tensor(mask, dtype=torch.bool)
        return policy

    # Loss ---------------------------------------------------------------------------------------------------------

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Tensor:
        policy = inputs["completion_mask"] * inputs["tool_mask"]
        self._scoring = policy
        logp, entropy, _ = self._get_per_token_logps_and_entropies(model, *_model_inputs(inputs))
        self._scoring = None
        # Without a pass of the trainer's own there was no update since the rollout: this pass is that pass.
        old_logp = inputs.get("old_per_token_logps")
        before = logp.detach() if old_logp is None else old_logp
        weights = None
        if self._max_weight is not None:
            sampled = inputs["sampling_per_token_logps"]
            weights = importance_weights(before, sampled, policy, self._max_weight)
            self.record.sampler_gap.add(before, sampled, policy, self._max_weight)
        tokens = Tokens.build(
            logp,
            before,
            inputs["advantages"],
            policy,
            inputs.get("ref_per_token_logps"),
            rollout_advantages=inputs["rollout_advantages"],
            entropy=entropy if self._objective.needs_entropy else None,
            answer=inputs["kinds"] == ANSWER if self._objective.needs_answers else None,
            searches=inputs.get("searches"),
            weights=weights,
        )
        self._empty_update = not inputs["step_totals"].tokens
        result = self._objective.token_loss(tokens, inputs["step_totals"])
        loss = result.loss.sum()
        assert entropy is not None  # the model in training always gives it
        batch = MicroBatch(
            inputs["rows"],
            inputs["kinds"],
            inputs["turns"],
            logp.detach(),
            old_logp,
            update=self.state.global_step % self.updates_per_batch + 1,
        )
        self.record.add(batch, tokens, result, entropy, loss)
        # Our shares are of the whole step already: what the engine makes a mean over processes and passes is a sum.
        loss = loss * self.processes.count
        divided = not getattr(self, "loss_is_scaled_for_ga", False)
        return loss * self.current_gradient_accumulation_steps if divided else loss

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        norm = super()._get_grad_norm(model, grad_norm=grad_norm)
        if not math.isfinite(float(norm)):
            # Clipping has made all of it NaN. Without a gradient the optimiser leaves weights and state as they are.
            self.model.zero_grad(set_to_none=True)
            self.record.add_skipped()
            return 0.0
        if self._empty_update:
            # Neither momentum nor weight decay may move a policy that this update says nothing to.
            self.model.zero_grad(set_to_none=True)
        self.record.add_gradient(float(norm))
        return norm

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        # All processes write parts of it; none goes on before all have.
        with self.processes.agreement(), full_disk_is_said(self._run_folder, self.batch_step - 1):
            super()._save_checkpoint(model, trial)
            if self._teacher is not None and self.processes.main:
                folder = Path(self.args.output_dir or ".") / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
                self._teacher.teacher.save(folder)

    def gather_step(self) -> None:
        """Bring what all processes found in the finished batch's updates together in the main one."""
        if self.processes.count > 1:
            for found in self.processes.collect(self.record.take()):
                self.record.absorb(found)

    def flush_step_metrics(self) -> dict[str, float]:
        """Everything known of the finished batch, by the names of :mod:`sleuth.diagnostics.names`."""
        return self.batch_metrics | self.record.flush()

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        with tied_weights_are_not_missing():
            super()._load_from_checkpoint(resume_from_checkpoint, model)
        folder = Path(resume_from_checkpoint)
        # A checkpoint whose training state was dropped can be scored, and scoring asks no teacher.
        if self._teacher is not None and any((folder / name).is_file() for name in TRAINING_STATE):
            self._teacher.teacher.load(folder)

    def _send_telemetry(self) -> None:
        """Nothing of a run leaves the machine. TRL's own switch is read long before this module is."""

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """The run writes its own card; TRL's would name the wrong method."""


def _rollout(prompts: list[str], trainer: Any) -> dict[str, Any]:
    return trainer.roll_out()


def _trained_tokens(trajectory: Trajectory) -> list[int]:
    """The completion's mask; all 0 for a failed rollout."""
    return [0] * len(trajectory.completion_mask) if trajectory.failed else trajectory.completion_mask


def _padded(masks: Sequence[Sequence[int]]) -> Tensor:
    """(B, T) int64, T at least 1."""
    out = torch.zeros(len(masks), max(1, *map(len, masks)), dtype=torch.long)
    for row, mask in enumerate(masks):
        out[row, : len(mask)] = torch.tensor(mask)
    return out


def _at(values: Tensor, rows: Tensor) -> Tensor:
    """The rows (n,) of (B, …) values, 0 for ``PADDING``."""
    return torch.cat([values, torch.zeros_like(values[:1])])[rows]


def _model_inputs(batch: dict[str, Any]) -> tuple[Tensor, Tensor, int]:
    """Ids and attention mask of prompts with completions, (B, P+T) each, and T."""
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    attention = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
    return ids, attention, batch["completion_ids"].size(1)
