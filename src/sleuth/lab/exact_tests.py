"""Exact tests between an arm's runs and plain GRPO's: of how often they collapse, and of where they end.

Collapses: Fisher's exact test, one-sided. Its null distribution needs no guess of how often runs collapse, it holds at
any number of runs, and what a number of seeds can show at best is known beforehand. Unconditional tests (Barnard,
Boschloo) give smaller p-values at such sizes; with a handful of runs we take the cautious one. One-sided, since the
question is asked before the runs: a cure is there to prevent collapses.

Final rewards: the permutation test of the difference of means, two-sided: in how many of all ways to deal the runs out
to the two arms are the means at least as far apart? Runs of one seed share their first batch alone, so they are dealt
out freely, and arms may have different numbers of runs.

Several arms are tested against the same GRPO: Holm's correction, which needs no independence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

LEVEL = 0.05
"""Of a test."""

_ARRANGEMENTS = 200_000
"""All are looked at up to so many (ten runs against ten); of more, so many drawn ones."""


@dataclass(frozen=True, slots=True)
class ExactTest:
    """One test.

    Attributes:
        p: before, ``p_corrected``: after Holm's correction over ``tested`` arms.
        smallest: the p of the clearest result there could have been, uncorrected: what these numbers of runs can show.
    """

    p: float
    smallest: float
    p_corrected: float
    tested: int = 1

    @property
    def decided(self) -> bool:
        """The two differ, at :data:`LEVEL`."""
        return self.p_corrected <= LEVEL

    @property
    def decidable(self) -> bool:
        """Whether the clearest result would have been told, all ``tested`` arms corrected for."""
        return self.smallest * self.tested <= LEVEL


def fewer_collapses(collapsed: int, n: int, grpo_collapsed: int, grpo_n: int) -> ExactTest:
    """Whether an arm's runs collapse less often than GRPO's.

    Args:
        collapsed: of the arm's ``n`` runs. ``grpo_collapsed``: of GRPO's ``grpo_n``. Both have runs.
    """
    p = _fisher(collapsed, n, grpo_collapsed, grpo_n)
    return ExactTest(p, _fisher(0, n, grpo_collapsed, grpo_n), p)


def different_means(values: Sequence[float], grpo: Sequence[float]) -> ExactTest:
    """Whether the means of two sets of runs differ. Both have runs."""
    smallest = _exact(min(2 / math.comb(len(values) + len(grpo), len(values)), 1.0))
    if len(values) < 2 or len(grpo) < 2:
        return ExactTest(1.0, smallest, 1.0)
    import numpy as np
    from scipy.stats import permutation_test

    result = permutation_test(
        (np.asarray(values), np.asarray(grpo)),
        lambda a, b, axis: a.mean(axis=axis) - b.mean(axis=axis),
        vectorized=True,
        n_resamples=_ARRANGEMENTS,
        rng=np.random.default_rng(0),
    )
    p = _exact(result.pvalue)
    return ExactTest(p, smallest, p)


def corrected(tests: Mapping[str, ExactTest]) -> dict[str, ExactTest]:
    """The same tests with Holm's correction for all of them."""
    if not tests:
        return {}
    from statsmodels.stats.multitest import multipletests

    adjusted = multipletests([test.p for test in tests.values()], method="holm")[1]
    return {
        name: replace(test, p_corrected=_exact(p), tested=len(tests))
        for (name, test), p in zip(tests.items(), adjusted, strict=True)
    }


def seeds_needed(tested: int, sides: int = 1) -> int:
    """Seeds of an arm and of GRPO that can decide at all, corrected for ``tested`` arms; ``sides`` of the test."""
    return next(n for n in range(2, 100) if _exact(sides * tested / math.comb(2 * n, n)) <= LEVEL)


def seeds_needed_against(grpo_n: int, tested: int, grpo_collapsed: int | None = None) -> int | None:
    """Seeds of an arm that can decide against the runs of GRPO that are there; None where fifty can't.

    Args:
        tested: arms that are corrected for.
        grpo_collapsed: of the ``grpo_n`` runs, where collapses are to decide; None: final rewards are.
    """

    def smallest(n: int) -> float:
        if grpo_collapsed is None:
            return _exact(2 / math.comb(n + grpo_n, n))
        return _fisher(0, n, grpo_collapsed, grpo_n)

    return next((n for n in range(2, 51) if _exact(smallest(n) * tested) <= LEVEL), None)


def _fisher(collapsed: int, n: int, grpo_collapsed: int, grpo_n: int) -> float:
    from scipy.stats import fisher_exact

    table = [[collapsed, n - collapsed], [grpo_collapsed, grpo_n - grpo_collapsed]]
    return _exact(fisher_exact(table, alternative="less").pvalue)


def _exact(p: float) -> float:
    """Rounded, since an exact 0.05 must not lie above 0.05 by a bit."""
    return round(min(float(p), 1.0), 12)
