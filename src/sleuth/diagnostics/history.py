"""The records of a run so far, as series by name: what the alarms look at."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

_MAD_TO_SD = 1.4826
"""Of a normal distribution: standard deviation over median absolute deviation."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """A statistic in the run's first steps: its median, and its spread (MAD as a standard deviation)."""

    median: float
    spread: float


class History:
    """Grows by one record a step.

    Args:
        warmup: values that make a baseline.
    """

    def __init__(self, warmup: int) -> None:
        self.step = 0
        self.records = 0
        self.record: Mapping[str, Any] = {}
        self._warmup = warmup
        self._series: dict[str, list[float]] = {}
        self._baselines: dict[str, Baseline] = {}

    def add(self, record: Mapping[str, Any]) -> None:
        """Take in a step's record; what is no finite number is in no series."""
        self.record = record
        self.records += 1
        step = number(record.get("step"))
        self.step = self.step + 1 if step is None else int(step)
        for name in record:
            value = number(record[name])
            if value is not None:
                self._series.setdefault(name, []).append(value)

    def now(self, name: str) -> float | None:
        """This step's value."""
        return number(self.record.get(name))

    def tail(self, name: str, count: int) -> Sequence[float]:
        """The latest ``count`` values, or as many as there are; empty if this step has none."""
        return self._series[name][-count:] if self.now(name) is not None else ()

    def before(self, name: str) -> Sequence[float]:
        """All values before this step's."""
        series = self._series.get(name, ())
        return series[:-1] if self.now(name) is not None else series

    def baseline(self, name: str) -> Baseline | None:
        """Of the first steps that had the statistic; None while this step is still one of them."""
        if name not in self._baselines:
            first = self.before(name)[: self._warmup]
            if len(first) < self._warmup:
                return None
            middle = median(first)
            spread = _MAD_TO_SD * median(abs(x - middle) for x in first)
            self._baselines[name] = Baseline(middle, spread)
        return self._baselines[name]


def number(value: Any) -> float | None:
    """A finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def is_broken(value: Any) -> bool:
    """A number that is NaN or infinite."""
    return isinstance(value, float) and not math.isfinite(value)
