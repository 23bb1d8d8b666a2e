"""Collapse of one run, told from its rewards alone."""

from __future__ import annotations

import math
from collections.abc import Sequence

STAYS = 5
"""Batches for which the reward must stay low."""

SHARE = 0.5
"""Of the earlier peak: below it the reward is low."""

MIN_PEAK = 0.1
"""A run whose reward never was this high had nothing to lose: half of it would be within the noise of a batch."""

WINDOW = 10
"""Batches that a final or a peak reward is the mean of."""

Reward = float | None
"""Of a batch; None or not finite where none of its rollouts could be rewarded."""


def collapse_onset(
    rewards: Sequence[Reward], *, share: float = SHARE, stays: int = STAYS, min_peak: float = MIN_PEAK
) -> int | None:
    """The first batch, counted from 1, from which on ``stays`` batches in a row are below ``share`` of the peak so far.

    The peak is the highest reward of a single batch before that one, and at least ``min_peak``. Batches without a
    reward are skipped: they are neither low nor a peak. What comes after those batches doesn't matter: a run that
    recovers has collapsed all the same.

    Returns:
        None where that never happened, also where fewer than ``stays`` batches are left to tell.
    """
    known = _known(rewards)
    peak = -math.inf
    for at, (batch, reward) in enumerate(known):
        following = known[at : at + stays]
        if peak >= min_peak and len(following) == stays and all(r < share * peak for _, r in following):
            return batch
        peak = max(peak, reward)
    return None


def last_onset(rewards: Sequence[Reward], *, stays: int = STAYS) -> int:
    """The last batch at which an onset could have been seen: up to there a run without one is known to be sound.

    0 where there are too few batches.
    """
    known = _known(rewards)
    return known[-stays][0] if len(known) >= stays else 0


def final_reward(rewards: Sequence[Reward], *, window: int = WINDOW) -> float | None:
    """Mean of the last ``window`` batches that have a reward; of all where there are fewer; None without any."""
    known = [reward for _, reward in _known(rewards)][-window:]
    return sum(known) / len(known) if known else None


def peak_reward(rewards: Sequence[Reward], *, window: int = WINDOW) -> float | None:
    """The highest mean of ``window`` batches in a row; the mean of all where there are fewer; None without any."""
    known = [reward for _, reward in _known(rewards)]
    if not known:
        return None
    size = min(window, len(known))
    return max(sum(known[i : i + size]) / size for i in range(len(known) - size + 1))


def _known(rewards: Sequence[Reward]) -> list[tuple[int, float]]:
    return [(batch, r) for batch, r in enumerate(rewards, 1) if r is not None and math.isfinite(r)]
