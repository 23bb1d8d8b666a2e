"""What a person sees while a run goes: a bar with reward, EM, searches and the time left; plain lines when piped."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

from sleuth.recipes.schema import Recipe

_LINES = 10
"""How many progress lines a whole run prints where there is no terminal."""


class Progress:
    """A context manager around the display.

    Args:
        quiet: show nothing.
    """

    def __init__(self, recipe: Recipe, *, quiet: bool = False):
        self.console = Console(stderr=True, quiet=quiet)
        self._steps = recipe.trainer.steps
        self._live = self.console.is_terminal and not quiet
        self._bar = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[facts]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self.console,
            disable=not self._live,
        )
        self._task: TaskID | None = None

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def say(self, line: str) -> None:
        """One line above the bar."""
        self.console.print(line, highlight=False)

    def start(self, step: int) -> None:
        """Training begins behind ``step``, or after a rollback begins there again."""
        if step:
            self.say(f"continuing after step {step}")
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._task = self._bar.add_task("training", total=self._steps, completed=step, facts="")

    def step(self, record: dict[str, Any]) -> None:
        """A step is done; ``record`` is its line in metrics.jsonl."""
        facts = "  ".join(
            f"{label} {record[key]:.3f}"
            for key, label in (("reward", "reward"), ("em", "EM"), ("searches", "searches"), ("dev/em", "dev EM"))
            if key in record
        )
        if self._task is not None:
            self._bar.update(self._task, completed=record["step"], facts=facts)
        every = max(self._steps // _LINES, 1)
        if not self._live and (record["step"] % every == 0 or record["step"] == self._steps):
            self.say(f"step {record['step']}/{self._steps}  {facts}")

    def scoring(self, description: str, total: int) -> Callable[[int], None]:
        """A bar for ``total`` questions; call the result with the number scored since the last call."""
        if not self._live:
            self.say(f"scoring {total} questions {description}")
            return lambda done: None
        return self.counting(f"scoring {description}", total)

    def counting(self, description: str, total: int) -> Callable[[int], None]:
        """A bar for ``total`` things, or one line; call the result with the number done since the last call."""
        if not self._live:
            self.say(description)
            return lambda done: None
        task = self._bar.add_task(description, total=total, facts="")

        def update(done: int) -> None:
            self._bar.update(task, advance=done)
            self._bar.update(task, visible=not self._bar.tasks[task].finished)

        return update
