"""What came out of each run of a comparison, read from its run folder."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from sleuth.lab.onset import Reward, collapse_onset, final_reward, last_onset, peak_reward
from sleuth.training.run_folder import RunFolder

ERROR = "error.txt"
"""In a run folder: the line that says why this run failed; gone when it is tried again."""


class Status(StrEnum):
    """How far a run is."""

    DONE = "done"
    FAILED = "failed"
    RUNNING = "running"
    TODO = "todo"


@dataclass(frozen=True, slots=True)
class Result:
    """One run.

    Attributes:
        run: its folder, relative to the comparison's.
        error: why it failed.
        rewards: of each batch, None where no rollout of it could be rewarded.
    """

    regime: str
    arm: str
    seed: int
    run: str
    status: Status
    error: str | None = None
    rewards: Sequence[Reward] = field(default_factory=tuple)

    @property
    def done(self) -> bool:
        return self.status is Status.DONE

    @property
    def label(self) -> str:
        """For people."""
        return f"{self.regime} {self.arm} seed {self.seed}"

    @property
    def onset(self) -> int | None:
        """First batch of the collapse, if there was one."""
        return collapse_onset(self.rewards)

    @property
    def watched(self) -> int:
        """Batches up to which the run is known to be sound; the onset's batch if it collapsed."""
        onset = self.onset
        return last_onset(self.rewards) if onset is None else onset

    @property
    def peak(self) -> float | None:
        return peak_reward(self.rewards)

    @property
    def final(self) -> float | None:
        return final_reward(self.rewards)

    def to_dict(self) -> dict[str, Any]:
        """As in ``comparison.json``."""
        return {
            "regime": self.regime,
            "arm": self.arm,
            "seed": self.seed,
            "run": self.run,
            "status": self.status.value,
            "error": self.error,
            "steps": len(self.rewards),
            "rewards": [_rounded(reward) for reward in self.rewards],
            "onset": self.onset,
            "peak": _rounded(self.peak),
            "final": _rounded(self.final),
        }

    @classmethod
    def from_dict(cls, cell: Mapping[str, Any]) -> Result:
        """What :meth:`to_dict` wrote; what follows from the rewards is worked out anew."""
        named = {key: cell[key] for key in ("regime", "arm", "seed", "run", "error")}
        return cls(status=Status(cell["status"]), rewards=tuple(cell["rewards"]), **named)


def read_result(folder: Path, *, regime: str, arm: str, seed: int, run: str, running: bool = False) -> Result:
    """The result that a run folder holds by now.

    Args:
        folder: the comparison's. ``run``: the run's, relative to it.
        running: it is in work just now.
    """
    of_run = RunFolder(folder / run)
    batches = [record for record in of_run.read_metrics() if "distill/loss" not in record]
    rewards = tuple(record.get("reward") for record in batches)
    error_file = of_run.path / ERROR
    error = error_file.read_text(encoding="utf-8").strip() if error_file.is_file() else None
    if running:
        status = Status.RUNNING
    elif error is not None:
        status = Status.FAILED
    else:
        status = Status.DONE if of_run.summary.is_file() else Status.TODO
    return Result(regime, arm, seed, run, status, error, rewards)


def _rounded(reward: Reward) -> float | None:
    return None if reward is None or not math.isfinite(reward) else round(reward, 6)
