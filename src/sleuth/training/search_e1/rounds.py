"""The schedule: rounds of reinforcement learning, each followed by a fresh pool, pair mining and self-distillation.

    runs/NAME/                      what every run folder has; steps are numbered through all rounds and stages
    runs/NAME/rounds/N/rl/          an ordinary run, with the recipe of this round
    runs/NAME/rounds/N/pool/        every rollout of the round's pool, and what they say together
    runs/NAME/rounds/N/distill/     the pairs, an update's metrics a line
    runs/NAME/checkpoints/step-M/   the policy at the end of a round, an ordinary model folder

Each stage leaves its result under a name that appears when it is whole, so that a killed run goes on in the stage where
it was, and every draw depends on (seed, round, row) alone, so that it goes on to the same numbers.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sleuth.agent.codec import TokenCodec
from sleuth.assembly import (
    Material,
    Parts,
    assemble,
    build_agent,
    build_protocol,
    build_sampler,
    build_tokenizer,
    build_tools,
    gather,
    prompt_hash,
)
from sleuth.errors import RunFailed, RunStopped, UserError
from sleuth.evaluation.score import evaluate, score
from sleuth.jsonl import write_jsonl
from sleuth.recipes.loader import dump_recipe, load_recipe
from sleuth.recipes.schema import Recipe
from sleuth.rollouts import read_rollouts, write_rollouts
from sleuth.seeds import derive_seed
from sleuth.training.progress import Progress
from sleuth.training.resuming import check_same_inputs, check_same_recipe, data_hash, evidence_hash
from sleuth.training.run import interrupts_on_sigterm, score_test, train, write_summary
from sleuth.training.run_folder import RunFolder, environment, write_lines, write_text
from sleuth.training.search_e1.distill import merged_model, run_stage, save_model
from sleuth.training.search_e1.pairs import mine
from sleuth.training.search_e1.pool import Pool
from sleuth.training.search_e1.views import Views, views_of
from sleuth.types import SamplingParams, Trajectory


def train_rounds(
    recipe: Recipe, run_dir: Path, *, resume: bool = False, quiet: bool = False, material: Material | None = None
) -> dict[str, Any]:
    """Run the whole schedule in ``run_dir``.

    Arguments, result and errors are those of :func:`sleuth.training.run.train`.
    """
    started = time.monotonic()
    run = RunFolder(run_dir)
    if resume:
        _check_resumable(run, recipe)
    else:
        run.refuse_existing()
    with Progress(recipe, quiet=quiet) as progress, interrupts_on_sigterm():
        material = material or gather(recipe, run_dir, say=progress.say)
        facts = _facts(recipe, material)
        if not resume:
            run.start(dump_recipe(recipe), facts)
        else:
            check_same_inputs(run, facts)
            if (done := _finished(run, recipe)) is not None:
                progress.say(f"{run_dir} is finished; raise search_e1.rounds to train on")
                return done
            run.write_recipe(dump_recipe(recipe))
    rounds: list[Round] = []
    for number in range(1, recipe.search_e1.rounds + 1):
        before = rounds[-1] if rounds else None
        rounds.append(Round(recipe, run, number, before.policy if before else None, before.last_step if before else 0))
        _train_round(rounds, material, quiet)
        gc.collect()
    with Progress(recipe, quiet=quiet) as progress, interrupts_on_sigterm():
        return _conclude(rounds, material, progress, started)


@dataclass(slots=True)
class Round:
    """One round: where its stages are and what they left.

    Attributes:
        recipe: of the whole schedule. ``number``: from 1.
        start: the policy that the round starts from; None: the recipe's model.
        first: steps of the whole run before this round.
    """

    recipe: Recipe
    run: RunFolder
    number: int
    start: Path | None
    first: int

    @property
    def folder(self) -> Path:
        return self.run.path / "rounds" / str(self.number)

    @property
    def rl(self) -> RunFolder:
        return RunFolder(self.folder / "rl")

    @property
    def pool(self) -> Pool:
        return Pool(self.folder / "pool")

    @property
    def distill(self) -> Path:
        return self.folder / "distill"

    @property
    def distills(self) -> bool:
        """Whether this round ends with a distillation."""
        return self.number < self.recipe.search_e1.rounds or self.recipe.search_e1.end_on == "distill"

    @property
    def distilled(self) -> dict[str, Any] | None:
        """What the finished distillation says of itself."""
        return _read(self.distill / "distill.json")

    @property
    def last_step(self) -> int:
        """Steps of the whole run at this round's end."""
        updates = (self.distilled or {}).get("updates", 0) if self.distills else 0
        return self.first + self.recipe.trainer.steps + updates

    @property
    def rl_result(self) -> Path:
        """The checkpoint that reinforcement learning kept."""
        return self.rl.path / (_read(self.rl.summary) or {})["checkpoint"]

    @property
    def policy(self) -> Path:
        """What the next round starts from."""
        return self.run.checkpoint(self.last_step) if self.distills else self.rl_result

    def rl_recipe(self) -> Recipe:
        """The recipe of this round's reinforcement learning; the first round's is that of a run without a schedule."""
        changes: dict[str, Any] = {"schedule": "rl", "name": f"{self.recipe.name}-round-{self.number}"}
        if self.start is not None:
            changes |= {"model": str(self.start), "seed": derive_seed(self.recipe.seed, "round", self.number) % 2**31}
        return self.recipe.model_copy(update=changes)


def _train_round(rounds: Sequence[Round], material: Material, quiet: bool) -> None:
    this = rounds[-1]
    _reinforce(this, material, quiet)
    _gather_metrics(rounds)
    if this.distills and this.distilled is None:
        with Progress(this.recipe, quiet=quiet) as progress, interrupts_on_sigterm():
            _distil(this, material, progress)
        _gather_metrics(rounds)


# Stages ---------------------------------------------------------------------------------------------------------------


def _reinforce(this: Round, material: Material, quiet: bool) -> None:
    if _read(this.rl.summary) is not None:
        return
    world, link = this.run.path / "world", this.rl.path / "world"
    if world.exists() and not link.exists():
        this.rl.path.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(world, this.rl.path), target_is_directory=True)
    with Progress(this.recipe, quiet=quiet) as progress:
        progress.say(f"round {this.number} of {this.recipe.search_e1.rounds}: reinforcement learning")
    try:
        train(this.rl_recipe(), this.rl.path, resume=this.rl.recipe.exists(), quiet=quiet, material=material)
    except (RunStopped, RunFailed) as error:
        raise type(error)(str(error).replace(str(this.rl.path), str(this.run.path))) from error
    this.rl.drop_optimizers()


def _distil(this: Round, material: Material, progress: Progress) -> None:
    recipe, settings = this.recipe, this.recipe.search_e1
    parts = _parts(recipe, this.rl_result, material)
    of = f"round {this.number} of {settings.rounds}"
    if not this.pool.finished:
        asked = min(settings.pool.questions or len(parts.train), len(parts.train))
        this.pool.draw(
            recipe,
            build_agent(parts, build_sampler(recipe, parts.model)),
            parts.reward,
            parts.train,
            round=this.number,
            step=this.first + recipe.trainer.steps,
            progress=progress.counting(f"{of}: a pool of {asked:,} questions", asked * settings.pool.rollouts),
        )
    mined = mine(this.pool.read(), settings.pairs)
    views, too_long = views_of(mined.pairs, parts.protocol, settings.distill, parts.limits.max_context)
    write_pairs(this.distill, views, mined.statistics | {"too_long": too_long})
    s = mined.statistics
    progress.say(
        f"{of}: {len(views)} pairs from {s['questions']} questions ({too_long} too long), student wrong in "
        f"{s['share_student_wrong']:.0%}, searches {s['reference_searches']:.2f} against {s['student_searches']:.2f}"
    )
    model = distil_policy(
        recipe, parts, views, this.distill, seed=derive_seed(recipe.seed, "distill", this.number), progress=progress
    )
    summary = stage_summary(this.distill, len(views))
    parts = replace(parts, model=model)
    if parts.dev and (recipe.trainer.eval_every or recipe.trainer.keep == "best"):
        summary["dev_em"] = _dev_em(recipe, parts)
    save_model(model, parts.tokenizer, this.run.checkpoint(this.first + recipe.trainer.steps + summary["updates"]))
    write_text(this.distill / "distill.json", json.dumps(summary, indent=2) + "\n")
    shutil.rmtree(this.distill / "checkpoints", ignore_errors=True)


def distil_policy(
    recipe: Recipe, parts: Parts, views: Sequence[Views], folder: Path, *, seed: int, progress: Progress
) -> Any:
    """Run the stage with a bar; without pairs the model stays as it is."""
    if not views:
        progress.say("no pairs, so that nothing is distilled; a larger pool may have some (search_e1.pool)")
        return parts.model
    total = len(views) * recipe.search_e1.distill.epochs
    advance = progress.counting(f"distilling {total:,} pairs", total)
    return run_stage(
        recipe,
        parts.model,
        parts.tokenizer,
        views,
        folder,
        seed=seed,
        progress=lambda record: advance(recipe.search_e1.distill.batch),
    )


def write_pairs(folder: Path, views: Sequence[Views], statistics: dict[str, Any]) -> None:
    """``pairs.jsonl``: which rollout learned from which, and their lengths; ``pairs.json``: all of them together."""
    folder.mkdir(parents=True, exist_ok=True)
    tokens = {
        "tokens": sum(v.tokens for v in views),
        "teacher_context": sum(len(v.teacher) + len(v.response) for v in views) / max(len(views), 1),
        "student_context": sum(len(v.student) + len(v.response) for v in views) / max(len(views), 1),
    }
    write_text(folder / "pairs.json", json.dumps(statistics | tokens, indent=2) + "\n")
    rows = [
        {
            "student": v.ids[0],
            "reference": v.ids[1],
            "tokens": v.tokens,
            "student_prompt": len(v.student),
            "teacher_prompt": len(v.teacher),
            "response": len(v.response),
        }
        for v in views
    ]
    write_jsonl(folder / "pairs.jsonl", rows)


def stage_summary(folder: Path, pairs: int) -> dict[str, Any]:
    """What the stage's updates say together."""
    records = RunFolder(folder).read_metrics()
    summary: dict[str, Any] = {"pairs": pairs, "updates": len(records)}
    if records:
        for name in ("loss", "kl", "clipped", "gain"):
            values = [r[f"distill/{name}"] for r in records]
            summary |= {f"{name}_first": values[0], f"{name}_last": values[-1]}
        summary["seconds"] = round(sum(r["seconds/update"] for r in records), 2)
    return summary


def _parts(recipe: Recipe, checkpoint: Path, material: Material) -> Parts:
    """The run's parts with the weights of a checkpoint, adapters merged."""
    of_checkpoint = recipe.model_copy(update={"model": str(checkpoint)})
    return assemble(of_checkpoint, checkpoint, material=material, model=merged_model(of_checkpoint))


def _dev_em(recipe: Recipe, parts: Parts) -> float:
    """As it is scored during reinforcement learning."""
    t = recipe.evaluation.temperature
    trajectories = evaluate(
        build_agent(parts, build_sampler(recipe, parts.model)),
        parts.dev,
        SamplingParams(t, recipe.sampling.top_p, recipe.sampling.top_k),
        seed=derive_seed(recipe.evaluation.seed, "dev"),
        batch=recipe.evaluation.batch,
    )
    sound = [row.em for row in score(trajectories, parts.reward.settings.grader) if row.em is not None]
    return sum(sound) / max(len(sound), 1)


# The whole run --------------------------------------------------------------------------------------------------------


def _gather_metrics(rounds: Sequence[Round]) -> None:
    """Metrics, alarms and rollouts of all finished stages, as those of one run. Doing it twice changes nothing."""
    run = rounds[-1].run
    write_lines(run.metrics, [record for this in rounds for record in _records(this)])
    alarms = [_moved(a, this.first) for this in rounds for a in this.rl.read_alarms()]
    if alarms:
        write_lines(run.alarms, alarms)
    for this in rounds:
        for file in sorted(this.rl.rollouts.glob("step-*.jsonl.zst")):
            step = int(file.name.removeprefix("step-").split(".")[0]) + this.first
            run.rollouts.mkdir(exist_ok=True)
            write_rollouts(run.rollouts / f"step-{step:06d}.jsonl.zst", _renumbered(file, step))
            file.unlink()


def _renumbered(file: Path, step: int) -> Iterator[Trajectory]:
    for trajectory in read_rollouts(file):
        yield replace(trajectory, step=step)


def _records(this: Round) -> Iterator[dict[str, Any]]:
    for record in this.rl.read_metrics():
        yield record | {"step": record["step"] + this.first, "round": this.number}
    summary = this.distilled
    if summary is None:
        return
    offset = this.first + this.recipe.trainer.steps
    for record in RunFolder(this.distill).read_metrics():
        dev = {"dev/em": summary["dev_em"]} if "dev_em" in summary and record["step"] == summary["updates"] else {}
        yield record | {"step": record["step"] + offset, "round": this.number} | dev


def _moved(alarm: dict[str, Any], by: int) -> dict[str, Any]:
    return alarm | {key: alarm[key] + by for key in ("step", "since") if isinstance(alarm.get(key), int)}


def _conclude(rounds: Sequence[Round], material: Material, progress: Progress, started: float) -> dict[str, Any]:
    """Choose the result, score it, write the summary."""
    recipe, run = rounds[0].recipe, rounds[0].run
    result = _result(rounds)
    parts = _parts(recipe, result, material)
    evaluations = rounds[0].rl.path / "evaluation"
    for file in evaluations.glob("before-*.jsonl.zst"):
        (run.path / "evaluation").mkdir(exist_ok=True)
        shutil.copyfile(file, run.path / "evaluation" / file.name)
    agent = build_agent(parts, build_sampler(recipe, parts.model))
    before = score_test(recipe, parts, agent, run, "before", progress)
    after = score_test(recipe, parts, agent, run, "after", progress)
    told = [_told(this) for this in rounds]
    spent = sum(sum(r[k] for k in ("rl", "pool", "distill")) for r in (t["seconds"] for t in told))
    return write_summary(
        recipe,
        parts,
        run,
        before,
        after,
        result,
        max(spent, time.monotonic() - started),
        schedule=recipe.schedule,
        rounds=told,
        training_seconds=round(spent, 1),
    )


def _result(rounds: Sequence[Round]) -> Path:
    """The last policy; with ``trainer.keep: best`` the stage's with the best dev EM, the earliest of equals."""
    if rounds[0].recipe.trainer.keep == "last":
        return rounds[-1].policy
    scored = [
        (em, path)
        for this in rounds
        for em, path in ((_rl_dev_em(this), this.rl_result), ((this.distilled or {}).get("dev_em"), this.policy))
        if em is not None
    ]
    return max(scored, key=lambda pair: pair[0])[1] if scored else rounds[-1].policy


def _rl_dev_em(this: Round) -> float | None:
    kept = int(this.rl_result.name.removeprefix("step-"))
    return next((r["dev/em"] for r in this.rl.read_metrics() if r["step"] == kept and "dev/em" in r), None)


def _told(this: Round) -> dict[str, Any]:
    """A round in the summary."""
    rl, pool = _read(this.rl.summary) or {}, this.pool.statistics() if this.pool.finished else None
    records = this.rl.read_metrics()
    distilled = this.distilled if this.distills else None
    dev_em = _rl_dev_em(this)
    return {
        "round": this.number,
        "steps": [this.first + 1, this.last_step],
        "rl": {
            "steps": len(records),
            "checkpoint": this.rl_result.relative_to(this.run.path).as_posix(),
            **{key: rl[key] for key in ("em_before", "em_after") if key in rl},
            **({} if dev_em is None else {"dev_em": dev_em}),
        },
        "pool": pool,
        "pairs": _read(this.distill / "pairs.json") if distilled is not None else None,
        "distill": distilled,
        "seconds": {
            "rl": round(sum(r["seconds/rollout"] + r["seconds/update"] for r in records), 2),
            "pool": (pool or {}).get("seconds", 0.0),
            "distill": (distilled or {}).get("seconds", 0.0),
        },
    }


# Resuming -------------------------------------------------------------------------------------------------------------


def _check_resumable(run: RunFolder, recipe: Recipe) -> None:
    check_same_recipe(run, recipe)
    recorded = load_recipe(run.recipe, check_required=False)
    if recorded.trainer.steps != recipe.trainer.steps:
        raise UserError(
            f"--resume: trainer.steps is {recipe.trainer.steps}, but the rounds of {run.path} have "
            f"{recorded.trainer.steps}; for a longer run raise search_e1.rounds"
        )


def _facts(recipe: Recipe, material: Material) -> dict[str, Any]:
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
    )


def _finished(run: RunFolder, recipe: Recipe) -> dict[str, Any] | None:
    summary = _read(run.summary)
    return summary if summary is not None and len(summary.get("rounds", [])) == recipe.search_e1.rounds else None


def _read(file: Path) -> dict[str, Any] | None:
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None
