"""Training runs that are killed (SIGKILL) at random moments and resumed, against one that was left alone.

Every life is a process of its own, forked from one that has imported everything, so that kills fall into the run and
not into imports. It does what ``sleuth train`` does, and is resumed as a user would: with ``--resume`` once the folder
holds a run, else with the first command again.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sleuth.rollouts import read_rollouts, to_dict
from sleuth.training.run_folder import RunFolder

SETTINGS = (
    "world.train={worlds: 4, questions: 40}",
    "world.dev={worlds: 1, questions: 8}",
    "world.test={worlds: 1, questions: 8}",
    "trainer.prompts=3",
    "trainer.group=4",
    "trainer.updates_per_batch=2",
    "trainer.steps=6",
    "trainer.eval_every=2",
    "trainer.save_every=1",
    "trainer.save_rollouts_every=1",
    "evaluation.greedy=false",
)
"""``laptop``, made small: six steps of two updates, a checkpoint after each."""

_POLL = 0.0005


@dataclass
class Found:
    """What the kills did.

    Attributes:
        kills: that hit a living run. ``runs``: whole runs that they were spread over.
        moments: kills by what the run was doing.
        most_lost: the most steps that were done and had to be done again.
        wrong: what differed from the unbroken run, or kept a run from going on.
    """

    kills: int = 0
    runs: int = 0
    moments: Counter[str] = field(default_factory=Counter)
    most_lost: int = 0
    wrong: list[str] = field(default_factory=list)


class Lives:
    """Processes that train in a run folder, each forked from a server that has done the imports."""

    def __init__(self, settings: Sequence[str] = SETTINGS, recipe: str = "laptop"):
        self.recipe, self.settings = recipe, list(settings)
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["benchmarks.survival.preload"])
        self._live(Path(os.devnull) / "none", "warm").join()

    def _live(self, folder: Path, what: str) -> Any:
        process = self._context.Process(target=_live, args=(self.recipe, self.settings, folder, what))
        process.start()
        return process

    def begin_or_resume(self, folder: Path) -> Any:
        """A process that trains on, as its user would have it do."""
        return self._live(folder, "resume" if (folder / "recipe.yaml").is_file() else "begin")


def _live(recipe: str, settings: list[str], folder: Path, what: str) -> None:
    from sleuth.commands.train import train
    from sleuth.errors import RunFailed, RunStopped, UserError

    if what == "warm":
        return
    log = open(folder.with_suffix(".log"), "a", buffering=1, encoding="utf-8")  # noqa: SIM115 - for the process's life
    os.dup2(log.fileno(), 1)
    os.dup2(log.fileno(), 2)
    try:
        if what == "resume":
            train(str(folder), [], output=None, resume=True)
        else:
            train(recipe, settings, output=folder, resume=False)
    except (UserError, RunFailed, RunStopped) as error:
        print(f"sleuth: {error}", file=sys.stderr)
        sys.exit(2)


def unbroken(lives: Lives, folder: Path) -> float:
    """Train without a kill; returns its seconds.

    Raises:
        RuntimeError: it didn't finish.
    """
    started = time.monotonic()
    process = lives.begin_or_resume(folder)
    process.join()
    if process.exitcode:
        raise RuntimeError(f"the unbroken run ended with {process.exitcode}: {_said(folder)}")
    return time.monotonic() - started


def kill_and_resume(
    lives: Lives,
    whole: Path,
    folder: Path,
    kills: int,
    seconds: float,
    rng: random.Random,
    *,
    aim: str | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Found:
    """Kill runs in ``folder`` until ``kills`` have hit; a run that finishes is compared and the next one begun.

    Args:
        whole: the unbroken run's folder. ``seconds``: how long it took. A life's moment is drawn evenly from the time
            that lives like it have taken of late: a machine is now faster, now slower.
        aim: None, or "checkpoint": the moments are within a few milliseconds after the next one began to be written.
    """
    found = Found()
    wanted = result(whole)
    takes = {True: seconds, False: seconds}
    while True:
        begun = (folder / "recipe.yaml").is_file()
        started = time.monotonic()
        process = lives.begin_or_resume(folder)
        if found.kills < kills:
            _wait(process, folder, takes[begun], rng, aim)
        else:
            process.join()
        if process.is_alive():
            process.kill()
            process.join()
            found.kills += 1
            found.moments[_moment(folder)] += 1
            found.most_lost = max(found.most_lost, _lost(folder))
            say(f"kill {found.kills} of {kills}: {_moment(folder)}")
            continue
        takes[begun] = (takes[begun] + time.monotonic() - started) / 2
        if process.exitcode:
            found.wrong.append(f"after {found.kills} kills a run ended with {process.exitcode}: {_said(folder)}")
        else:
            different = _differences(wanted, result(folder))
            found.wrong += [f"run {found.runs + 1}: {line}" for line in different]
            say(f"run {found.runs + 1} is finished: {len(different)} differences from the unbroken one")
        found.runs += 1
        shutil.rmtree(folder)
        if found.kills >= kills or len(found.wrong) > 20:
            return found


def _wait(process: Any, folder: Path, seconds: float, rng: random.Random, aim: str | None) -> None:
    if aim is None:
        process.join(rng.uniform(0, seconds))
        return
    skip = rng.randrange(4)  # not the first checkpoint of every life
    there = False
    while process.is_alive():
        writing = any(folder.glob("checkpoints/checkpoint-*"))
        if writing and not there:
            if not skip:
                break
            skip -= 1
        there = writing
        time.sleep(_POLL)
    process.join(rng.uniform(0, 0.04))


def _moment(folder: Path) -> str:
    """What a killed run was doing, by what it left."""
    run = RunFolder(folder)
    if not run.recipe.is_file():
        return "starting"
    if any(run.checkpoints.glob("checkpoint-*")):
        return "writing a checkpoint"
    if (folder / "evaluation" / "after-sampled.jsonl.zst").is_file():
        return "ending"
    metrics = run.read_metrics()
    if not metrics:
        return "before the first step's end"
    return "between steps' ends" if metrics[-1]["step"] in run.checkpoint_steps() else "between record and checkpoint"


def _lost(folder: Path) -> int:
    run = RunFolder(folder)
    metrics = run.read_metrics() if run.metrics.exists() else []
    done = metrics[-1]["step"] if metrics else 0
    return done - max(run.checkpoint_steps(), default=0)


def _said(folder: Path) -> str:
    log = folder.with_suffix(".log")
    return " ".join(log.read_text(encoding="utf-8").split()[-60:]) if log.is_file() else "nothing was said"


# What a run came to --------------------------------------------------------------------------------------------------


def result(folder: Path) -> dict[str, Any]:
    """Everything that a run leaves but for its times: weights and optimiser bit by bit, metrics, rollouts, scores."""
    run = RunFolder(folder)
    found: dict[str, Any] = {"checkpoints": run.checkpoint_steps()}
    for step in run.checkpoint_steps():
        folder_of_step = run.checkpoint(step)
        found[f"weights of step {step}"] = _digest(folder_of_step / "model.safetensors")
        found[f"optimiser of step {step}"] = _state_digest(folder_of_step / "optimizer.pt")
    for record in run.read_metrics():
        for name, value in record.items():
            if not name.startswith("seconds/"):
                found[f"{name} of step {record['step']}"] = value
    for file in [*run.rollouts.glob("*.zst"), *(folder / "evaluation").glob("*.zst")]:
        rows = [to_dict(t) for t in read_rollouts(file)]
        found[file.name] = hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()
    summary = json.loads(run.summary.read_text(encoding="utf-8"))
    found["summary"] = {key: value for key, value in summary.items() if key != "seconds"}
    return found


def _differences(wanted: dict[str, Any], found: dict[str, Any]) -> list[str]:
    names = sorted(wanted.keys() | found.keys())
    return [
        f"{name} is {found.get(name)}, not {wanted.get(name)}" for name in names if wanted.get(name) != found.get(name)
    ]


def _digest(file: Path) -> str:
    with file.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def _state_digest(file: Path) -> str:
    """Of an optimiser's numbers: the file itself may hold them in another order."""
    import torch

    digest = hashlib.sha256()
    state = torch.load(file, weights_only=True, map_location="cpu")
    for key in sorted(state["state"]):
        for name, value in sorted(state["state"][key].items()):
            digest.update(f"{key} {name} {value.dtype} {tuple(value.shape)}".encode())
            digest.update(value.contiguous().numpy().tobytes())
    digest.update(json.dumps(state["param_groups"], sort_keys=True, default=str).encode())
    return digest.hexdigest()
