"""Going back to the last healthy checkpoint with other settings, when an alarm asks for it.

The steps that are given up move to ``rollbacks/N/``, metrics and rollouts alike; ``rollback.json`` in it says why, from
where to where, and what changed. ``recipe.yaml`` stays what the user wrote: the settings in force are that recipe with
the changes of the latest rollback on top. That file is written last, so that a kill half-way leaves a run which goes on
from the healthy checkpoint as if the alarm hadn't come yet.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sleuth.recipes.schema import Recipe
from sleuth.training.run_folder import RunFolder, write_lines, write_text


@dataclass(frozen=True, slots=True)
class Rollback:
    """What a rollback did.

    Attributes:
        number: from 1. ``from_step``: the last step that was given up. ``to_step``: the checkpoint's; 0 is the start.
        alarm: as in ``alarms.jsonl``.
        settings: dotted keys with the values in force from then on. ``before``: the same keys before.
    """

    number: int
    from_step: int
    to_step: int
    alarm: Mapping[str, Any]
    settings: Mapping[str, Any]
    before: Mapping[str, Any]

    @property
    def line(self) -> str:
        """For a person, in one line."""
        place = (
            f"the checkpoint of step {self.to_step}" if self.to_step else "the start model: no checkpoint is healthy"
        )
        changes = ", ".join(
            f"{key}={_shown(value)} (was {_shown(self.before[key])})"
            for key, value in self.settings.items()
            if value != self.before[key]
        )
        return (
            f"rollback {self.number}: back from step {self.from_step} to {place}, with {changes or 'nothing changed'}"
        )


def roll_back(recipe: Recipe, run: RunFolder, alarm: Mapping[str, Any]) -> Rollback:
    """Take the run folder back to the last checkpoint before the alarm's trouble began.

    Args:
        recipe: the user's, as in ``recipe.yaml``.
        alarm: as in ``alarms.jsonl``.
    """
    rollback = planned_rollback(recipe, run, alarm)
    healthy, records = rollback.to_step, run.read_metrics()
    folder = run.rollbacks / str(rollback.number)
    shutil.rmtree(folder, ignore_errors=True)  # of a rollback that was killed
    run.drop_checkpoints([step for step in run.checkpoint_steps() if step <= healthy])
    write_lines(folder / "metrics.jsonl", [r for r in records if r["step"] > healthy])
    run.move_rollouts(healthy, folder / "rollouts")
    said = {
        "number": rollback.number,
        "from_step": rollback.from_step,
        "to_step": healthy,
        "alarm": rollback.alarm,
        "settings": rollback.settings,
        "before": rollback.before,
    }
    write_text(folder / "rollback.json", json.dumps(said, indent=2, ensure_ascii=False) + "\n")
    return rollback


def planned_rollback(recipe: Recipe, run: RunFolder, alarm: Mapping[str, Any]) -> Rollback:
    """What :func:`roll_back` does with the same arguments, without doing it."""
    done = run.read_rollbacks()
    present = recipe_in_force(recipe, run)
    healthy = max((step for step in run.checkpoint_steps() if step < alarm["since"]), default=0)
    records = run.read_metrics()
    settings = recipe.diagnosis.rollback
    keys = {"trainer.lr": present.trainer.lr, "objective": present.objective, "parameters": present.parameters}
    changed = {
        "trainer.lr": present.trainer.lr * settings.lr_factor,
        "objective": settings.objective or present.objective,
        "parameters": _on_top(present.parameters, settings.parameters),
    }
    return Rollback(
        len(done) + 1, max((r["step"] for r in records), default=healthy), healthy, dict(alarm), changed, keys
    )


def recipe_in_force(recipe: Recipe, run: RunFolder) -> Recipe:
    """The user's recipe with the changes of the run's latest rollback."""
    done = run.read_rollbacks()
    return with_settings(recipe, done[-1]["settings"]) if done else recipe


def recipe_after_rollback(recipe: Recipe) -> Recipe:
    """What the first rollback would make of a recipe: to be checked before training starts."""
    settings = recipe.diagnosis.rollback
    return with_settings(
        recipe,
        {
            "trainer.lr": recipe.trainer.lr * settings.lr_factor,
            "objective": settings.objective or recipe.objective,
            "parameters": _on_top(recipe.parameters, settings.parameters),
        },
    )


def with_settings(recipe: Recipe, settings: Mapping[str, Any]) -> Recipe:
    """A recipe with the values of a rollback's keys."""
    trainer = recipe.trainer.model_copy(update={"lr": settings["trainer.lr"]})
    return recipe.model_copy(
        update={"trainer": trainer, "objective": settings["objective"], "parameters": settings["parameters"]}
    )


def set_learning_rate(optimizer: Any, scheduler: Any, lr: float) -> None:
    """Put another constant learning rate in place of the one that a checkpoint brought along; warm-up stays."""
    scheduler = getattr(scheduler, "scheduler", scheduler)
    scheduler.base_lrs = [lr for _ in scheduler.base_lrs]
    rates = [lr * scale(scheduler.last_epoch) for scale in scheduler.lr_lambdas]
    scheduler._last_lr = rates
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"], group["initial_lr"] = rate, lr


def unanswered_stop(recipe: Recipe, run: RunFolder) -> Mapping[str, Any] | None:
    """The alarm that stopped the run at its last step, if the recipe would now roll back for it."""
    records, alarms = run.read_metrics(), run.read_alarms()
    if not records:
        return None
    for alarm in reversed(alarms):
        ended = alarm["action"] == "stop" and alarm["step"] == records[-1]["step"]
        if ended and alarm["rollbacks"] == len(run.read_rollbacks()):
            return alarm if recipe.diagnosis.action_at(alarm["level"]) == "rollback" else None
    return None


def _on_top(parameters: Mapping[str, Mapping[str, Any]], over: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {part: {**parameters.get(part, {}), **over.get(part, {})} for part in {**parameters, **over}}


def _shown(value: Any) -> str:
    return f"{value:.2g}" if isinstance(value, float) else str(value)
