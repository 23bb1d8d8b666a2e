"""The TRL adapter: a ``GRPOTrainer`` whose rollouts are Sleuth's episodes and whose loss is Sleuth's objective.

TRL gives the data loop, generation hooks, optimiser, accelerate, PEFT, checkpoints and trackers. Five of its methods
are overridden: ``_generate_and_score_completions`` (keeps the rows, since ``rollout_func`` is given prompts only, and
puts our advantages in before TRL shuffles), ``_prepare_inputs`` (counts the tokens of every optimiser step),
``_get_per_token_logps_and_entropies`` (leaves out what nobody reads), ``compute_loss`` and ``_get_grad_norm`` (notes
that of every update). Written for TRL 1.16; ``tests/training/test_trl.py`` holds what this relies on.
"""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

import torch
import transformers
from datasets import Dataset
from torch import Tensor, nn
from trl import GRPOConfig, GRPOTrainer
from trl.trainer.utils import add_fused_lm_head, use_adapter

from sleuth.agent.agent import SearchAgent
from sleuth.diagnostics.behaviour import behaviour
from sleuth.diagnostics.token_labels import ANSWER, token_labels
from sleuth.errors import UserError
from sleuth.objectives.aggregation import StepTotals
from sleuth.objectives.compose import Objective
from sleuth.objectives.credit import assign_credit
from sleuth.objectives.tokens import Tokens
from sleuth.seeds import derive_seed
from sleuth.training.micro_batches import at_rows, sorted_by_length
from sleuth.training.prompts import PromptSampler
from sleuth.training.step_record import MicroBatch, StepRecord
from sleuth.types import Question, SamplingParams, Trajectory


class SearchGRPOTrainer(GRPOTrainer):
    """See the module.

    Args:
        agent: answers questions with the model in training.
        reward: fills ``reward`` and ``rewards`` of trajectories; a failed one keeps None.
        questions: training rows; the dataset that TRL sees holds their texts and numbers.
        updates_per_batch: optimiser updates made of one rollout batch.
        steps: rollout batches of the whole run.
        on_batch: called with the step's number and its trajectories as soon as these are rewarded.

    Attributes:
        batch_metrics: of the batch in training, what its rollouts say.
        record: of the batch in training, what its updates say.
    """

    args: GRPOConfig
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
        on_batch: Callable[[int, Sequence[Trajectory]], None],
        peft_config: Any = None,
        callbacks: list | None = None,
    ):
        self.agent = agent
        self._reward = reward
        self._objective = objective
        self._questions = list(questions)
        self._params = params
        self.updates_per_batch = updates_per_batch
        self._group = args.num_generations or 1
        self.steps = steps
        self.on_batch = on_batch
        self._trajectories: list[Trajectory] = []
        self._pending: list[Question] = []
        self._scoring: Tensor | None = None
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
            reward_funcs=self._rewards_of_batch,
            args=args,
            train_dataset=dataset,
            processing_class=tokenizer,
            rollout_func=_rollout,
            peft_config=peft_config,
            callbacks=callbacks,
        )
        if self._reference is not None:
            self._reference.to(self.accelerator.device)
            add_fused_lm_head(self._reference, temperature=self.temperature)
        if self.accelerator.num_processes > 1:
            raise UserError("training runs in one process for now; start it without torchrun or accelerate launch")

    # Rollouts -----------------------------------------------------------------------------------------------------

    @property
    def batch_step(self) -> int:
        """Number of the rollout batch in work, from 1."""
        return self.state.global_step // self.updates_per_batch + 1

    def _get_train_sampler(self, dataset: Dataset | None = None) -> PromptSampler:
        parts = self.args.steps_per_generation or 1
        return PromptSampler(
            rows=len(self._questions),
            prompts=self.args.per_device_train_batch_size * parts // self._group,
            group=self._group,
            repeats=parts * self.num_iterations,
            steps=self.steps,
            seed=self.args.seed,
        )

    def roll_out(self) -> dict[str, list]:
        """Answer the pending rows and reward the answers; the tensors' raw material for TRL."""
        step, n = self.batch_step, self._group
        questions = self._pending
        groups = [f"{step}.{i // n}.{q.id}" for i, q in enumerate(questions)]
        self._trajectories = self.agent.answer(
            questions,
            self._params,
            seeds=[derive_seed(self.args.seed, "rollout", step, i) for i in range(len(questions))],
            ids=[f"{group}-{i % n}" for i, group in enumerate(groups)],
            groups=groups,
            step=step,
        )
        self._reward(self._trajectories)
        self.on_batch(step, self._trajectories)
        pad = self._tokenizer.pad_token_id
        # A rollout that ended before its first token, or failed, still needs a row: it is there and trains nothing.
        return {
            "prompt_ids": [t.prompt_ids for t in self._trajectories],
            "completion_ids": [t.completion_ids or [pad] for t in self._trajectories],
            "logprobs": [t.completion_logprobs or [0.0] for t in self._trajectories],
            "env_mask": [
                [0] * max(len(t.completion_mask), 1) if t.failed else t.completion_mask or [0]
                for t in self._trajectories
            ],
        }

    def _rewards_of_batch(self, prompts: list, completions: list, **columns: Any) -> list[float | None]:
        return [t.reward for t in self._trajectories]

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        step = self.batch_step
        self._pending = [self._questions[row["row"]] for row in inputs]
        # TRL shuffles the rows of a batch among its updates: by the step, so that a resumed run does the same.
        torch.manual_seed(derive_seed(self.args.seed, "shuffle", step))
        out = super()._generate_and_score_completions(inputs)
        device = out["completion_ids"].device
        rewards = torch.tensor([t.reward or 0.0 for t in self._trajectories], device=device)
        valid = torch.tensor([not t.failed for t in self._trajectories], device=device)
        groups = torch.arange(len(self._trajectories), device=device) // self._group
        mask = out["completion_mask"] * out["tool_mask"]
        seed = derive_seed(self.args.seed, "copies", step)
        credit = assign_credit(self._objective, rewards, groups, valid, mask, self._trajectories, seed=seed)
        out["rollout_advantages"], out["advantages"] = credit.rollouts, credit.tokens
        out["tool_mask"] = out["tool_mask"] * credit.kept[:, None]
        kinds, turns = token_labels(self._trajectories, mask.size(1))
        out["kinds"], out["turns"] = kinds.to(device), turns.to(device)
        out["rows"] = torch.arange(len(self._trajectories), device=device)
        if self._objective.needs_answers:
            out["searches"] = torch.tensor([t.counts.get("searches", 0) for t in self._trajectories], device=device)
        if self._objective.kl_coefficient:
            out["ref_per_token_logps"] = self._reference_log_probs(out)
        self.batch_metrics = behaviour(self._trajectories)
        self.batch_metrics["groups"] = len(self._trajectories) // self._group
        self.batch_metrics |= credit.statistics
        self._trajectories = []
        return at_rows(out, credit.rows)

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
        per_update = self.args.gradient_accumulation_steps
        for start in range(0, len(parts), per_update):
            update = sorted_by_length(parts[start : start + per_update])
            totals = sum(
                (StepTotals.of(p["tool_mask"] * p["completion_mask"], p["rollout_advantages"]) for p in update),
                StepTotals(0, 0),
            )
            parts[start : start + per_update] = [part | {"step_totals": totals} for part in update]
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
        for row, trajectory in enumerate(self._trajectories):
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
        tokens = Tokens.build(
            logp,
            logp.detach() if old_logp is None else old_logp,
            inputs["advantages"],
            policy,
            inputs.get("ref_per_token_logps"),
            rollout_advantages=inputs["rollout_advantages"],
            entropy=entropy if self._objective.needs_entropy else None,
            answer=inputs["kinds"] == ANSWER if self._objective.needs_answers else None,
            searches=inputs.get("searches"),
        )
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
        # Our shares are of the whole step already. Engines that know of no such losses divide by the number of passes.
        divided = not getattr(self, "loss_is_scaled_for_ga", False)
        return loss * self.current_gradient_accumulation_steps if divided else loss

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        norm = super()._get_grad_norm(model, grad_norm=grad_norm)
        self.record.add_gradient(float(norm))
        return norm

    def flush_step_metrics(self) -> dict[str, float]:
        """Everything known of the finished batch, by the names of :mod:`sleuth.diagnostics.names`."""
        return self.batch_metrics | self.record.flush()

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        # The engine warns of tied weights, which a file holds once, as if they were missing.
        level = transformers.logging.get_verbosity()
        transformers.logging.set_verbosity_error()
        try:
            super()._load_from_checkpoint(resume_from_checkpoint, model)
        finally:
            transformers.logging.set_verbosity(level)

    def _send_telemetry(self) -> None:
        """Nothing of a run leaves the machine. TRL's own switch is read long before this module is."""

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """The run writes its own card; TRL's would name the wrong method."""


def _rollout(prompts: list[str], trainer: Any) -> dict[str, Any]:
    return trainer.roll_out()


def _model_inputs(batch: dict[str, Any]) -> tuple[Tensor, Tensor, int]:
    """Ids and attention mask of prompts with completions, (B, P+T) each, and T."""
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    attention = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
    return ids, attention, batch["completion_ids"].size(1)
