"""What happens at the end of a batch: the step's record, the dev score, and whether to save or to stop.

With several processes the main one writes and decides, and tells the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from transformers import TrainerControl, TrainerState, TrainingArguments

from sleuth.diagnostics.alarms import Alarm
from sleuth.errors import RunFailed, RunStopped
from sleuth.evaluation.score import score
from sleuth.recipes.schema import Recipe
from sleuth.training.alarm_actions import AlarmWatch
from sleuth.training.checkpoints import publish
from sleuth.training.progress import Progress
from sleuth.training.rollback import set_learning_rate
from sleuth.training.run_folder import RunFolder
from sleuth.training.step_callback import StepCallback
from sleuth.types import Trajectory

if TYPE_CHECKING:
    from sleuth.training.trl import SearchGRPOTrainer


class Watch(StepCallback):
    """Writes the run folder as training goes, and decides when to score, save and stop."""

    trainer: SearchGRPOTrainer
    dev: Callable[[], list[Trajectory]]

    def __init__(self, recipe: Recipe, run: RunFolder, progress: Progress):
        super().__init__()
        self.recipe, self.run, self.progress = recipe, run, progress
        self.stop_requested = False
        self.alarms = AlarmWatch(recipe, run, progress.say)
        self._grader = recipe.reward.grader if not isinstance(recipe.reward, str) else "squad"
        self._trajectories: Sequence[Trajectory] = ()
        self._saved: Sequence[Trajectory] = ()
        self._batch_started = time.perf_counter()
        self._rolled_out = self._batch_started

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.alarms.begin()
        if self.trainer.processes.from_main(self.run.read_rollbacks):
            set_learning_rate(kwargs["optimizer"], kwargs["lr_scheduler"], self.recipe.trainer.lr)

    def batch_rolled_out(self, step: int, trajectories: Sequence[Trajectory]) -> None:
        self._rolled_out = time.perf_counter()
        self._trajectories = trajectories
        processes = self.trainer.processes
        every = self.recipe.trainer.save_rollouts_every
        self._saved = trajectories if processes.main and every and step % every == 0 else ()
        if self._saved:
            # Now, so that a run that dies keeps them, and once more with log-probs when the updates are made.
            self.run.save_rollouts(step, self._saved)
        failed = [t for t in trajectories if t.failed]
        if len(failed) > self.recipe.trainer.max_failed_share * len(trajectories):
            where = self._save_now(step - 1)
            raise RunFailed(
                f"step {step}: {len(failed)} of {len(trajectories)} rollouts failed (first: {failed[0].error}); "
                f"mend it and {self.run.how_to_continue}{where}"
            )
        self.stop_requested = processes.any(self.stop_requested)
        if self.stop_requested:
            # No weight has moved since the last step's end: this is the state to resume from.
            saved = self._save_now(step - 1)
            raise RunStopped(f"stopped before step {step} was trained; {self.run.how_to_continue}{saved}")

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        updates = self.trainer.updates_per_batch
        if state.global_step % updates:
            return
        step, t, processes = state.global_step // updates, self.recipe.trainer, self.trainer.processes
        last = step == t.steps
        self.stop_requested = processes.any(self.stop_requested)
        self.trainer.gather_step()
        now = time.perf_counter()
        dev = self.dev() if t.eval_every and (step % t.eval_every == 0 or last) else None
        self._record = {"step": step}
        save = processes.from_main(lambda: self._end_of_step(step, now, dev))
        if self.stop_requested and not last:
            control.should_training_stop = True
        if save or last or self.stop_requested:
            control.should_save = True

    def _end_of_step(self, step: int, now: float, dev: Sequence[Trajectory] | None) -> bool:
        """Make the step's record and write its rollouts; whether it needs a checkpoint."""
        t = self.recipe.trainer
        if self._saved or self.alarms.on:
            self.trainer.record.write_log_probs(self._trajectories)
        if self._saved:
            self.run.save_rollouts(step, self._saved)
            self._saved = ()
        metrics = self.trainer.flush_step_metrics()
        if metrics["skipped_updates"] == self.trainer.updates_per_batch:
            raise RunFailed(
                f"step {step}: no update had a finite gradient, and so none was made; lower trainer.lr or set "
                f"model_settings.mixed_precision=no in a new run, or {self.run.how_to_continue} to try this step again"
            )
        metrics["seconds/rollout"] = self._rolled_out - self._batch_started
        metrics["seconds/update"] = now - self._rolled_out
        if dev is not None:
            metrics |= dev_scores(dev, self._grader)
        self._record |= metrics
        for name, value in metrics.items():
            self.trainer._metrics["train"][name] = [value]
        best = "dev/em" in metrics and t.keep == "best" and self._is_best(metrics["dev/em"])
        due = (t.save_every and step % t.save_every == 0) or self.alarms.wants_checkpoint(step)
        return bool(best or due)

    def step_logged(self, record: dict[str, Any], logs: dict[str, Any], control: TrainerControl) -> None:
        record |= {"grad_norm": logs["grad_norm"], "lr": logs["learning_rate"]}

        def written() -> tuple[bool, bool, Alarm | None]:
            self.run.log(record)
            self.progress.step(record)
            self.alarms.step_done(record, self._trajectories, control)
            return control.should_save, control.should_training_stop, self.alarms.ended_by

        control.should_save, control.should_training_stop, self.alarms.ended_by = self.trainer.processes.from_main(
            written
        )
        self._batch_started = time.perf_counter()

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        step = state.global_step // self.trainer.updates_per_batch
        self.trainer.processes.from_main(lambda: self._publish(step))

    def _publish(self, step: int) -> None:
        publish(self.trainer, self.run, step)
        steps = self.run.checkpoint_steps()
        best = kept_step(self.recipe, self.run)
        latest = steps[-self.recipe.trainer.keep_last :]
        self.run.drop_checkpoints([*latest, *([] if best is None else [best]), *self.alarms.kept(steps)])

    def _is_best(self, em: float) -> bool:
        return all(em > r["dev/em"] for r in self.run.read_metrics() if "dev/em" in r)

    def _save_now(self, step: int) -> str:
        processes = self.trainer.processes
        if step < 1 or processes.from_main(lambda: step in self.run.checkpoint_steps()):
            return ""
        self.trainer._save_checkpoint(self.trainer.model, None)
        processes.from_main(lambda: publish(self.trainer, self.run, step))
        return f" (saved step {step})"


def dev_scores(rollouts: Sequence[Trajectory], grader: str) -> dict[str, float]:
    """``dev/em`` and ``dev/f1``: means over the rollouts that could be scored, 0 without any."""
    sound = [row for row in score(rollouts, grader) if row.em is not None and row.f1 is not None]
    n = max(len(sound), 1)
    return {"dev/em": sum(row.em or 0.0 for row in sound) / n, "dev/f1": sum(row.f1 or 0.0 for row in sound) / n}


def kept_step(recipe: Recipe, run: RunFolder) -> int | None:
    """The step whose checkpoint is the run's result: the best on dev (the earliest of equals), or the last."""
    steps = run.checkpoint_steps()
    if not steps:
        return None
    if recipe.trainer.keep == "best":
        scored = {r["step"]: r["dev/em"] for r in run.read_metrics() if "dev/em" in r and r["step"] in steps}
        if scored:
            return max(scored, key=lambda s: (scored[s], -s))
    return steps[-1]
