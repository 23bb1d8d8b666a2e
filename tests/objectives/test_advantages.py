import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sleuth.objectives.advantages import dr_grpo, grpo, reinforce_pp, rloo, zero_variance_groups


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


TWO_GROUPS = (
    torch.tensor([1.0, 0.0, 0.0, 0.0, 1.0, 1.0], dtype=torch.float64),
    torch.tensor([0, 0, 0, 0, 1, 1]),
    torch.ones(6, dtype=torch.bool),
)


def test_dr_grpo_only_centres():
    assert dr_grpo(*TWO_GROUPS).tolist() == pytest.approx([0.75, -0.25, -0.25, -0.25, 0, 0])


def test_rloo_compares_with_the_others():
    # 1 - 0; 0 - 1/3
    assert rloo(*TWO_GROUPS).tolist() == pytest.approx([1, -1 / 3, -1 / 3, -1 / 3, 0, 0])


def test_reinforce_pp_takes_the_batchs_statistics():
    # mean 1/2; six deviations of 1/2: variance 6/4/5
    size = 0.5 / math.sqrt(0.3)
    assert reinforce_pp(*TWO_GROUPS).tolist() == pytest.approx([size, -size, -size, -size, size, size])


def test_reinforce_pp_with_group_baselines_divides_by_the_batchs_deviation():
    # centred 3/4, -1/4 three times, 0 twice: variance (9 + 3) / 16 / 5
    std = math.sqrt(0.15)
    expected = [0.75 / std, *[-0.25 / std] * 3, 0, 0]
    assert reinforce_pp(*TWO_GROUPS, group_baseline=True).tolist() == pytest.approx(expected)


EVERY = pytest.mark.parametrize(
    "advantage", [grpo, dr_grpo, rloo, reinforce_pp, lambda *a: reinforce_pp(*a, group_baseline=True)]
)


@EVERY
@given(st.floats(-10, 10, width=32), st.integers(1, 16))
def test_equal_rewards_are_exactly_zero_for_every_advantage(advantage, reward, size):
    r = torch.full((size,), reward)
    out = advantage(r, torch.zeros(size, dtype=torch.long), torch.ones(size, dtype=torch.bool))
    assert torch.equal(out, torch.zeros(size))


@EVERY
@given(st.lists(st.floats(-1, 1, width=32), min_size=2, max_size=12), st.randoms())
def test_every_advantage_is_blind_to_order_and_to_failed_rollouts(advantage, rewards, rng):
    n = len(rewards)
    r = torch.tensor(rewards, dtype=torch.float64)
    groups = torch.tensor([i % 2 for i in range(n)])
    valid = torch.ones(n, dtype=torch.bool)
    plain = advantage(r, groups, valid)
    order = list(range(n))
    rng.shuffle(order)
    torch.testing.assert_close(advantage(r[order], groups[order], valid), plain[order], rtol=1e-9, atol=1e-9)
    more = advantage(
        torch.cat([r, r.new_tensor([99.0])]), torch.cat([groups, groups[:1]]), torch.cat([valid, ~valid[:1]])
    )
    assert more[-1] == 0
    torch.testing.assert_close(more[:-1], plain, rtol=1e-9, atol=1e-9)
