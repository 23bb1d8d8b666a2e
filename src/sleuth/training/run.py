"""A training run from a recipe to a report: score, train, keep the best, score again."""

from __future__ import annotations

import importlib.util
import json
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from sleuth.assembly import Material, Parts, assemble, build_model, check_retriever
from sleuth.errors import RunFailed, RunStopped, UserError
from sleuth.evaluation.coverage import answer_coverage
from sleuth.question_sets import world_files
from sleuth.recipes.loader import dump_recipe
from sleuth.recipes.schema import Recipe
from sleuth.training.build import build_trainer, recipe_objective
from sleuth.training.checkpoints import newest_whole, remove_unfinished
from sleuth.training.processes import Processes
from sleuth.training.progress import Progress
from sleuth.training.resuming import check_same_inputs, check_same_recipe, data_hash, evidence_hash
from sleuth.training.rollback import recipe_after_rollback, recipe_in_force, roll_back, unanswered_stop
from sleuth.training.run_folder import RunFolder, environment
from sleuth.training.scores import score_test, write_summary
from sleuth.training.served_sampling import check_served_sampling
from sleuth.training.signals import interrupts_on_sigterm, stop_requests
from sleuth.training.trl import SearchGRPOTrainer
from sleuth.training.watch import Watch, kept_step
from sleuth.types import Trajectory

TRACKERS = ("tensorboard", "wandb", "trackio")
"""What ``trainer.track`` may name."""


def train(
    recipe: Recipe,
    run_dir: Path,
    *,
    resume: bool = False,
    quiet: bool = False,
    material: Material | None = None,
    processes: Processes | None = None,
) -> dict[str, Any]:
    """Run ``recipe`` in ``run_dir``.

    Args:
        resume: continue from the folder's latest checkpoint, to the same numbers as an unbroken run.
        material: the recipe's questions and retriever, if they are loaded already.
        processes: that run it together, all with the same arguments; None: those that a launcher started.

    Returns:
        The summary, which is also in ``summary.json``.

    Raises:
        UserError: a wrong input; nothing was started.
        RunFailed: too many rollouts failed, or an alarm whose action is to stop. RunStopped: stopped by a signal. All
            leave a checkpoint to resume from.
    """
    started = time.monotonic()
    run = RunFolder(run_dir)
    processes = processes or Processes.join()
    recipe_objective(recipe)
    check_retriever(recipe)
    check_served_sampling(recipe)
    if "rollback" in recipe.diagnosis.actions:
        recipe_objective(recipe_after_rollback(recipe))
    if recipe.schedule == "search_e1":
        from sleuth.training.search_e1.rounds import train_rounds

        return train_rounds(recipe, run_dir, resume=resume, quiet=quiet, material=material, processes=processes)
    with (
        Progress(recipe, quiet=quiet or not processes.main) as progress,
        interrupts_on_sigterm(),
        processes.told_once(),
    ):
        parts, done = _prepare(recipe, run, resume, progress, material, processes)
        if done is not None:
            return done
        trainer = _trainer_in_force(recipe, parts, run, progress, processes)
        before = _score(recipe, parts, trainer, run, "before", progress)
        earlier = _fit(trainer, run, resume, progress)
        while (alarm := _watch(trainer).alarms.ended_by) is not None:
            processes.from_main(partial(_say_rollback, recipe, run, alarm.to_dict(), progress))
            # A model as new, since the old one and its engine are wrapped in each other.
            parts = replace(parts, model=build_model(recipe))
            trainer = _trainer_in_force(recipe, parts, run, progress, processes)
            _fit(trainer, run, True, progress)
        kept, last = processes.from_main(lambda: (kept_step(recipe, run), run.checkpoint_steps()[-1:]))
        if kept is not None and [kept] != last:
            trainer._load_from_checkpoint(str(run.checkpoint(kept)))
        after = _score(recipe, parts, trainer, run, "after", progress)
        checkpoint = run.checkpoint(kept) if kept is not None else None
        seconds = earlier + time.monotonic() - started
        return processes.from_main(lambda: write_summary(recipe, parts, run, before, after, checkpoint, seconds))


def _prepare(
    recipe: Recipe, run: RunFolder, resume: bool, progress: Progress, material: Material | None, processes: Processes
) -> tuple[Parts, dict[str, Any] | None]:
    """The parts of the run and its folder, begun or taken up again; and the summary of a run that is finished."""

    def check() -> None:
        if resume:
            check_same_recipe(run, recipe)
        else:
            run.refuse_existing()
        _check_trackers(recipe)

    def begin() -> dict[str, Any] | None:
        if not parts.train:
            raise UserError("the recipe has no training questions; set data.train=FILE")
        progress.say(answer_coverage(parts.retriever, parts.train, parts.limits.k, seed=recipe.seed).line())
        facts = environment(
            seed=recipe.seed,
            corpus_hash=parts.corpus_hash,
            prompt_hash=parts.prompt_hash,
            data_hash=data_hash(parts.train),
            dev_hash=data_hash(parts.dev),
            test_hash=data_hash(parts.test),
            anchors_hash=evidence_hash(recipe, parts.train),
            processes=processes.count,
        )
        if resume:
            check_same_inputs(run, facts)
            if (done := _finished(run, recipe)) is not None:
                progress.say(f"{run.path} is finished; raise trainer.steps to train on")
                return done
            run.write_recipe(dump_recipe(recipe))
        else:
            run.start(dump_recipe(recipe), facts)
        remove_unfinished(run)
        if resume and (stop := unanswered_stop(recipe, run)) is not None:
            _say_rollback(recipe, run, stop, progress)
        return None

    processes.from_main(check)
    if material is None:  # written by one process, for the others to find
        processes.from_main(lambda: world_files(recipe, run.path) and None)
    with processes.agreement():
        parts = assemble(recipe, run.path, say=progress.say, material=material)
    done = processes.from_main(begin)
    with processes.agreement():
        if not run.recipe.exists():
            raise UserError(f"{run.path} is not the same folder on every machine; give one on a file system they share")
    return parts, done


def _say_rollback(recipe: Recipe, run: RunFolder, alarm: Mapping[str, Any], progress: Progress) -> None:
    progress.say(roll_back(recipe, run, alarm).line)


def _trainer_in_force(
    recipe: Recipe, parts: Parts, run: RunFolder, progress: Progress, processes: Processes
) -> SearchGRPOTrainer:
    """The engine, with the settings that the run's latest rollback left."""
    return build_trainer(processes.from_main(lambda: recipe_in_force(recipe, run)), parts, run, progress, processes)


def _score(
    recipe: Recipe, parts: Parts, trainer: SearchGRPOTrainer, run: RunFolder, when: str, progress: Progress
) -> dict[str, list[Trajectory]]:
    """The test questions, scored by all processes together."""
    agent = trainer.processes.spread(trainer.agent, trainer.model)
    return score_test(recipe, parts, agent, run, when, progress, trainer.processes)


def _fit(trainer: SearchGRPOTrainer, run: RunFolder, resume: bool, progress: Progress) -> float:
    """Train from the latest checkpoint, or from the start; returns the seconds that the steps before it took."""
    processes = trainer.processes

    def rewound() -> tuple[int, float]:
        start = (newest_whole(run, progress.say) if resume else None) or 0
        if start and start < trainer.steps and not run.has_optimizer(start):
            raise UserError(
                f"{run.checkpoint(start)} was kept without its optimiser; it can be used, but not trained on"
            )
        if (
            start
            and start < trainer.steps
            and run.is_sharded(start) != (trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled)
        ):
            raise UserError(
                f"{run.checkpoint(start)} was written "
                + ("with" if run.is_sharded(start) else "without")
                + " FSDP or DeepSpeed, and its optimiser can only go on like that; start the run as before, or a new "
                f"one from its weights with model={run.checkpoint(start)}"
            )
        run.rewind(start)
        return start, sum(r["seconds/rollout"] + r["seconds/update"] for r in run.read_metrics())

    start, earlier = processes.from_main(rewound)
    if start >= trainer.steps:
        trainer._load_from_checkpoint(str(run.checkpoint(start)))
        return earlier
    progress.start(start)
    watch = _watch(trainer)

    def stop() -> None:
        if not watch.stop_requested:
            progress.say("stopping at the end of this batch with a checkpoint; once more to stop at once")
        watch.stop_requested = True

    with stop_requests(stop, processes=processes.count):
        trainer.train(resume_from_checkpoint=str(run.checkpoint(start)) if start else None)
    last = processes.from_main(lambda: run.checkpoint_steps()[-1])
    if processes.any(watch.stop_requested):
        raise RunStopped(f"stopped after step {last}; {run.how_to_continue}")
    alarm = watch.alarms.ended_by
    if alarm is not None and alarm.action == "stop":
        raise RunFailed(
            f"{alarm.line}. Stopped with a checkpoint of step {alarm.step}; {run.how_to_continue} as if nothing had "
            "been found, or with diagnosis.action=rollback from a checkpoint before it began"
        )
    return earlier


def _watch(trainer: SearchGRPOTrainer) -> Watch:
    return next(c for c in trainer.callback_handler.callbacks if isinstance(c, Watch))


def _check_trackers(recipe: Recipe) -> None:
    for name in recipe.trainer.track:
        if name not in TRACKERS:
            raise UserError(f"trainer.track: {name!r} is not known; write {', '.join(TRACKERS)}")
        if importlib.util.find_spec(name) is None:
            raise UserError(f"trainer.track: {name} is not installed; pip install {name}, or leave it out")


def _finished(run: RunFolder, recipe: Recipe) -> dict[str, Any] | None:
    """The summary of a run that has nothing left to do."""
    if not run.summary.exists() or run.checkpoint_steps()[-1:] != [recipe.trainer.steps]:
        return None
    return json.loads(run.summary.read_text(encoding="utf-8"))
