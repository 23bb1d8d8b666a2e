"""Runs systems on questions into a folder: whatever is answered stays, and the same call goes on from there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sleuth.errors import RunFailed
from sleuth.evaluation.folder import EvaluationFolder
from sleuth.evaluation.systems import System, Task
from sleuth.seeds import derive_seed
from sleuth.types import Question, SamplingParams, Trajectory

_ENOUGH_TO_TELL = 20
"""Answers, before a share of failed ones stops a run."""


@dataclass(frozen=True, slots=True)
class SystemRun:
    """A system and how it is sampled. ``prompt``: hash of what it shows the model; ``samples``: answers a question."""

    name: str
    method: str
    system: System
    params: SamplingParams
    seed: int
    samples: int
    prompt: str

    def settings(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "temperature": self.params.temperature,
            "top_p": self.params.top_p,
            "top_k": self.params.top_k,
            "seed": self.seed,
            "samples": self.samples,
            "prompt": self.prompt,
        }

    def tasks(self, questions: Sequence[Question]) -> list[Task]:
        """One for each answer. The first of a question has the draw of an evaluation with one sample."""
        return [
            Task(
                question,
                question.id if sample == 0 else f"{question.id}#{sample + 1}",
                derive_seed(self.seed, question.id) if sample == 0 else derive_seed(self.seed, question.id, sample),
            )
            for question in questions
            for sample in range(self.samples)
        ]


def run_system(
    folder: EvaluationFolder,
    run: SystemRun,
    questions: Sequence[Question],
    *,
    reward: Callable[[list[Trajectory]], None],
    progress: Callable[[int], None],
    there: Callable[[int, int], None],
    max_failed_share: float,
) -> None:
    """Get every answer that isn't there yet, or that failed before.

    Args:
        reward: fills the rewards of finished trajectories, for viewers.
        progress: told how many more answers there are, the ones of earlier calls first.
        there: told once how many answers were there already, of how many.

    Raises:
        RunFailed: more than ``max_failed_share`` of the answers failed.
    """
    journal = folder.journal(run.name)
    answered = journal.open()
    tasks = run.tasks(questions)
    todo = [task for task in tasks if task.id not in answered]
    there(len(tasks) - len(todo), len(tasks))
    progress(len(tasks) - len(todo))
    finished = failed = 0
    whole = False

    def done(trajectories: list[Trajectory]) -> None:
        nonlocal finished, failed
        reward(trajectories)
        journal.append(trajectories)
        finished += len(trajectories)
        failed += sum(t.failed for t in trajectories)
        progress(len(trajectories))
        if finished >= _ENOUGH_TO_TELL and failed > max_failed_share * finished:
            error = next((t.error for t in trajectories if t.failed), "no reason given")
            raise RunFailed(
                f"{run.name}: {failed} of {finished} answers failed ({error}); mend that and give the same command"
            )

    try:
        run.system.run(todo, run.params, done)
        whole = failed == 0
    finally:
        journal.close(whole=whole)
        folder.write_scores(run.name)
