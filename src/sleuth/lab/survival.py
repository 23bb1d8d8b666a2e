"""Time to collapse: the Kaplan-Meier estimate of the share of runs that are still sound."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Survival:
    """A survival curve.

    Attributes:
        batches: where it changes, ascending from 0, and the last batch that was watched.
        share: of runs that have not collapsed, after each of them.
        low, high: 95 % interval (Greenwood, on the log-log scale); None where it has none: before the first collapse,
            and where no run is left.
        median: first batch by which half of the runs have collapsed; None if that never happened.
    """

    batches: Sequence[int]
    share: Sequence[float]
    low: Sequence[float | None]
    high: Sequence[float | None]
    median: int | None


def survival(runs: Sequence[tuple[int, bool]]) -> Survival:
    """The estimate from runs.

    Args:
        runs: (the batch of the onset, True), or (the last batch up to which the run is known to be sound, False).

    Raises:
        ValueError: no runs.
    """
    if not runs:
        raise ValueError("no runs to estimate survival from")
    from lifelines import KaplanMeierFitter

    fitter = KaplanMeierFitter(alpha=0.05)
    fitter.fit([batch for batch, _ in runs], [collapsed for _, collapsed in runs])
    curve, interval = fitter.survival_function_.iloc[:, 0], fitter.confidence_interval_survival_function_
    batches = [int(batch) for batch in curve.index]
    shares = [float(share) for share in curve]
    bounds = [
        [
            float(value) if 0 < share < 1 and math.isfinite(value) else None
            for value, share in zip(side, shares, strict=True)
        ]
        for side in (interval.iloc[:, 0], interval.iloc[:, 1])
    ]
    median = float(fitter.median_survival_time_)
    return Survival(batches, shares, bounds[0], bounds[1], int(median) if math.isfinite(median) else None)
