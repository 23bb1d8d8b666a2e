"""All rounds as one run: metrics with running step numbers, the result, its scores and the summary."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sleuth.assembly import Material, build_agent, build_sampler
from sleuth.rollouts import read_rollouts, write_rollouts
from sleuth.training.processes import Processes
from sleuth.training.progress import Progress
from sleuth.training.run_folder import RunFolder, write_lines
from sleuth.training.scores import score_test, write_summary
from sleuth.training.search_e1.round import Round, read_json
from sleuth.training.search_e1.stages import parts_of
from sleuth.types import Trajectory


def gather_metrics(rounds: Sequence[Round]) -> None:
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


def conclude(
    rounds: Sequence[Round], material: Material, progress: Progress, started: float, processes: Processes = Processes()
) -> dict[str, Any]:
    """Choose the result, score it, write the summary.

    Args:
        started: by ``time.monotonic``.
    """
    recipe, run = rounds[0].recipe, rounds[0].run
    result, kept = processes.from_main(lambda: _chosen(rounds))
    parts = parts_of(recipe, result, material, processes)

    def before_training() -> None:
        evaluations = rounds[0].rl.path / "evaluation"
        for file in evaluations.glob("before-*.jsonl.zst"):
            (run.path / "evaluation").mkdir(exist_ok=True)
            shutil.copyfile(file, run.path / "evaluation" / file.name)

    processes.from_main(before_training)
    agent = processes.spread(build_agent(parts, build_sampler(recipe, parts.model)), parts.model)
    before = score_test(recipe, parts, agent, run, "before", progress, processes)
    after = score_test(recipe, parts, agent, run, "after", progress, processes)

    def summary() -> dict[str, Any]:
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
            rl_steps=sum(t["rl"]["steps"] for t in told),
            distillation_updates=sum((t["distill"] or {}).get("updates", 0) for t in told),
            kept=kept,
            training_seconds=round(spent, 1),
        )

    return processes.from_main(summary)


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


@dataclass(frozen=True, slots=True)
class _Stage:
    """A policy that a stage left. ``name``: as a person is told of it; ``dev_em``: None where it was not scored."""

    name: str
    dev_em: float | None
    policy: Path


def _stages(rounds: Sequence[Round]) -> list[_Stage]:
    stages = []
    for this in rounds:
        before = " before its distillation" if this.distills else ""
        stages.append(_Stage(f"round {this.number}{before}", _rl_dev_em(this), this.rl_result))
        if this.distills:
            dev_em = (this.distilled or {}).get("dev_em")
            stages.append(_Stage(f"round {this.number}, distilled", dev_em, this.policy))
    return stages


def _chosen(rounds: Sequence[Round]) -> tuple[Path, str]:
    """The policy that is the run's result, and what a person is told of the choice: the last one, or with
    ``trainer.keep: best`` that of the stage with the best dev EM, the earliest of equals."""
    stages = _stages(rounds)
    last = stages[-1]
    if rounds[0].recipe.trainer.keep == "last":
        return last.policy, f"{last.name}: the last (trainer.keep=last)"
    scored = [stage for stage in stages if stage.dev_em is not None]
    if not scored:
        return last.policy, f"{last.name}: the last, as trainer.keep=best has no dev EM to choose by"
    kept = max(scored, key=_dev_em)
    why = f"{kept.name}: dev EM {kept.dev_em:.3f}"
    if kept is not last:
        rival = "was not scored (trainer.eval_every=0)" if last.dev_em is None else f"has {last.dev_em:.3f}"
        equal = ", and of equals the first is kept" if kept.dev_em == last.dev_em else ""
        return kept.policy, f"{why}; the last policy ({last.name}) {rival}{equal} (trainer.keep=best)"
    others = [stage for stage in scored if stage is not kept]
    if not others:
        return kept.policy, f"{why}; no other stage was scored (trainer.eval_every=0)"
    second = max(others, key=_dev_em)
    return kept.policy, f"{why}; the next best ({second.name}) has {second.dev_em:.3f} (trainer.keep=best)"


def _dev_em(stage: _Stage) -> float:
    assert stage.dev_em is not None
    return stage.dev_em


def _rl_dev_em(this: Round) -> float | None:
    kept = int(this.rl_result.name.removeprefix("step-"))
    return next((r["dev/em"] for r in this.rl.read_metrics() if r["step"] == kept and "dev/em" in r), None)


def _told(this: Round) -> dict[str, Any]:
    """A round in the summary."""
    rl, pool = read_json(this.rl.summary) or {}, this.pool.statistics() if this.pool.finished else None
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
        "pairs": read_json(this.distill / "pairs.json") if distilled is not None else None,
        "distill": distilled,
        "seconds": {
            "rl": round(sum(r["seconds/rollout"] + r["seconds/update"] for r in records), 2),
            "pool": (pool or {}).get("seconds", 0.0),
            "distill": (distilled or {}).get("seconds", 0.0),
        },
    }
