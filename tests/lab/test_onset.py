"""When a run has collapsed, by sequences worked by hand."""

import math

import pytest

from sleuth.lab.onset import collapse_onset, final_reward, last_onset, peak_reward


def test_the_onset_is_the_first_of_five_batches_below_half_of_the_earlier_peak():
    #          1    2    3    4    5    6    7    8    9
    rewards = [0.4, 0.6, 0.5, 0.4, 0.2, 0.1, 0.1, 0.0, 0.1]
    assert collapse_onset(rewards) == 5  # 0.2 to 0.1 all lie below 0.3; 0.4 doesn't


def test_four_low_batches_are_no_collapse():
    assert collapse_onset([0.6, 0.6, 0.1, 0.1, 0.1, 0.1, 0.5, 0.6]) is None


def test_exactly_half_is_not_below_half():
    assert collapse_onset([0.6, 0.3, 0.3, 0.3, 0.3, 0.3]) is None
    assert collapse_onset([0.6, 0.29, 0.29, 0.29, 0.29, 0.29]) == 2


def test_a_run_that_recovers_has_collapsed_all_the_same():
    assert collapse_onset([0.8, *[0.1] * 5, 0.9, 0.9]) == 2


def test_only_an_earlier_peak_counts():
    assert collapse_onset([*[0.2] * 6, 0.9, 0.9]) is None


def test_a_later_higher_peak_makes_the_later_fall_the_onset():
    assert collapse_onset([0.2, 0.15, 0.8, 0.7, *[0.3] * 5]) == 5


def test_a_peak_too_low_to_matter_can_not_collapse():
    assert collapse_onset([0.09, *[0.0] * 9]) is None
    assert collapse_onset([0.1, *[0.0] * 9]) == 2


def test_a_fall_in_the_last_four_batches_is_not_told():
    rewards = [0.8] * 6 + [0.0] * 4
    assert collapse_onset(rewards) is None
    assert last_onset(rewards) == 6
    assert collapse_onset([*rewards, 0.0]) == 7


@pytest.mark.parametrize("missing", [None, math.nan])
def test_batches_without_a_reward_are_skipped(missing):
    assert collapse_onset([missing, 0.8, 0.1, missing, 0.1, 0.1, 0.1, 0.1]) == 3
    assert collapse_onset([0.8, 0.1, missing, 0.1, missing, 0.1]) is None
    assert collapse_onset([0.8, missing, missing, missing, missing, missing, missing]) is None


@pytest.mark.parametrize("rewards", [[], [0.5], [None], [0.8, 0.0, 0.0, 0.0, 0.0]])
def test_too_short_a_run_has_no_onset(rewards):
    assert collapse_onset(rewards) is None


@pytest.mark.parametrize(
    ("batches", "last"),
    [(0, 0), (4, 0), (5, 1), (40, 36)],
)
def test_a_run_is_known_to_be_sound_up_to_the_last_batch_with_four_behind_it(batches, last):
    assert last_onset([0.5] * batches) == last


def test_final_and_peak_are_means_of_ten_batches():
    rewards = [0.0] * 5 + [1.0] * 10 + [0.5] * 10
    assert final_reward(rewards) == 0.5
    assert peak_reward(rewards) == 1.0
    assert peak_reward([0.0] * 10 + [1.0]) == pytest.approx(0.1)


def test_short_runs_are_averaged_whole():
    assert final_reward([0.2, 0.4]) == peak_reward([0.2, 0.4]) == pytest.approx(0.3)
    assert final_reward([0.2, None, 0.4]) == pytest.approx(0.3)
    assert final_reward([]) is None
    assert peak_reward([None]) is None
