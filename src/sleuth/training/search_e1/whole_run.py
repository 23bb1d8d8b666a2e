"""All rounds as one run: metrics with running step numbers, the result, its scores and the summary."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
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
    result = processes.from_main(lambda: _result(rounds))
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
