"""How sure a score is: percentile bootstrap intervals, reproducible by seed.

Source: Efron and Tibshirani, An Introduction to the Bootstrap (1993), chapter 13.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 10_000
_NUMBERS_AT_ONCE = 4_000_000


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean of ``n`` values and the interval that holds it at the stated level.

    With very few values, or with values that are all equal, resampling sees no spread and the interval is too narrow.
    """

    mean: float
    low: float
    high: float
    n: int


def bootstrap_interval(
    values: Sequence[float], *, level: float = 0.95, seed: int = 0, resamples: int = RESAMPLES
) -> Interval:
    """The mean of ``values`` with its percentile bootstrap interval.

    Raises:
        ValueError: no values.
    """
    means = _resampled_means(values, np.random.default_rng(seed), resamples)
    return _interval(float(np.mean(values)), means, level, len(values))


def macro_average(
    groups: Mapping[str, Sequence[float]], *, level: float = 0.95, seed: int = 0, resamples: int = RESAMPLES
) -> Interval:
    """The mean of the groups' means, each group weighing the same; resampled within each group.

    Raises:
        ValueError: no groups, or one without values.
    """
    if not groups:
        raise ValueError("no groups to average")
    rng = np.random.default_rng(seed)
    means = np.mean([_resampled_means(values, rng, resamples) for values in groups.values()], axis=0)
    mean = float(np.mean([np.mean(values) for values in groups.values()]))
    return _interval(mean, means, level, sum(len(values) for values in groups.values()))


def paired_difference(
    before: Sequence[float], after: Sequence[float], *, level: float = 0.95, seed: int = 0, resamples: int = RESAMPLES
) -> Interval:
    """Mean of ``after - before`` over the same questions in the same order; questions are resampled in pairs.

    Raises:
        ValueError: no values, or not as many before as after.
    """
    if len(before) != len(after):
        raise ValueError(f"{len(before)} values before and {len(after)} after; pairs need the same questions")
    difference = np.asarray(after, dtype=float) - np.asarray(before, dtype=float)
    return bootstrap_interval(difference.tolist(), level=level, seed=seed, resamples=resamples)


def _resampled_means(values: Sequence[float], rng: np.random.Generator, resamples: int) -> np.ndarray:
    if len(values) == 0:
        raise ValueError("no values to resample")
    # Drawing n values with replacement = drawing how often each distinct value comes up; scores have few distinct ones.
    distinct, counts = np.unique(np.asarray(values, dtype=float), return_counts=True)
    n = int(counts.sum())
    at_once = max(1, _NUMBERS_AT_ONCE // len(distinct))
    means = [
        rng.multinomial(n, counts / n, size=min(at_once, resamples - done)) @ distinct / n
        for done in range(0, resamples, at_once)
    ]
    return np.concatenate(means)


def _interval(mean: float, means: np.ndarray, level: float, n: int) -> Interval:
    tail = (1 - level) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return Interval(mean, float(low), float(high), n)
