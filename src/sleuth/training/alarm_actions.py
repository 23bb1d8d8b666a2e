"""What a run does when an alarm is raised: warn, checkpoint, stop, or ask to be rolled back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from transformers import TrainerControl

from sleuth.diagnostics.alarm_advice import Setup
from sleuth.diagnostics.alarm_places import worst_rollouts
from sleuth.diagnostics.alarms import Alarm, AlarmMonitor
from sleuth.recipes.schema import AlarmAction, Recipe
from sleuth.training.run_folder import RunFolder
from sleuth.types import Trajectory

_FORCE: list[AlarmAction] = ["off", "warn", "checkpoint", "stop", "rollback"]
"""Of several alarms in one step the strongest action is taken."""


class AlarmWatch:
    """Looks at every step's record and acts on what it finds.

    Args:
        say: prints one line for a person.

    Attributes:
        ended_by: the alarm that ended training, with ``stop`` or ``rollback`` as its action.
    """

    def __init__(self, recipe: Recipe, run: RunFolder, say: Callable[[str], None]) -> None:
        self.settings = recipe.diagnosis
        self.run, self.say = run, say
        self.on = self.settings.actions != {"off"}
        self.ended_by: Alarm | None = None
        setup = Setup("sleuth", recipe.trainer.lr, recipe.trainer.updates_per_batch, recipe.objective)
        self._monitor = AlarmMonitor(self.settings.rules, setup)
        self._last = recipe.trainer.steps
        self._saves_rollouts = recipe.trainer.save_rollouts_every > 0
        self._keeps = bool(self.settings.actions & {"stop", "rollback"})

    def begin(self) -> None:
        """Training starts or goes on: what an earlier process saw is seen again, and raises nothing twice."""
        if self.on:
            for record in self.run.read_metrics():
                self._monitor.observe(record)

    def step_done(self, record: dict, trajectories: Sequence[Trajectory], control: TrainerControl) -> None:
        """A step is recorded; all its updates are made.

        Args:
            record: its line in ``metrics.jsonl``.
            trajectories: its rollouts, the source of samples; may be empty.
            control: told to save or to stop, which the engine does before the next batch.
        """
        if not self.on:
            return
        alarms = self._monitor.observe(record)
        if not alarms:
            return
        taken = [self._act(alarm, trajectories) for alarm in alarms]
        if self._saves_rollouts and trajectories and any(alarm.action != "off" for alarm in taken):
            self.run.save_rollouts(record["step"], trajectories)  # the evidence, whatever save_rollouts_every says
        for alarm in taken:
            if alarm.action != "off":
                self.run.log_alarm(alarm.to_dict())
                self.say(f"{alarm.line}. {alarm.advice}")
        worst = max(taken, key=lambda alarm: (_FORCE.index(alarm.action), alarm.level.rank))  # type: ignore[arg-type]
        if worst.action in ("checkpoint", "stop"):
            control.should_save = True
        if worst.action in ("stop", "rollback"):
            control.should_training_stop = True
            self.ended_by = worst

    def _act(self, alarm: Alarm, trajectories: Sequence[Trajectory]) -> Alarm:
        action = self.settings.action_at(alarm.level)
        if action == "rollback" and len(self.run.read_rollbacks()) >= self.settings.rollback.times:
            action = "stop"
        if action in ("stop", "rollback") and alarm.step == self._last:
            action = "warn"  # nothing is left to stop
        return replace(alarm, action=action, rollouts=worst_rollouts(trajectories, alarm.rule, alarm.where))

    # Checkpoints --------------------------------------------------------------------------------------------------

    def wants_checkpoint(self, step: int) -> bool:
        """Whether one is due in this step, so that there will be a healthy one to go back to."""
        return self._keeps and step % self.settings.rollback.every == 0

    def kept(self, steps: Sequence[int]) -> list[int]:
        """Those of these checkpoints that alarms need: the latest ones to go back to, and all that alarms made."""
        made = {alarm["step"] for alarm in self.run.read_alarms() if alarm["action"] == "checkpoint"}
        back = [step for step in steps if step % self.settings.rollback.every == 0] if self._keeps else []
        return [*back[-self.settings.rollback.keep :], *(step for step in steps if step in made)]
