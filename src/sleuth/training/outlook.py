"""What ``--resume`` would do with a run, found out without loading a model and without changing a file."""

from __future__ import annotations

from pathlib import Path

from sleuth.errors import UserError
from sleuth.recipes.schema import Recipe
from sleuth.training.checkpoints import damage
from sleuth.training.resuming import check_same_recipe
from sleuth.training.rollback import planned_rollback, recipe_in_force, unanswered_stop, with_settings
from sleuth.training.run_folder import RunFolder


def outlook(recipe: Recipe, run: RunFolder) -> tuple[Recipe, list[str]]:
    """Where a resumed run would go on, and what is left of it.

    Args:
        recipe: the run's, with what the user changes.

    Returns:
        The recipe that would be in force (a rollback may have changed it), and lines for people.

    Raises:
        UserError: what the resumed run would refuse of recipe and checkpoints; its inputs aren't compared here.
    """
    if recipe.schedule == "search_e1":
        return recipe, [_of_rounds(recipe, run)]
    check_same_recipe(run, recipe)
    steps, made = recipe.trainer.steps, run.checkpoint_steps()
    if run.summary.is_file() and made[-1:] == [steps]:
        return recipe, [f"{run.path} is finished, all {steps:,} steps; raise trainer.steps to train on"]
    lines: list[str] = []
    in_force, last = recipe_in_force(recipe, run), steps
    if (stop := unanswered_stop(recipe, run)) is not None:
        rollback = planned_rollback(recipe, run, stop)
        in_force, last = with_settings(recipe, rollback.settings), rollback.to_step
        lines.append(rollback.line)
    start, damaged = _start(run, [step for step in made if step <= last])
    if start and start < steps and not run.has_optimizer(start):
        raise UserError(f"{run.checkpoint(start)} was kept without its optimiser; it can be used, but not trained on")
    return in_force, [*lines, *damaged, _of_steps(recipe, run, start)]


def _start(run: RunFolder, made: list[int]) -> tuple[int, list[str]]:
    """The step of the newest checkpoint that can be trusted, 0 where there is none, and a line for each that can't."""
    damaged: list[str] = []
    for step in reversed(made):
        if (problem := damage(run.checkpoint(step))) is None:
            return step, damaged
        damaged.append(f"the checkpoint of step {step} is damaged ({problem}) and would be set aside")
    return 0, damaged


def _of_steps(recipe: Recipe, run: RunFolder, start: int) -> str:
    t = recipe.trainer
    if start >= t.steps:
        return f"{run.path}: all {t.steps:,} steps are made; scores and summary are left"
    left = t.steps - start
    again = max((record["step"] for record in run.read_metrics()), default=0) - start
    lost = f"; steps made a second time: {again:,}" if again > 0 else ""
    place = f"goes on from its checkpoint of step {start:,}" if start else "starts over (no checkpoint to go on from)"
    return (
        f"{run.path} {place}: {left:,} of {t.steps:,} steps are left, {left * t.updates_per_batch:,} updates, "
        f"{left * t.prompts * t.group:,} rollouts{lost}"
    )


def _of_rounds(recipe: Recipe, run: RunFolder) -> str:
    from sleuth.training.search_e1.round import Round, read_json
    from sleuth.training.search_e1.rounds import check_resumable, finished

    check_resumable(run, recipe)
    rounds = recipe.search_e1.rounds
    if finished(run, recipe) is not None:
        return f"{run.path} is finished, all {rounds} rounds; raise search_e1.rounds to train on"
    policy: Path | None = None
    first = 0
    for number in range(1, rounds + 1):
        this = Round(recipe, run, number, policy, first)
        left = f"{rounds - number} rounds are left after it"
        if read_json(this.rl.summary) is None:
            start, _ = _start(this.rl, this.rl.checkpoint_steps())
            return (
                f"{run.path} goes on in round {number} of {rounds}, reinforcement learning, after step {start:,} of "
                f"{recipe.trainer.steps:,}; {left}"
            )
        if this.distills and this.distilled is None:
            stage = "distillation" if this.pool.finished else "the pool for its distillation"
            return f"{run.path} goes on in round {number} of {rounds}, {stage}; {left}"
        policy, first = this.policy, this.last_step
    return f"{run.path}: all {rounds} rounds are made; scores and summary are left"
