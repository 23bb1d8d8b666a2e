"""The folder of a run: what is in it and where (``docs/training.md`` has the table)."""

from __future__ import annotations

import json
import platform
import shutil
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

from sleuth.errors import UserError
from sleuth.jsonl import write_atomically
from sleuth.rollouts import write_rollouts
from sleuth.types import Trajectory

VERSIONED = ["sleuth", "torch", "transformers", "trl", "accelerate", "peft", "bm25s", "numpy"]


OPTIMIZER = ("optimizer.pt", "optimizer.bin", "optimizer_0")
"""The optimiser's state in a checkpoint, under every name by which the engine takes it up again: of whole weights, of
FSDP gathered in one file, of FSDP in a folder of parts. FSDP's ``LOCAL_STATE_DICT`` has no such name: the engine would
go on without what it wrote."""

TRAINING_STATE = (*OPTIMIZER, "teacher.safetensors")
"""What only further training needs of a checkpoint, in the order in which it may be deleted: without an optimiser it is
one to be used and not to be trained on, so that nobody misses the teacher."""

DEEPSPEED = "global_step*"
"""The folder in which DeepSpeed keeps weights and optimiser together, so that it isn't :data:`TRAINING_STATE`."""


class RunFolder:
    """Paths and files of one run.

    Args:
        path: the folder; made when it isn't there.
        how_to_continue: for a message; "": the command that goes on with a run in this folder.
    """

    def __init__(self, path: Path, how_to_continue: str = ""):
        self.path = path
        self.how_to_continue = how_to_continue or f"go on with `sleuth train {path} --resume`"
        self.recipe = path / "recipe.yaml"
        self.metrics = path / "metrics.jsonl"
        self.rollouts = path / "rollouts"
        self.checkpoints = path / "checkpoints"
        self.alarms = path / "alarms.jsonl"
        self.rollbacks = path / "rollbacks"
        self.summary = path / "summary.json"
        self.environment = path / "environment.json"

    def start(self, recipe_yaml: str, environment: dict[str, Any]) -> None:
        """Begin a new run.

        Raises:
            UserError: the folder already holds a run.
        """
        self.refuse_existing()
        self.path.mkdir(parents=True, exist_ok=True)
        self.checkpoints.mkdir(exist_ok=True)
        write_text(self.environment, json.dumps(environment, indent=2, ensure_ascii=False) + "\n")
        self.write_recipe(recipe_yaml)

    def write_recipe(self, recipe_yaml: str) -> None:
        write_text(self.recipe, recipe_yaml)

    def refuse_existing(self) -> None:
        """Raises UserError if the folder already holds a run."""
        if self.recipe.exists():
            raise UserError(f"{self.path} already holds a run; continue it with --resume, or choose another -o folder")

    def log(self, record: dict[str, Any]) -> None:
        """Append one step's metrics."""
        with self.metrics.open("a", encoding="utf-8") as f:
            f.write(json.dumps(record) + "\n")

    def read_metrics(self) -> list[dict[str, Any]]:
        """All complete lines; the half line that a killed process left is not one."""
        return _complete_lines(self.metrics)

    def log_alarm(self, alarm: dict[str, Any]) -> None:
        """Append one alarm, with the number of rollbacks before it."""
        with self.alarms.open("a", encoding="utf-8") as f:
            f.write(json.dumps(alarm | {"rollbacks": len(self.read_rollbacks())}) + "\n")

    def read_alarms(self) -> list[dict[str, Any]]:
        """All alarms, in the order in which they were raised."""
        return _complete_lines(self.alarms)

    def read_rollbacks(self) -> list[dict[str, Any]]:
        """What each rollback did (``rollbacks/N/rollback.json``), in order."""
        files = sorted(self.rollbacks.glob("*/rollback.json"), key=lambda file: int(file.parent.name))
        return [json.loads(file.read_text(encoding="utf-8")) for file in files]

    def rewind(self, step: int) -> None:
        """Forget metrics, alarms and rollouts after ``step``: a resumed run writes them again.

        Alarms from before a rollback stay: their steps are in ``rollbacks/``.
        """
        write_lines(self.metrics, [r for r in self.read_metrics() if r["step"] <= step])
        if self.alarms.exists():
            before = len(self.read_rollbacks())
            kept = [a for a in self.read_alarms() if a["step"] <= step or a["rollbacks"] < before]
            write_lines(self.alarms, kept)
        for file in self.rollouts.glob("step-*.jsonl.zst"):
            if _step_of(file) > step:
                file.unlink()

    def save_rollouts(self, step: int, trajectories: Iterable[Trajectory]) -> None:
        self.rollouts.mkdir(exist_ok=True)
        write_rollouts(self.rollouts / f"step-{step:06d}.jsonl.zst", trajectories)

    def move_rollouts(self, after: int, folder: Path) -> None:
        """Move the rollouts of the steps after ``after`` to another folder."""
        folder.mkdir(parents=True, exist_ok=True)
        for file in self.rollouts.glob("step-*.jsonl.zst"):
            if _step_of(file) > after:
                file.rename(folder / file.name)

    def checkpoint(self, step: int) -> Path:
        return self.checkpoints / f"step-{step}"

    def checkpoint_steps(self) -> list[int]:
        """Steps with a whole checkpoint, ascending; one without its trainer state was not finished."""
        steps = [
            int(folder.name.removeprefix("step-"))
            for folder in self.checkpoints.glob("step-*")
            if folder.name.removeprefix("step-").isdigit() and (folder / "trainer_state.json").is_file()
        ]
        return sorted(steps)

    def has_optimizer(self, step: int) -> bool:
        """Whether a checkpoint can be trained on, by the launcher that wrote it."""
        folder = self.checkpoint(step)
        return any((folder / name).exists() for name in OPTIMIZER) or any(p.is_dir() for p in folder.glob(DEEPSPEED))

    def is_sharded(self, step: int) -> bool:
        """Whether a checkpoint's optimiser is FSDP's or DeepSpeed's."""
        folder = self.checkpoint(step)
        return self.has_optimizer(step) and not (folder / "optimizer.pt").exists()

    def drop_optimizers(self) -> None:
        """Delete :data:`TRAINING_STATE` in every checkpoint, at least two thirds of its size; the model stays.

        DeepSpeed's folder stays too: the weights may be nowhere else.
        """
        for step in self.checkpoint_steps():
            gone = self.checkpoint(step) / ".dropped"
            shutil.rmtree(gone, ignore_errors=True)  # of a process that was killed in the next lines
            for state in (self.checkpoint(step) / name for name in TRAINING_STATE):
                if state.is_dir():
                    state.rename(gone)  # at once: half a folder would be a damaged checkpoint
                    shutil.rmtree(gone)
                else:
                    state.unlink(missing_ok=True)

    def drop_checkpoints(self, keep: Iterable[int]) -> None:
        """Delete every whole checkpoint but those of the steps in ``keep``."""
        for step in set(self.checkpoint_steps()) - set(keep):
            shutil.rmtree(self.checkpoint(step))


def _step_of(rollouts: Path) -> int:
    return int(rollouts.name.removeprefix("step-").split(".")[0])


def _complete_lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    records = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return records


def write_lines(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Write a JSONL file whole or not at all."""
    write_text(path, "".join(json.dumps(row) + "\n" for row in rows))


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    with write_atomically(path) as out:
        out.write(text.encode())


def environment(**facts: Any) -> dict[str, Any]:
    """What a run depended on: versions, machine, threads, and the given facts (seed, corpus hash, prompt hash)."""
    import torch

    versions: dict[str, str | None] = {}
    for name in VERSIONED:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    return {
        "versions": versions,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        **facts,
    }
