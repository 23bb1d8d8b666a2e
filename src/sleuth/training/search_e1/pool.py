"""A round's pool: the policy answers training questions several times each, and every rollout is kept."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from sleuth.agent.agent import SearchAgent
from sleuth.errors import RunFailed, RunStopped
from sleuth.recipes.schema import Recipe
from sleuth.rewards.reward import Reward
from sleuth.rollouts import read_rollouts, write_rollouts
from sleuth.seeds import derive_seed
from sleuth.training.processes import Processes
from sleuth.training.run_folder import write_lines, write_text
from sleuth.training.search_e1.pairs import searches
from sleuth.types import Question, SamplingParams, Trajectory

ROLLOUTS = "rollouts.jsonl.zst"
"""The finished pool, in its folder."""

STATISTICS = "pool.json"


class Pool:
    """The pool of one round, in a folder of its own.

    What a killed process had sampled stays: rollouts are written ``pool.batch`` at a time, and the next process samples
    the batches that are missing, to the same rollouts.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.file = folder / ROLLOUTS

    @property
    def finished(self) -> bool:
        return self.file.is_file() and (self.folder / STATISTICS).is_file()

    def read(self) -> list[Trajectory]:
        return list(read_rollouts(self.file))

    def statistics(self) -> dict[str, Any]:
        return json.loads((self.folder / STATISTICS).read_text(encoding="utf-8"))

    def draw(
        self,
        recipe: Recipe,
        agent: SearchAgent,
        reward: Reward,
        questions: Sequence[Question],
        *,
        round: int,
        step: int,
        progress: Callable[[int], None],
        processes: Processes = Processes(),
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        """Sample what is missing and finish the pool.

        Args:
            questions: of training; the settings say how many of them are asked.
            round: from 1; part of every seed.
            step: of the run; what the rollouts say that they were sampled at.
            progress: called with the number of rollouts sampled since the last call.
            processes: that answer together, each with its share of a batch where the agent is theirs
                (:meth:`~sleuth.training.processes.Processes.spread`). The main one rewards and writes.
            stop: asked behind every batch whether to end there.

        Raises:
            RunFailed: too many rollouts failed. RunStopped: as ``stop`` wanted.
        """
        s = recipe.search_e1.pool
        rows = list(_rows(questions, s.questions, s.rollouts, derive_seed(recipe.seed, "pool", round)))
        params = SamplingParams(recipe.sampling.temperature, recipe.sampling.top_p, recipe.sampling.top_k)
        parts = [self.folder / f"part-{i:05d}.jsonl.zst" for i in range(-(-len(rows) // s.batch))]
        log = self.folder / "parts.jsonl"

        def begin() -> tuple[dict[str, float], list[bool]]:
            self.folder.mkdir(parents=True, exist_ok=True)
            return _seconds(log), [part.is_file() for part in parts]

        seconds, there = processes.from_main(begin)

        def keep(part: Path, drawn: Sequence[Trajectory], started: float) -> None:
            reward(drawn)
            _refuse_failures(drawn, recipe.trainer.max_failed_share)
            seconds[part.name] = time.perf_counter() - started
            write_lines(log, [{"part": name, "seconds": value} for name, value in seconds.items()])
            write_rollouts(part, drawn)

        for number, part in enumerate(parts):
            chosen = rows[number * s.batch : (number + 1) * s.batch]
            if not there[number]:
                started = time.perf_counter()
                drawn = agent.answer(
                    [q for q, _ in chosen],
                    params,
                    seeds=[derive_seed(recipe.seed, "pool", round, q.id, k) for q, k in chosen],
                    ids=[f"{q.id}-{k}" for q, k in chosen],
                    step=step,
                )
                processes.from_main(partial(keep, part, drawn, started))
            progress(len(chosen))
            if processes.any(stop()):
                raise RunStopped(
                    f"stopped with {number * s.batch + len(chosen):,} of the pool's {len(rows):,} rollouts"
                )

        def finish() -> None:
            whole = [t for part in parts for t in read_rollouts(part)]
            write_text(self.folder / STATISTICS, json.dumps(_statistics(whole, sum(seconds.values())), indent=2) + "\n")
            write_rollouts(self.file, whole)
            for part in (*parts, log):
                part.unlink(missing_ok=True)

        processes.from_main(finish)


def _rows(questions: Sequence[Question], limit: int | None, rollouts: int, seed: int) -> Iterator[tuple[Question, int]]:
    """Each question of the pool as often as it is asked; a question's rollouts stand together."""
    chosen = range(len(questions))
    if limit is not None and limit < len(questions):
        chosen = sorted(random.Random(seed).sample(chosen, limit))  # type: ignore[assignment]
    for i in chosen:
        for k in range(rollouts):
            yield questions[i], k


def _refuse_failures(drawn: Sequence[Trajectory], most: float) -> None:
    failed = [t for t in drawn if t.failed]
    if len(failed) > most * len(drawn):
        raise RunFailed(
            f"the round's pool: {len(failed)} of {len(drawn)} rollouts failed (first: {failed[0].error}); mend it and "
            "resume the run"
        )


def _statistics(pool: Sequence[Trajectory], seconds: float) -> dict[str, Any]:
    sound = [t for t in pool if not t.failed]
    n = max(len(sound), 1)
    return {
        "rollouts": len(pool),
        "failed": len(pool) - len(sound),
        "questions": len({t.group for t in pool}),
        "em": sum(t.rewards.get("em", 0.0) for t in sound) / n,
        "searches": sum(searches(t) for t in sound) / n,
        "policy_tokens": sum(t.policy_tokens for t in sound) / n,
        "seconds": round(seconds, 2),
    }


def _seconds(log: Path) -> dict[str, float]:
    if not log.is_file():
        return {}
    rows = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    return {row["part"]: row["seconds"] for row in rows}
