"""A training run from a recipe to a report: score, train, keep the best, score again."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from trl import GRPOConfig

from sleuth.agent.agent import SearchAgent
from sleuth.assembly import Material, Parts, assemble, autocast_dtype, build_agent, build_model, build_sampler
from sleuth.errors import RunFailed, RunStopped, UserError
from sleuth.evaluation.coverage import answer_coverage
from sleuth.evaluation.score import Score, evaluate, score
from sleuth.evaluation.statistics import bootstrap_interval, paired_difference
from sleuth.evaluation.table import SetScores, summarise
from sleuth.objectives import resolve
from sleuth.objectives.compose import Objective
from sleuth.question_sets import world_files
from sleuth.recipes.loader import dump_recipe
from sleuth.recipes.schema import Recipe
from sleuth.seeds import derive_seed
from sleuth.training.checkpoints import newest_whole, remove_unfinished
from sleuth.training.model_card import model_card
from sleuth.training.processes import TIMEOUT, Processes
from sleuth.training.progress import Progress
from sleuth.training.resuming import check_same_inputs, check_same_recipe, data_hash, evidence_hash
from sleuth.training.rollback import recipe_after_rollback, recipe_in_force, roll_back, unanswered_stop
from sleuth.training.run_folder import RunFolder, environment, write_text
from sleuth.training.served_sampling import check_served_sampling, served_policy
from sleuth.training.teacher_pass import teacher_pass
from sleuth.training.trl import SearchGRPOTrainer
from sleuth.training.watch import Watch, kept_step
from sleuth.types import SamplingParams, Trajectory

_SAME_SIGNAL = 2.0
"""Seconds within which signals count as one, where a launcher passes them on."""

TRACKERS = ("tensorboard", "wandb", "trackio")
"""What ``trainer.track`` may name."""


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """How a rollout batch becomes updates.

    Attributes:
        rollouts: in a batch. ``micro_batch``: rollouts in one pass. ``accumulate``: passes an update.
        updates: optimiser updates a batch.
        rows: rollouts that the engine asks for, which are more where these can't be dealt evenly.
    """

    rollouts: int
    micro_batch: int
    accumulate: int
    updates: int
    rows: int

    @classmethod
    def of(cls, recipe: Recipe, processes: int = 1) -> BatchPlan:
        """Passes and rollouts of each of so many processes."""
        t = recipe.trainer
        rollouts = t.prompts * t.group
        own = -(-rollouts // t.updates_per_batch // processes)
        micro = min(t.micro_batch or own, own)
        accumulate = -(-own // micro)
        return cls(
            rollouts, micro, accumulate, t.updates_per_batch, micro * accumulate * processes * t.updates_per_batch
        )

    def engine_group(self, group: int) -> int:
        """What the engine takes for the size of groups, which must divide its rows: it decides nothing."""
        return next(n for n in (group, *range(2, self.rows + 1)) if self.rows % n == 0)


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
    _objective(recipe)
    check_served_sampling(recipe, processes.count)
    if "rollback" in recipe.diagnosis.actions:
        _objective(recipe_after_rollback(recipe))
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


def _objective(recipe: Recipe) -> Objective:
    """The recipe's objective, refused where its trainer settings leave it nothing to work on."""
    t = recipe.trainer
    objective = resolve(recipe.objective, recipe.parameters, recipe.aggregation, t.kl_coefficient)
    objective.check_training(t.updates_per_batch)
    return objective


def build_trainer(
    recipe: Recipe, parts: Parts, run: RunFolder, progress: Progress, processes: Processes = Processes()
) -> SearchGRPOTrainer:
    """The engine, set up for this recipe."""
    t = recipe.trainer
    plan = BatchPlan.of(recipe, processes.count)
    gpu = torch.cuda.is_available()
    if "tensorboard" in t.track:
        os.environ.setdefault("TENSORBOARD_LOGGING_DIR", str(run.path / "tensorboard"))
    args = GRPOConfig(
        output_dir=str(run.checkpoints),
        per_device_train_batch_size=plan.micro_batch,
        gradient_accumulation_steps=plan.accumulate,
        steps_per_generation=plan.accumulate * plan.updates,
        num_generations=plan.engine_group(t.group),
        max_completion_length=recipe.limits.max_tokens,
        max_steps=t.steps * plan.updates,
        learning_rate=t.lr,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=t.warmup_steps * plan.updates,
        weight_decay=t.weight_decay,
        max_grad_norm=t.max_grad_norm,
        beta=0.0,  # the reference KL is our objective's, see SearchGRPOTrainer
        temperature=recipe.sampling.temperature,
        disable_dropout=True,
        bf16=autocast_dtype(recipe) is not None,
        use_cpu=not gpu,
        gradient_checkpointing=recipe.model_settings.gradient_checkpointing,
        logging_strategy="steps",
        logging_steps=plan.updates,
        save_strategy="no",
        report_to=t.track or "none",
        run_name=recipe.name,
        remove_unused_columns=False,
        disable_tqdm=True,
        dataloader_pin_memory=gpu,
        ddp_find_unused_parameters=False,
        ddp_timeout=int(TIMEOUT.total_seconds()),
        seed=recipe.seed,
    )
    if hasattr(parts.retriever, "prepare"):
        parts.retriever.prepare({q.corpus for q in parts.train})
    served = served_policy(recipe, run.path)
    watch = Watch(recipe, run, progress)
    objective = _objective(recipe)
    trainer = SearchGRPOTrainer(
        model=parts.model,
        tokenizer=parts.tokenizer,
        args=args,
        agent=build_agent(parts, served or build_sampler(recipe, parts.model)),
        reward=parts.reward,
        objective=objective,
        teacher=teacher_pass(recipe, parts) if objective.needs_teacher else None,
        questions=parts.train,
        params=SamplingParams(recipe.sampling.temperature, recipe.sampling.top_p, recipe.sampling.top_k),
        updates_per_batch=plan.updates,
        steps=t.steps,
        prompts=t.prompts,
        group=t.group,
        on_batch=watch.batch_rolled_out,
        processes=processes,
        max_weight=None if served is None else served.settings.max_weight,
        peft_config=_lora(recipe),
        callbacks=[watch],
    )
    from transformers import PrinterCallback

    trainer.remove_callback(PrinterCallback)
    if served is not None:
        served.policy = trainer.model
    watch.trainer = trainer
    watch.dev = lambda: dev_rollouts(recipe, parts, processes.spread(trainer.agent, trainer.model))
    return trainer


def dev_rollouts(recipe: Recipe, parts: Parts, agent: SearchAgent) -> list[Trajectory]:
    """The dev questions, answered once each with the draws that every stage of a run shares."""
    return evaluate(
        agent,
        parts.dev,
        _scoring_params(recipe, recipe.evaluation.temperature),
        seed=derive_seed(recipe.evaluation.seed, "dev"),
        batch=recipe.evaluation.batch,
    )


def _fit(trainer: SearchGRPOTrainer, run: RunFolder, resume: bool, progress: Progress) -> float:
    """Train from the latest checkpoint, or from the start; returns the seconds that the steps before it took."""
    processes = trainer.processes

    def rewound() -> tuple[int, float]:
        start = (newest_whole(run, progress.say) if resume else None) or 0
        if start and start < trainer.steps and not run.has_optimizer(start):
            raise UserError(
                f"{run.checkpoint(start)} was kept without its optimiser; it can be used, but not trained on"
            )
        run.rewind(start)
        return start, sum(r["seconds/rollout"] + r["seconds/update"] for r in run.read_metrics())

    start, earlier = processes.from_main(rewound)
    if start >= trainer.steps:
        trainer._load_from_checkpoint(str(run.checkpoint(start)))
        return earlier
    progress.start(start)
    watch = _watch(trainer)
    asked = 0.0

    def stop(signum: int, frame: Any) -> None:
        nonlocal asked
        # A launcher passes on what a terminal has sent its processes already: that is once.
        if watch.stop_requested and (processes.count == 1 or time.monotonic() - asked > _SAME_SIGNAL):
            raise KeyboardInterrupt
        watch.stop_requested, asked = True, time.monotonic()
        progress.say("stopping at the end of this batch with a checkpoint; once more to stop at once")

    previous = {s: signal.signal(s, stop) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        trainer.train(resume_from_checkpoint=str(run.checkpoint(start)) if start else None)
    finally:
        for s, handler in previous.items():
            signal.signal(s, handler)
    last = processes.from_main(lambda: run.checkpoint_steps()[-1])
    if processes.any(watch.stop_requested) and last < trainer.steps:
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


@contextmanager
def interrupts_on_sigterm() -> Iterator[None]:
    """SIGTERM outside of the training loop ends the run like Ctrl-C, with a line that says how to go on."""
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


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


def _scoring_params(recipe: Recipe, temperature: float) -> SamplingParams:
    return SamplingParams(temperature, recipe.sampling.top_p, recipe.sampling.top_k)


def _lora(recipe: Recipe) -> Any:
    settings = recipe.model_settings
    if settings.lora is None:
        return None
    from peft import LoraConfig

    return LoraConfig(
        r=settings.lora,
        lora_alpha=settings.lora_alpha or 2 * settings.lora,
        target_modules=settings.lora_targets,
        task_type="CAUSAL_LM",
    )


def score_test(
    recipe: Recipe,
    parts: Parts,
    agent: SearchAgent,
    run: RunFolder,
    when: str,
    progress: Progress,
    processes: Processes = Processes(),
) -> dict[str, list[Trajectory]]:
    """Score the test questions, sampled and (if wanted) greedy; the rollouts go to ``evaluation/``."""
    from sleuth.rollouts import read_rollouts, write_rollouts

    modes = {"sampled": recipe.evaluation.temperature}
    if recipe.evaluation.greedy and recipe.evaluation.temperature > 0:
        modes["greedy"] = 0.0
    results: dict[str, list[Trajectory]] = {}
    if not parts.test or not recipe.evaluation.enabled:
        return results
    for mode, temperature in modes.items():
        file = run.path / "evaluation" / f"{when}-{mode}.jsonl.zst"
        if when == "before" and processes.from_main(file.exists):
            results[mode] = list(read_rollouts(file))
            continue
        results[mode] = evaluate(
            agent,
            parts.test,
            _scoring_params(recipe, temperature),
            seed=recipe.evaluation.seed,
            batch=recipe.evaluation.batch,
            progress=progress.scoring(f"{when} training, {mode}", len(parts.test)),
        )
        processes.from_main(partial(write_rollouts, file, results[mode]))
    return results


def write_summary(
    recipe: Recipe,
    parts: Parts,
    run: RunFolder,
    before: dict[str, list[Trajectory]],
    after: dict[str, list[Trajectory]],
    checkpoint: Path | None,
    seconds: float,
    **facts: Any,
) -> dict[str, Any]:
    """Write ``summary.json`` and the card of the run's result.

    Args:
        before, after: the test questions' rollouts by way of sampling.
        checkpoint: the result, a folder in the run's.
        facts: what else the summary says.
    """
    records = run.read_metrics()
    summary: dict[str, Any] = {
        "recipe": recipe.name,
        "objective": recipe.objective,
        "seed": recipe.seed,
        "steps": records[-1]["step"] if records else 0,
        "checkpoint": checkpoint.relative_to(run.path).as_posix() if checkpoint is not None else None,
        "seconds": round(seconds, 1),
        "rollbacks": run.read_rollbacks(),
        "questions": len(parts.test) if recipe.evaluation.enabled else 0,
        "comparable": recipe.data.comparable,
        **facts,
    }
    scores: dict[str, dict[str, list[SetScores]]] = {}
    for mode in before:
        first, second = (
            score(before[mode], parts.reward.settings.grader),
            score(after[mode], parts.reward.settings.grader),
        )
        scores[mode] = {"before": summarise(first), "after": summarise(second)}
        summary[mode] = {when: {line.name: line.as_json() for line in lines} for when, lines in scores[mode].items()}
        summary[mode]["gain_em"] = _gain(first, second)
        if mode == "sampled":
            for when, rows in (("before", first), ("after", second)):
                em = bootstrap_interval([row.em for row in rows if row.em is not None])
                summary |= {f"em_{when}": em.mean, f"em_{when}_interval": [em.low, em.high]}
    if checkpoint is not None:
        sources = sorted({q.data_source or "questions" for q in parts.train})
        recorded = json.loads(run.environment.read_text(encoding="utf-8"))
        write_text(checkpoint / "README.md", model_card(recipe, recorded, scores, sources))
    write_text(run.summary, json.dumps(summary, indent=2, ensure_ascii=False) + "\n")
    return summary


def _gain(before: Sequence[Score], after: Sequence[Score]) -> dict[str, float]:
    """Mean EM after minus before over the questions scored both times, with its interval (questions resampled)."""
    pairs = [(b.em, a.em) for b, a in zip(before, after, strict=True) if b.em is not None and a.em is not None]
    return asdict(paired_difference([b for b, _ in pairs], [a for _, a in pairs]))
