import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sleuth.objectives.advantages import grpo, zero_variance_groups


def _one_group(rewards, valid=None, **kwargs):
    r = torch.tensor(rewards, dtype=torch.float64)
    v = torch.ones(len(r), dtype=torch.bool) if valid is None else torch.tensor(valid)
    return grpo(r, torch.zeros(len(r), dtype=torch.long), v, **kwargs)


def test_one_right_of_four_with_the_sample_deviation():
    # mean 1/4, squared deviations sum to 3/4, sample variance 1/4
    assert _one_group([1, 0, 0, 0], eps=0).tolist() == pytest.approx([1.5, -0.5, -0.5, -0.5])


def test_one_right_of_four_with_the_population_deviation():
    expected = [math.sqrt(3), *[-1 / math.sqrt(3)] * 3]
    assert _one_group([1, 0, 0, 0], eps=0, ddof=0).tolist() == pytest.approx(expected)


@pytest.mark.parametrize("reward", [0.0, 1.0, 2 / 3, 0.1, 0.35])
def test_equal_rewards_give_exactly_zero(reward):
    """A1"""
    assert torch.equal(_one_group([reward] * 8), torch.zeros(8, dtype=torch.float64))
    r = torch.tensor([reward] * 8)
    assert zero_variance_groups(r, torch.zeros(8), torch.ones(8, dtype=torch.bool)) == 1


def test_one_outlier_in_eight_stays_of_order_one():
    advantages = _one_group([0.35] * 7 + [-0.25])
    assert advantages.abs().max() < 3
    assert advantages[0] == pytest.approx(0.3535, abs=1e-3)


def test_groups_are_apart_even_for_the_same_question():
    """A4"""
    r = torch.tensor([1.0, 0.0, 0.0, 0.0, 1.0, 1.0])
    groups = torch.tensor([0, 0, 0, 1, 1, 1])
    both = grpo(r, groups, torch.ones(6, dtype=torch.bool))
    assert both[:3].tolist() == pytest.approx(grpo(r[:3], groups[:3], torch.ones(3, dtype=torch.bool)).tolist())
    assert both[3] < 0 < both[4]


def test_failed_rollouts_leave_the_statistics_and_get_zero():
    with_failed = _one_group([1, 0, 0, 99], valid=[True, True, True, False])
    assert with_failed[:3].tolist() == pytest.approx(_one_group([1, 0, 0]).tolist())
    assert with_failed[3] == 0


def test_a_remainder_of_one_gets_zero():
    assert _one_group([1, 0], valid=[True, False]).tolist() == [0, 0]


@given(st.lists(st.floats(-1, 1, width=32), min_size=2, max_size=12), st.randoms())
def test_order_does_not_matter(rewards, rng):
    order = list(range(len(rewards)))
    rng.shuffle(order)
    plain = _one_group(rewards)
    shuffled = _one_group([rewards[i] for i in order])
    torch.testing.assert_close(shuffled, plain[order], rtol=1e-9, atol=1e-9)
