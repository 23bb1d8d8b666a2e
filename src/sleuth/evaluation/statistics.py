"""How sure a score is, and whether two differ: bootstrap intervals and paired tests, reproducible by seed.

Sources: Efron and Tibshirani, An Introduction to the Bootstrap (1993), chapters 13 and 16; McNemar, Psychometrika 12
(1947), in its exact form; Holm, Scandinavian Journal of Statistics 6 (1979).
"""

from __future__ import annotations

import math
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
    """The mean of the groups' means, each group weighing the same; resampled within each group, in the order of names.

    Raises:
        ValueError: no groups, or one without values.
    """
    means = macro_means(groups, seed=seed, resamples=resamples)
    mean = float(np.mean([np.mean(values) for values in groups.values()]))
    return _interval(mean, means, level, sum(len(values) for values in groups.values()))


def macro_means(groups: Mapping[str, Sequence[float]], *, seed: int = 0, resamples: int = RESAMPLES) -> np.ndarray:
    """(resamples,) the resampled values of :func:`macro_average`; raises what that raises."""
    if not groups:
        raise ValueError("no groups to average")
    rng = np.random.default_rng(seed)
    return np.mean([_resampled_means(groups[name], rng, resamples) for name in sorted(groups)], axis=0)


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


def paired_bootstrap_test(
    before: Sequence[float], after: Sequence[float], *, seed: int = 0, resamples: int = RESAMPLES
) -> float:
    """Two-sided p that pairs without any difference in their means would differ by as much as these do.

    The differences are shifted to mean 0 and resampled. Never 0: at least 1 / (resamples + 1).

    Raises:
        ValueError: no values, or not as many before as after.
    """
    if len(before) != len(after):
        raise ValueError(f"{len(before)} values before and {len(after)} after; pairs need the same questions")
    difference = np.asarray(after, dtype=float) - np.asarray(before, dtype=float)
    observed = abs(float(difference.mean())) if len(difference) else 0.0
    means = _resampled_means((difference - difference.mean()).tolist(), np.random.default_rng(seed), resamples)
    as_far = int(np.sum(np.abs(means) >= observed - 1e-12))
    return (as_far + 1) / (resamples + 1)


def mcnemar_test(only_before: int, only_after: int) -> float:
    """Exact two-sided p of McNemar's test: is it a fair coin which of two systems is right where only one is?

    Args:
        only_before, only_after: questions that only the one and only the other answers right.
    """
    n, fewer = only_before + only_after, min(only_before, only_after)
    if 2 * fewer >= n:
        return 1.0
    tail = sum(math.comb(n, i) for i in range(fewer + 1))
    return min(1.0, 2 * tail / 2**n)


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values corrected for as many tests as there are, whatever depends on what."""
    corrected = [0.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        highest = max(highest, min(1.0, p_values[index] * (len(p_values) - rank)))
        corrected[index] = highest
    return corrected


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
