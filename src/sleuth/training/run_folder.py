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


class RunFolder:
    """Paths and files of one run.

    Args:
        path: the folder; made when it isn't there.
    """

    def __init__(self, path: Path):
        self.path = path
        self.recipe = path / "recipe.yaml"
        self.metrics = path / "metrics.jsonl"
        self.rollouts = path / "rollouts"
        self.checkpoints = path / "checkpoints"
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

    @property
    def how_to_continue(self) -> str:
        """For a message: the command that goes on with this run."""
        return f"go on with `sleuth train {self.path} --resume`"

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
        if not self.metrics.exists():
            return []
        records = []
        for line in self.metrics.read_text(encoding="utf-8").splitlines():
            try:
                records.append(json.loads(line))
            except json.JSONDecodeError:
                continue
        return records

    def rewind(self, step: int) -> None:
        """Forget metrics and rollouts after ``step``: a resumed run writes them again."""
        kept = [r for r in self.read_metrics() if r["step"] <= step]
        write_text(self.metrics, "".join(json.dumps(r) + "\n" for r in kept))
        for file in self.rollouts.glob("step-*.jsonl.zst"):
            if int(file.name.removeprefix("step-").split(".")[0]) > step:
                file.unlink()

    def save_rollouts(self, step: int, trajectories: Iterable[Trajectory]) -> None:
        self.rollouts.mkdir(exist_ok=True)
        write_rollouts(self.rollouts / f"step-{step:06d}.jsonl.zst", trajectories)

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

    def drop_checkpoints(self, keep: Iterable[int]) -> None:
        """Delete every whole checkpoint but those of the steps in ``keep``."""
        for step in set(self.checkpoint_steps()) - set(keep):
            shutil.rmtree(self.checkpoint(step))


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
