"""Drift statistics and alarms for a plain TRL ``GRPOTrainer``, without Sleuth's own trainer.

    trainer = GRPOTrainer(...)
    trainer.add_callback(DriftCallback(trainer))

The callback looks on while the trainer computes its loss: it keeps what the trainer's own forward gave, computes
nothing again, draws no random number and changes none. Statistics go into the trainer's logs under the names of
``docs/diagnosis.md`` (``ratio/pos/q01``, …), and with them to every tracker. Alarms go to the log and to a JSONL file,
and save or end training if wanted. Written for TRL 1.16.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from sleuth.diagnostics.alarm_advice import Setup
from sleuth.diagnostics.alarm_limits import AlarmLimits
from sleuth.diagnostics.alarm_rules import Level
from sleuth.diagnostics.alarms import Alarm, AlarmMonitor
from sleuth.diagnostics.drift import Drift
from sleuth.diagnostics.foreign_names import translate
from sleuth.objectives.tokens import Tokens

logger = logging.getLogger("sleuth.drift")

ACTIONS = ("off", "warn", "checkpoint", "stop")
_NO_KIND = -1


class DriftCallback(TrainerCallback):
    """See the module.

    What it can't see: kinds of tokens (a plain trainer doesn't know a query from a thought), and turns where the
    trainer has no ``tool_mask``. Where each batch gets one update, no weight has moved before it: TRL then keeps no old
    log-probs, every ratio is 1 and there are no statistics of ratios. Likelihood, entropy and TRL's own metrics are
    watched all the same.

    Args:
        trainer: the ``GRPOTrainer``, or a subclass whose loss still comes from ``_compute_loss``.
        action: ``off``, ``warn``, ``checkpoint`` or ``stop``, for all alarms or by level
            (``{"dead": "stop"}``; the others then warn).
        alarms_file: JSONL; default ``alarms.jsonl`` in the trainer's ``output_dir``.

    Raises:
        TypeError: the trainer has no such loss. ValueError: an unknown action.
    """

    def __init__(
        self,
        trainer: Any,
        *,
        action: str | Mapping[str, str] = "warn",
        limits: AlarmLimits | None = None,
        alarms_file: str | Path | None = None,
    ) -> None:
        for method in ("_compute_loss", "_get_per_token_logps_and_entropies", "_metrics"):
            if not hasattr(trainer, method):
                raise TypeError(f"{type(trainer).__name__} has no {method}; DriftCallback needs TRL's GRPOTrainer")
        self.trainer = trainer
        self.actions = _actions(action)
        self.alarms: list[Alarm] = []
        args = trainer.args
        self._file = Path(alarms_file) if alarms_file is not None else Path(args.output_dir) / "alarms.jsonl"
        self._every = args.steps_per_generation * trainer.num_iterations
        updates = max(self._every // args.gradient_accumulation_steps, 1)
        self._monitor = AlarmMonitor(limits, Setup("trl", lr=args.learning_rate, updates=updates))
        self._drift = Drift()
        self._scored: tuple[Tensor, Tensor | None] | None = None
        self._inside = False
        self._turns = False
        self._due = False
        self._observe(trainer)

    # Looking on ---------------------------------------------------------------------------------------------------

    def _observe(self, trainer: Any) -> None:
        loss, score = trainer._compute_loss, trainer._get_per_token_logps_and_entropies

        def observed_score(*args: Any, **kwargs: Any) -> Any:
            out = score(*args, **kwargs)
            if self._inside and torch.is_grad_enabled():
                self._scored = (out[0].detach(), None if out[1] is None else out[1].detach())
            return out

        def observed_loss(model: Any, inputs: dict[str, Any]) -> Any:
            self._inside, self._scored = True, None
            try:
                out = loss(model, inputs)
            finally:
                self._inside = False
            if self._scored is not None and model.training:
                self._take(inputs, *self._scored)
            self._scored = None
            return out

        trainer._compute_loss = observed_loss
        trainer._get_per_token_logps_and_entropies = observed_score

    @torch.no_grad()
    def _take(self, inputs: Mapping[str, Any], logp: Tensor, entropy: Tensor | None) -> None:
        mask = inputs["completion_mask"]
        if "tool_mask" in inputs:
            mask = mask * inputs["tool_mask"]
            self._turns = True
        old = inputs.get("old_per_token_logps")
        tokens = Tokens.build(logp, logp if old is None else old, inputs["advantages"], mask, entropy=entropy)
        self._drift.add(
            tokens,
            self._clipped(tokens),
            torch.full_like(tokens.mask, _NO_KIND, dtype=torch.int8),
            tokens.turns,
            entropy=tokens.entropy,
            moved=None if old is None else self._update > 0,
        )

    @property
    def _update(self) -> int:
        """Optimiser updates made of the batch in work before this one."""
        return (self.trainer._step % self._every) // self.trainer.args.gradient_accumulation_steps

    def _clipped(self, tokens: Tokens) -> Tensor:
        """(B, T) tokens whose gradient the trainer's clip cuts off; losses without a clip of that kind have none."""
        trainer = self.trainer
        if trainer.loss_type not in ("grpo", "bnpo", "dr_grpo", "dapo", "luspo"):
            return torch.zeros_like(tokens.mask)
        log_ratio = tokens.log_ratio
        if trainer.importance_sampling_level == "sequence":
            lengths = tokens.mask.sum(-1, keepdim=True).clamp(min=1)
            log_ratio = (log_ratio.sum(-1, keepdim=True) / lengths).expand_as(log_ratio)
        ratio = log_ratio.exp()
        low = (ratio < 1 - trainer.epsilon_low) & (tokens.advantages < 0)
        high = (ratio > 1 + trainer.epsilon_high) & (tokens.advantages > 0)
        return (low | high) & tokens.mask

    # The trainer's events -----------------------------------------------------------------------------------------

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        for row in state.log_history:  # of the run that is resumed: nothing is raised twice
            if "loss" in row:
                self._monitor.observe(_record(row, int(row["step"])))

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if not control.should_log:
            return
        for name, value in self._statistics().items():
            self.trainer._metrics["train"][name] = [value]
        self._due = True

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if not self._due or logs is None:  # an evaluation, or the summary at the end
            return
        self._due = False
        alarms = self._monitor.observe(_record(logs, state.global_step))
        for alarm in alarms:
            self._act(alarm, state, control)

    def _statistics(self) -> dict[str, float]:
        """Since the last log, over all processes; ``entropy`` is TRL's own."""
        if self.trainer.accelerator.num_processes > 1:
            from accelerate.utils import gather_object

            mine, *others = gather_object([self._drift])
            for other in others:
                mine.absorb(other)
            statistics = mine.flush()
            self._drift = Drift()
        else:
            statistics = self._drift.flush()
        statistics.pop("entropy", None)
        return {name: value for name, value in statistics.items() if self._turns or "/turn" not in name}

    def _act(self, alarm: Alarm, state: TrainerState, control: TrainerControl) -> None:
        action = self.actions[alarm.level]
        if action == "off":
            return
        alarm = replace(alarm, action=action)
        self.alarms.append(alarm)
        if action in ("checkpoint", "stop"):
            control.should_save = True
        if action == "stop":
            control.should_training_stop = True
        if state.is_world_process_zero:
            logger.warning("%s; what to do: %s", alarm.line, alarm.advice)
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with self._file.open("a", encoding="utf-8") as f:
                f.write(json.dumps(alarm.to_dict()) + "\n")


def _record(logs: Mapping[str, Any], step: int) -> dict[str, Any]:
    return {**translate(logs, "trl"), "step": step}


def _actions(action: str | Mapping[str, str]) -> dict[Level, str]:
    by_level = dict.fromkeys(Level, action) if isinstance(action, str) else dict.fromkeys(Level, "warn")
    if not isinstance(action, str):
        for level, chosen in action.items():
            if level not in list(Level):
                raise ValueError(f"action: {level!r} is no level; write {', '.join(Level)}")
            by_level[Level(level)] = chosen
    for chosen in by_level.values():
        if chosen not in ACTIONS:
            why = "; a callback can't take a trainer back, Sleuth's own can" if chosen == "rollback" else ""
            raise ValueError(f"action: {chosen!r} is not known; write one of {', '.join(ACTIONS)}{why}")
    return by_level
