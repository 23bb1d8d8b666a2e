"""What the policy does, from its rollouts alone: outcomes, searches, and text that repeats itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from sleuth.types import Span, Status, Trajectory

NGRAM = 4
MIN_NGRAMS = 16
MAX_REPETITION = 0.5

_COUNTS = ("searches", "repeated_queries")
"""Counts that have a name of their own; the others are ``events/…``."""


def behaviour(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Means over a batch's rollouts; failed ones are counted and left out of everything else.

    Names are those of :mod:`sleuth.diagnostics.names`; a component of the reward goes by its own, except where that
    name is taken.
    """
    n = len(trajectories)
    metrics = {f"share/{status.value}": sum(t.status is status for t in trajectories) / max(n, 1) for status in Status}
    sound = [t for t in trajectories if not t.failed]
    if not sound:
        return metrics
    m = len(sound)
    for name in sorted({key for t in sound for key in t.rewards}):
        metrics[name] = sum(t.rewards.get(name, 0.0) for t in sound) / m
    rewards = [t.reward for t in sound if t.reward is not None]
    if rewards:
        metrics["reward"] = sum(rewards) / len(rewards)
    metrics["format"] = sum(t.format_valid for t in sound) / m
    for name in _COUNTS:
        metrics[name] = sum(t.counts.get(name, 0) for t in sound) / m
    metrics["turns"] = sum(len(t.policy_spans) for t in sound) / m
    metrics["policy_tokens"] = sum(t.policy_tokens for t in sound) / m
    metrics["tokens"] = sum(len(s.ids) for t in sound for s in t.spans) / m
    metrics["degenerate"] = float(degenerate(sound).mean())
    for name in sorted({key for t in sound for key in t.counts} - {*_COUNTS}):
        metrics[f"events/{name}"] = sum(t.counts.get(name, 0) for t in sound) / m
    return metrics


def degenerate(trajectories: Sequence[Trajectory]) -> npt.NDArray[np.bool_]:
    """(B,) whether a rollout has a turn that mostly repeats itself.

    That is a turn of at least :data:`MIN_NGRAMS` 4-grams of which more than half (:data:`MAX_REPETITION`) stood in it
    before: seq-rep-4 above 0.5 (arXiv 1908.04319, §6), taken turn by turn, since an agent may well open each turn with
    the same words. Shorter turns can't show it: one clause said twice would count.
    """
    rows = [row for row, t in enumerate(trajectories) for _ in t.policy_spans]
    repeated, ngrams = repetition([span for t in trajectories for span in t.policy_spans])
    bad = (ngrams >= MIN_NGRAMS) & (repeated > MAX_REPETITION * ngrams)
    return np.bincount(rows, weights=bad, minlength=len(trajectories)) > 0


def repetition(spans: Sequence[Span]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """How many of each span's 4-grams of token ids stood in it before, and how many it has; (N,) each."""
    lengths = np.array([len(span.ids) for span in spans], np.int64)
    ids = np.fromiter((i for span in spans for i in span.ids), np.uint64, int(lengths.sum()))
    ngrams = np.maximum(lengths - (NGRAM - 1), 0)
    if not ngrams.any():
        return np.zeros(len(spans), np.int64), ngrams
    # A 64-bit number for each 4-gram: two that differ get the same one with odds of about n² / 2⁶⁴.
    window = len(ids) - (NGRAM - 1)
    hashed = np.zeros(window, np.uint64)
    for offset in range(NGRAM):
        hashed = (hashed ^ ids[offset : offset + window]) * _MULTIPLIER
        hashed ^= hashed >> np.uint64(29)
    owner = np.repeat(np.arange(len(spans)), lengths)
    whole = owner[:window] == owner[NGRAM - 1 :]
    hashed, owner = hashed[whole], owner[:window][whole]
    order = np.lexsort((hashed, owner))
    hashed, owner = hashed[order], owner[order]
    again = (hashed[1:] == hashed[:-1]) & (owner[1:] == owner[:-1])
    return np.bincount(owner[1:][again], minlength=len(spans)), ngrams


_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
"""2⁶⁴ divided by the golden ratio, odd: multiplying by it spreads neighbouring numbers (Fibonacci hashing)."""
