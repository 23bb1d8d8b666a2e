"""Exact tests of collapse counts: does an arm collapse less often than plain GRPO?

Fisher's exact test, one-sided. Its null distribution needs no guess of how often runs collapse, it holds at any number
of runs, and what a number of seeds can show at best is known beforehand. Unconditional tests (Barnard, Boschloo) give
smaller p-values at such sizes; with a handful of runs we take the cautious one. One-sided, since the question is asked
before the runs: a cure is there to prevent collapses. Holm's correction for several arms against the same GRPO needs no
independence, and the arms share it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

LEVEL = 0.05
"""Of a test."""


@dataclass(frozen=True, slots=True)
class CollapseTest:
    """One test of "fewer collapses than GRPO".

    Attributes:
        p: one-sided. ``p_corrected``: after Holm's correction over ``tested`` arms.
        smallest: the p that no collapse at all would have given, uncorrected: what these numbers of runs can show.
    """

    p: float
    smallest: float
    p_corrected: float
    tested: int = 1

    @property
    def decided(self) -> bool:
        """Fewer collapses than GRPO's, at :data:`LEVEL`."""
        return self.p_corrected <= LEVEL

    @property
    def decidable(self) -> bool:
        """Whether an arm without any collapse could have been told from GRPO, all ``tested`` arms corrected for."""
        return self.smallest * self.tested <= LEVEL


def fewer_collapses(collapsed: int, n: int, grpo_collapsed: int, grpo_n: int) -> CollapseTest:
    """Fisher's exact test that an arm's runs collapse less often than GRPO's.

    Args:
        collapsed: of the arm's ``n`` runs. ``grpo_collapsed``: of GRPO's ``grpo_n``. Both have runs.
    """
    p = _fisher(collapsed, n, grpo_collapsed, grpo_n)
    return CollapseTest(p, _fisher(0, n, grpo_collapsed, grpo_n), p)


def corrected(tests: Mapping[str, CollapseTest]) -> dict[str, CollapseTest]:
    """The same tests with Holm's correction for all of them."""
    if not tests:
        return {}
    from statsmodels.stats.multitest import multipletests

    adjusted = multipletests([test.p for test in tests.values()], method="holm")[1]
    return {
        name: replace(test, p_corrected=round(float(p), 12), tested=len(tests))
        for (name, test), p in zip(tests.items(), adjusted, strict=True)
    }


def runs_needed(tested: int) -> int:
    """Seeds that can tell an arm from a GRPO that always collapses, corrected for ``tested`` arms."""
    return next(n for n in range(2, 100) if round(tested / math.comb(2 * n, n), 12) <= LEVEL)


def _fisher(collapsed: int, n: int, grpo_collapsed: int, grpo_n: int) -> float:
    from scipy.stats import fisher_exact

    table = [[collapsed, n - collapsed], [grpo_collapsed, grpo_n - grpo_collapsed]]
    # Rounded, since an exact 0.05 must not lie above 0.05 by a bit.
    return round(min(float(fisher_exact(table, alternative="less").pvalue), 1.0), 12)
