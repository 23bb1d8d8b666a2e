"""Exact tests, by numbers counted by hand."""

from fractions import Fraction
from itertools import combinations
from math import comb

import pytest

from sleuth.lab.exact_tests import corrected, different_means, fewer_collapses, seeds_needed, seeds_needed_against


def test_three_runs_against_three_reach_one_in_twenty_at_best():
    test = fewer_collapses(0, 3, 3, 3)
    assert test.p == test.smallest == 0.05
    assert test.decided
    assert test.decidable


def test_the_p_is_the_share_of_ways_to_place_the_collapses():
    # 1 of 4 against 4 of 4: 5 collapses among 8 runs; at most 1 of the arm's 4 has comb(4, 1) · comb(4, 4) ways.
    assert fewer_collapses(1, 4, 4, 4).p == pytest.approx(float(Fraction(comb(4, 1) * comb(4, 4), comb(8, 5))))
    assert fewer_collapses(0, 5, 5, 5).p == pytest.approx(1 / 252)


def test_more_collapses_than_grpo_are_no_evidence():
    assert fewer_collapses(3, 3, 1, 3).p == 1.0


def test_where_grpo_survives_nothing_can_be_shown():
    test = fewer_collapses(0, 5, 0, 5)
    assert test.p == test.smallest == 1.0
    assert not test.decidable


def test_two_of_three_lost_can_not_decide():
    test = fewer_collapses(0, 3, 2, 3)
    assert test.p == pytest.approx(0.2)
    assert not test.decided
    assert not test.decidable


def test_holm_multiplies_the_smallest_by_all_and_the_next_by_one_less():
    tests = corrected({"a": fewer_collapses(0, 5, 5, 5), "b": fewer_collapses(1, 5, 5, 5)})
    assert tests["a"].p_corrected == pytest.approx(2 / 252)
    assert tests["b"].p_corrected == pytest.approx(tests["b"].p)
    assert tests["a"].tested == 2
    assert corrected({}) == {}


def test_what_is_decided_alone_may_not_be_among_many():
    many = corrected({f"arm{i}": fewer_collapses(0, 4, 4, 4) for i in range(14)})
    assert fewer_collapses(0, 4, 4, 4).decided
    assert not any(test.decided or test.decidable for test in many.values())


@pytest.mark.parametrize(("arms", "seeds"), [(1, 3), (2, 4), (14, 6)])
def test_seeds_needed(arms, seeds):
    assert seeds_needed(arms) == seeds
    assert arms / comb(2 * seeds, seeds) <= 0.05 < arms / comb(2 * seeds - 2, seeds - 1)


def test_final_rewards_that_do_not_overlap_have_the_smallest_p_of_a_permutation_test():
    # Of the comb(6, 3) = 20 ways to deal six runs out, two are as far apart: this one and its mirror image.
    test = different_means([0.5, 0.6, 0.7], [0.1, 0.2, 0.3])
    assert test.p == test.smallest == 0.1
    assert not test.decidable


def test_every_way_to_deal_out_the_runs_is_counted():
    # The six pairs of {1, 2, 4, 5} sum to 3, 5, 6, 6, 7 and 9; but for the two sixes all are as far from 6 as 1 + 4 is.
    assert different_means([1, 4], [2, 5]).p == pytest.approx(4 / 6)
    as_far = sum(abs(sum(three) - 10.5) >= 1.5 for three in combinations([1, 2, 6, 3, 4, 5], 3))
    assert different_means([1, 2, 6], [3, 4, 5]).p == pytest.approx(as_far / 20)


def test_more_runs_of_grpo_alone_help():
    few, many = [0.1, 0.2, 0.15, 0.12, 0.18], [0.1, 0.2, 0.15, 0.12, 0.18, 0.11, 0.13, 0.14, 0.16, 0.17]
    cure = [0.5, 0.6, 0.55, 0.52, 0.58]
    assert different_means(cure, few).p == pytest.approx(2 / 252)
    assert different_means(cure, many).p == pytest.approx(2 / 3003)


def test_equal_runs_do_not_differ_and_single_runs_can_not():
    assert different_means([0.3, 0.3], [0.3, 0.3]).p == 1.0
    assert different_means([0.9], [0.1, 0.1, 0.1]).p == 1.0


def test_two_sided_tests_need_more_seeds():
    assert [seeds_needed(arms, sides=2) for arms in (1, 14)] == [4, 6]


def test_seeds_needed_against_the_runs_that_are_there():
    # Six of eight lost: no collapse in n runs has p = comb(8, 6) / comb(8 + n, 6).
    n = seeds_needed_against(8, 14, grpo_collapsed=6)
    assert n == 8
    assert 14 * comb(8, 6) / comb(8 + n, 6) <= 0.05 < 14 * comb(8, 6) / comb(7 + n, 6)
    assert fewer_collapses(0, n, 6, 8).p == pytest.approx(comb(8, 6) / comb(8 + n, 6))
    assert seeds_needed_against(3, 14, grpo_collapsed=1) is None


def test_seeds_needed_for_final_rewards_against_the_runs_that_are_there():
    n = seeds_needed_against(3, 14)
    assert 28 / comb(3 + n, 3) <= 0.05 < 28 / comb(2 + n, 3)
