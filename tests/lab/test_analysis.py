"""The table of a comparison."""

import pytest

from sleuth.lab.analysis import analyse, paired_finals
from sleuth.lab.results import Status

from .runs import COLLAPSED, HEALTHY, result, runs


def lines(results, regimes=("stable", "stress"), arms=("grpo", "cure")):
    return {(line.regime, line.arm): line for line in analyse(results, regimes, arms, "stable")}


def test_a_line_counts_means_and_tests_its_runs():
    table = lines(
        [
            *runs("stable", "grpo", *[[0.6] * 20] * 3),
            *runs("stress", "grpo", COLLAPSED, COLLAPSED, COLLAPSED),
            *runs("stress", "cure", HEALTHY, HEALTHY, HEALTHY),
        ]
    )
    grpo, cure = table["stress", "grpo"], table["stress", "cure"]
    assert (grpo.n, grpo.collapsed, grpo.onsets) == (3, 3, (9, 9, 9))
    assert grpo.final.mean == 0.0
    assert grpo.peak.mean == pytest.approx(0.32)  # 8 batches of 0.4 and 2 of 0
    assert grpo.fewer is None
    assert grpo.survival.median == 9
    assert (cure.collapsed, cure.fewer.p) == (0, 0.05)
    assert cure.survival.batches[-1] == 16  # 20 batches, the last 4 not to be told
    assert cure.final_against_grpo.mean == pytest.approx(0.4)
    assert cure.final_differs.p == 0.1
    assert cure.final_against_tuned.mean == pytest.approx(-0.2)
    assert cure.final_differs_from_tuned.tested == 2  # the cure and GRPO at stress
    assert table["stable", "grpo"].final_against_tuned is None


def test_an_arm_that_was_not_run_stands_there_with_none():
    line = lines(runs("stress", "grpo", HEALTHY))["stress", "cure"]
    assert (line.n, line.planned, line.collapsed) == (0, 0, 0)
    assert line.peak is line.final is line.survival is line.fewer is line.final_against_grpo is None


def test_unfinished_and_failed_runs_are_counted_apart():
    line = lines(
        [
            result("stress", "cure", 0, HEALTHY),
            result("stress", "cure", 1, COLLAPSED, Status.FAILED, "out of memory"),
            result("stress", "cure", 2, COLLAPSED, Status.RUNNING),
        ]
    )["stress", "cure"]
    assert (line.planned, line.n, line.failed, line.collapsed) == (3, 1, 1, 0)


def test_only_seeds_that_both_have_are_paired():
    grpo = runs("stress", "grpo", [0.1] * 10, [0.2] * 10, [0.9] * 10)
    cure = runs("stress", "cure", [0.3] * 10, [0.4] * 10, first=1)  # seeds 1 and 2
    difference = paired_finals(grpo, cure)
    assert difference.n == 2
    assert difference.mean == pytest.approx((0.1 - 0.5) / 2)
    assert paired_finals(grpo, runs("stress", "cure", [0.3] * 10, first=7)) is None


def test_intervals_are_of_runs_not_of_batches():
    line = lines(runs("stress", "cure", [0.2] * 20, [0.6] * 20))["stress", "cure"]
    assert (line.final.low, line.final.high, line.final.n) == (pytest.approx(0.2), pytest.approx(0.6), 2)


def test_the_correction_counts_the_arms_of_one_regime():
    arms = ("grpo", "a", "b")
    results = [
        *runs("stress", "grpo", *[COLLAPSED] * 5),
        *runs("stress", "a", *[HEALTHY] * 5),
        *runs("stress", "b", *[COLLAPSED] * 5),
        *runs("edge", "grpo", *[COLLAPSED] * 5),
        *runs("edge", "a", *[HEALTHY] * 5),
    ]
    table = lines(results, ("stress", "edge"), arms)
    assert table["stress", "a"].fewer.p_corrected == pytest.approx(2 / 252)
    assert table["edge", "a"].fewer.p_corrected == pytest.approx(1 / 252)
