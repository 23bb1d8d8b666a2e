"""The schedule: rounds of reinforcement learning, each followed by a fresh pool, pair mining and self-distillation.

    runs/NAME/                      what every run folder has; steps are numbered through all rounds and stages
    runs/NAME/rounds/N/             what the stages of a round leave (:mod:`~sleuth.training.search_e1.round`)
    runs/NAME/checkpoints/step-M/   the policy at the end of a round, an ordinary model folder

Each stage leaves its result under a name that appears when it is whole, so that a killed run goes on in the stage where
it was, and every draw depends on (seed, round, row) alone, so that it goes on to the same numbers.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from sleuth.agent.codec import TokenCodec
from sleuth.assembly import Material, build_protocol, build_tokenizer, build_tools, gather, prompt_hash
from sleuth.errors import UserError
from sleuth.question_sets import world_files
from sleuth.recipes.loader import dump_recipe, load_recipe
from sleuth.recipes.schema import Recipe
from sleuth.training.checkpoints import no_room_is_said
from sleuth.training.processes import Processes
from sleuth.training.progress import Progress
from sleuth.training.resuming import check_same_inputs, check_same_recipe, data_hash, evidence_hash
from sleuth.training.run_folder import RunFolder, environment
from sleuth.training.search_e1.round import Round, read_json
from sleuth.training.search_e1.stages import distil_round, reinforce
from sleuth.training.search_e1.whole_run import conclude, gather_metrics
from sleuth.training.signals import interrupts_on_sigterm

_SHARDED = ("ACCELERATE_USE_FSDP", "ACCELERATE_USE_DEEPSPEED")
"""What ``accelerate launch`` sets for a model that no process has the whole of."""


def train_rounds(
    recipe: Recipe,
    run_dir: Path,
    *,
    resume: bool = False,
    quiet: bool = False,
    material: Material | None = None,
    processes: Processes = Processes(),
) -> dict[str, Any]:
    """Run the whole schedule in ``run_dir``.

    Arguments, result and errors are those of :func:`sleuth.training.run.train`.
    """
    started = time.monotonic()
    run = RunFolder(run_dir)
    room = no_room_is_said(run.path, f"{run.how_to_continue}, which keeps what is finished")
    with interrupts_on_sigterm(), processes.told_once(), room:
        with Progress(recipe, quiet=quiet or not processes.main) as progress:
            material, done = _prepare(recipe, run, resume, progress, material, processes)
            if done is not None:
                return done
        rounds: list[Round] = []
        for number in range(1, recipe.search_e1.rounds + 1):
            start, first = processes.from_main(partial(_ends_of, rounds))
            rounds.append(Round(recipe, run, number, start, first))
            _train_round(rounds, material, quiet, processes)
            gc.collect()
        with Progress(recipe, quiet=quiet or not processes.main) as progress:
            return conclude(rounds, material, progress, started, processes)


def _ends_of(rounds: Sequence[Round]) -> tuple[Path | None, int]:
    """The policy and the number of steps behind the last of these rounds."""
    return (rounds[-1].policy, rounds[-1].last_step) if rounds else (None, 0)


def _train_round(rounds: Sequence[Round], material: Material, quiet: bool, processes: Processes) -> None:
    this = rounds[-1]
    reinforce(this, material, quiet, processes)
    processes.from_main(lambda: gather_metrics(rounds))
    if not this.distills:
        return
    if processes.from_main(lambda: this.distilled is None):
        with Progress(this.recipe, quiet=quiet or not processes.main) as progress:
            distil_round(this, material, progress, processes)
        processes.from_main(lambda: gather_metrics(rounds))
    processes.from_main(this.drop_distill_checkpoints)


def _prepare(
    recipe: Recipe, run: RunFolder, resume: bool, progress: Progress, material: Material | None, processes: Processes
) -> tuple[Material, dict[str, Any] | None]:
    """The run's material and its folder, begun or taken up again; and the summary of a run that is finished."""

    def check() -> None:
        if processes.count > 1 and any(os.environ.get(name, "").lower() == "true" for name in _SHARDED):
            raise UserError(
                "schedule=search_e1 distils a model that every process has whole, not a sharded one (FSDP, DeepSpeed); "
                "launch it with torchrun, or draw a pool and give it to `sleuth distill`"
            )
        if resume:
            check_resumable(run, recipe)
        else:
            run.refuse_existing()

    def begin(material: Material) -> dict[str, Any] | None:
        facts = _facts(recipe, material, processes)
        if not resume:
            run.start(dump_recipe(recipe), facts)
            return None
        check_same_inputs(run, facts)
        if (done := finished(run, recipe)) is not None:
            progress.say(f"{run.path} is finished; raise search_e1.rounds to train on")
            return done
        run.write_recipe(dump_recipe(recipe))
        return None

    processes.from_main(check)
    if material is None:  # written by one process, for the others to find
        processes.from_main(lambda: world_files(recipe, run.path) and None)
    with processes.agreement():
        found = material or gather(recipe, run.path, say=progress.say)
    done = processes.from_main(lambda: begin(found))
    with processes.agreement():
        if not run.recipe.exists():
            raise UserError(f"{run.path} is not the same folder on every machine; give one on a file system they share")
    return found, done


def check_resumable(run: RunFolder, recipe: Recipe) -> None:
    """Refuse a recipe that differs from the run's in more than a resumed run may change.

    Raises:
        UserError: names what differs.
    """
    check_same_recipe(run, recipe)
    recorded = load_recipe(run.recipe, check_required=False)
    if recorded.trainer.steps != recipe.trainer.steps:
        raise UserError(
            f"--resume: trainer.steps is {recipe.trainer.steps}, but the rounds of {run.path} have "
            f"{recorded.trainer.steps}; for a longer run raise search_e1.rounds"
        )


def _facts(recipe: Recipe, material: Material, processes: Processes) -> dict[str, Any]:
    if not material.questions.train:
        raise UserError("the recipe has no training questions; set data.train=FILE")
    codec = TokenCodec(build_tokenizer(recipe))
    protocol = build_protocol(recipe, codec, build_tools(recipe, material.retriever))
    return environment(
        seed=recipe.seed,
        corpus_hash=material.corpus_hash,
        prompt_hash=prompt_hash(protocol),
        data_hash=data_hash(material.questions.train),
        dev_hash=data_hash(material.questions.dev),
        test_hash=data_hash(material.questions.test),
        anchors_hash=evidence_hash(recipe, material.questions.train),
        processes=processes.count,
    )


def finished(run: RunFolder, recipe: Recipe) -> dict[str, Any] | None:
    """The summary of a run that has made all rounds of this recipe."""
    summary = read_json(run.summary)
    return summary if summary is not None and len(summary.get("rounds", [])) == recipe.search_e1.rounds else None
