"""What a person sees while a comparison goes: a bar in all, a line for each run in work; plain lines when piped."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from sleuth.lab.results import Result, Status


class Display:
    """A context manager around the display. No thread of its own: processes are forked while it stands.

    Args:
        steps: the runs that are to be made, by folder, with the steps that each has in all.
        done: of these, steps that are there already.
    """

    def __init__(self, steps: Mapping[str, int], done: Mapping[str, int], console: Console):
        self.console = console
        self._steps, self._done = dict(steps), dict(done)
        self._before = sum(done.values())
        self._ended = 0
        self._started = time.monotonic()
        self._live = console.is_terminal
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[facts]}"),
            console=console,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
            disable=not self._live,
        )
        self._all = self._bar.add_task("all steps", total=sum(steps.values()), completed=self._before, facts="")
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Display:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def say(self, line: str) -> None:
        """One line above the bars."""
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def update(self, running: Sequence[Result]) -> None:
        """How far the runs in work are."""
        for result in running:
            self._done[result.run] = len(result.rewards)
            if result.run not in self._tasks:
                self._tasks[result.run] = self._bar.add_task(result.label, total=self._steps[result.run], facts="")
            latest = next((reward for reward in reversed(result.rewards) if reward is not None), None)
            facts = "" if latest is None else f"reward {latest:.3f}"
            self._bar.update(self._tasks[result.run], completed=len(result.rewards), facts=facts)
        self._bar.update(self._all, completed=sum(self._done.values()), facts=self._left())
        self._bar.refresh()

    def finished(self, result: Result) -> None:
        """A run has ended, well or not."""
        self._done[result.run] = self._steps[result.run]  # of a failed one nothing is left to do either
        self._ended += 1
        if result.run in self._tasks:
            self._bar.remove_task(self._tasks.pop(result.run))
        if result.status is Status.FAILED:
            what = f"failed: {result.error}"
        else:
            final = "" if result.final is None else f"ends at {result.final:.3f}"
            what = f"collapsed at batch {result.onset}, {final}" if result.onset is not None else final
        self.say(f"{self._ended}/{len(self._steps)}  {result.label}  {what}  {self._left()}".rstrip())

    def _left(self) -> str:
        made, left = sum(self._done.values()) - self._before, sum(self._steps.values()) - sum(self._done.values())
        if made <= 0 or left <= 0:
            return ""
        return f"about {duration((time.monotonic() - self._started) / made * left)} left"


def duration(seconds: float) -> str:
    """``40 s``, ``12 min``, ``2.5 h``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"
