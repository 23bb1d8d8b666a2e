"""Runs of a comparison side by side, each in a process of its own."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any

from sleuth.assembly import Material, gather
from sleuth.errors import RunStopped
from sleuth.lab.design import Cell
from sleuth.lab.display import Display
from sleuth.lab.folder import ComparisonFolder
from sleuth.lab.results import read_result
from sleuth.lab.worker import STOPPED, fail, train_in_process
from sleuth.question_sets import world_files
from sleuth.recipes.schema import Recipe

_LOOK = 2.0
"""Seconds between two looks at the runs in work, besides those when one ends."""

_WRITE = 60.0
"""Seconds between two writings of ``comparison.json`` while runs go on."""


def default_jobs() -> int:
    """One run a core that this process may use; one in all where there is a GPU."""
    return 1 if _on_gpu() else len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_cells(folder: ComparisonFolder, cells: Sequence[Cell], jobs: int, display: Display) -> None:
    """Train these runs, so many at a time; those that are begun go on where they were.

    A run that fails leaves its error in its folder, and the others go on. ``comparison.json`` is kept up to date.

    Raises:
        RunStopped: stopped by a signal; everything can be resumed.
    """
    if not cells:
        return
    scheduler = _Scheduler(folder, cells, jobs, display)

    def stop(signum: int, frame: Any) -> None:
        scheduler.asked_to_stop += 1

    previous = {s: signal.signal(s, stop) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        scheduler.run()
    finally:
        for s, handler in previous.items():
            signal.signal(s, handler)
    if scheduler.asked_to_stop:
        raise RunStopped(f"stopped; the same command goes on with {folder.path}")


class _Scheduler:
    """
    Attributes:
        asked_to_stop: how often; the loop acts on it.
    """

    def __init__(self, folder: ComparisonFolder, cells: Sequence[Cell], jobs: int, display: Display):
        self.folder, self.display, self.jobs = folder, display, jobs
        self.waiting = list(cells)
        self.running: dict[Any, Cell] = {}
        self.asked_to_stop = 0
        self._told_to_stop = 0
        self._written = time.monotonic()

    def run(self) -> None:
        shared = _Shared.of(self.folder, self.waiting[0])
        try:
            while self.running or (self.waiting and not self.asked_to_stop):
                while len(self.running) < self.jobs and self.waiting and not self.asked_to_stop:
                    cell = self.waiting.pop(0)
                    self.running[shared.start(self.folder, cell)] = cell
                wait([process.sentinel for process in self.running], timeout=_LOOK)
                if self.asked_to_stop > self._told_to_stop:
                    self._stop()
                for process in [p for p in self.running if p.exitcode is not None]:
                    self._ended(process)
                self.display.update([self._result(cell) for cell in self.running.values()])
                if time.monotonic() - self._written > _WRITE:
                    self._write()
        finally:
            for process in self.running:  # only after an error of ours: nothing may go on unseen
                process.kill()
                process.join()
            self.running = {}
            self._write()

    def _stop(self) -> None:
        """At the first time the runs in work finish their batch and checkpoint, at the second they end at once."""
        self._told_to_stop = self.asked_to_stop
        if self.asked_to_stop == 1:
            self.display.say("stopping at the end of the batches in work; once more to stop at once")
        for process in self.running:
            if self.asked_to_stop == 1:
                process.terminate()
            else:
                process.kill()

    def _ended(self, process: Any) -> None:
        cell = self.running.pop(process)
        process.join()
        code = process.exitcode
        process.close()
        if code == STOPPED or (code and self.asked_to_stop):
            return
        if code < 0:
            name = signal.Signals(-code).name
            memory = ", which the system sends when memory runs out" if name == "SIGKILL" else ""
            fail(self.folder.path / cell.run, f"killed by {name}{memory}; see its log.txt")
        self.display.finished(self._result(cell))

    def _result(self, cell: Cell) -> Any:
        return read_result(self.folder.path, regime=cell.regime, arm=cell.arm.name, seed=cell.seed, run=cell.run)

    def _write(self) -> None:
        self.folder.write(running={cell.run for cell in self.running.values()})
        self._written = time.monotonic()


@dataclass(frozen=True, slots=True)
class _Shared:
    """How the processes of runs are made, and what they have in common.

    On a CPU under Linux they are forked from this one after everything that is dear is loaded: the engine (ten seconds
    of a core) and the questions with their index. Elsewhere each starts afresh: a process that has seen a GPU can't be
    forked, and other systems' libraries don't bear it.

    Attributes:
        recipe: whose questions and passages they are.
    """

    context: Any
    recipe: Recipe
    material: Material | None

    @classmethod
    def of(cls, folder: ComparisonFolder, first: Cell) -> _Shared:
        recipe = folder.design.recipe_of(first)
        if sys.platform != "linux" or _on_gpu():
            if recipe.world is not None:
                world_files(recipe, folder.path)
            return cls(multiprocessing.get_context("spawn"), recipe, None)
        import sleuth.training.run  # noqa: F401 (for the processes to come)

        material = gather(recipe, folder.path)
        prepare = getattr(material.retriever, "prepare", None)
        if prepare is not None:
            prepare({question.corpus for question in material.questions.train})
        gc.collect()
        gc.freeze()  # otherwise every process would copy the pages of all objects, only to mark them
        return cls(multiprocessing.get_context("fork"), recipe, material)

    def start(self, folder: ComparisonFolder, cell: Cell) -> Any:
        """The running process of a cell."""
        recipe, run_dir = folder.design.recipe_of(cell), folder.path / cell.run
        run_dir.mkdir(parents=True, exist_ok=True)
        link = run_dir / "world"
        if recipe.world is not None and recipe.world == self.recipe.world and not link.exists():
            link.symlink_to(os.path.relpath(folder.path / "world", run_dir), target_is_directory=True)
        material = self.material if _same_material(recipe, self.recipe) else None
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        process = self.context.Process(target=train_in_process, args=(recipe, run_dir, material), name=cell.run)
        process.start()
        return process


def _same_material(a: Recipe, b: Recipe) -> bool:
    """Whether two recipes have the same questions and retriever; a split by seed is another one for each seed."""
    by_seed = a.data.test_limit is not None or (a.data.dev is None and a.world is None)
    same = all(getattr(a, key) == getattr(b, key) for key in ("world", "data", "retriever"))
    return same and (a.seed == b.seed or not by_seed)


def _on_gpu() -> bool:
    import torch

    return torch.cuda.is_available()
