import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sleuth.objectives import resolve
from sleuth.objectives.advantages import grpo
from sleuth.objectives.signbalance import signbalance


def _group(size, right, dtype):
    rewards = torch.zeros(size, dtype=dtype)
    rewards[:right] = 1
    return rewards, torch.zeros(size, dtype=torch.long), torch.ones(size, dtype=torch.bool)


@pytest.mark.parametrize(("dtype", "rel"), [(torch.float64, 1e-6), (torch.float32, 1e-5)])
@pytest.mark.parametrize(
    ("size", "right", "positive", "negative", "population", "sample"),
    [
        (8, 3, 1, -0.6, (1.290994, -0.774597), (1.207615, -0.724569)),
        (16, 1, 1, -1 / 15, (3.872983, -0.258199), (3.75, -0.25)),
        (16, 8, 1, -1, (1, -1), (0.968246, -0.968246)),
        (5, 4, 1, -4, (0.5, -2), (0.447214, -1.788854)),
    ],
)
def test_the_papers_table(size, right, positive, negative, population, sample, dtype, rel):
    group = _group(size, right, dtype)
    a = signbalance(*group)
    assert a[:right].tolist() == pytest.approx([positive] * right, rel=rel)
    assert a[right:].tolist() == pytest.approx([negative] * (size - right), rel=rel)
    for ddof, (above, below) in ((0, population), (1, sample)):
        plain = grpo(*group, ddof=ddof, eps=0)
        # the table has six decimals
        assert plain[0].item() == pytest.approx(above, abs=5e-7, rel=rel)
        assert plain[-1].item() == pytest.approx(below, abs=5e-7, rel=rel)


def test_all_right_is_zero_or_with_the_switch_c():
    assert signbalance(*_group(5, 5, torch.float64)).tolist() == [0] * 5
    assert signbalance(*_group(5, 5, torch.float64), c=2.0, all_correct=2.0).tolist() == [2] * 5
    switched = resolve("signbalance", {"signbalance": {"all_correct": "c", "c": 2.0}})
    assert switched.advantages(*_group(5, 5, torch.float64)).tolist() == [2] * 5


def test_all_wrong_is_positive_zero():
    a = signbalance(*_group(5, 0, torch.float64))
    assert a.tolist() == [0] * 5
    assert not torch.signbit(a).any()


def test_a_partial_reward_is_right_only_from_the_threshold_on():
    rewards = torch.tensor([1.0, 0.9, 0.5, 0.0])
    groups, valid = torch.zeros(4, dtype=torch.long), torch.ones(4, dtype=torch.bool)
    assert signbalance(rewards, groups, valid).tolist() == pytest.approx([1, -1 / 3, -1 / 3, -1 / 3])
    assert signbalance(rewards, groups, valid, threshold=0.5).tolist() == [1, 1, 1, -3]


def test_the_wrong_side_is_bounded_only_on_request():
    assert signbalance(*_group(16, 15, torch.float64))[-1] == -15
    assert signbalance(*_group(16, 15, torch.float64), max_negative=4)[-1] == -4


def test_failed_rollouts_are_counted_on_neither_side():
    rewards, groups, valid = _group(6, 2, torch.float64)
    valid[5] = False
    assert signbalance(rewards, groups, valid).tolist() == pytest.approx([1, 1, -2 / 3, -2 / 3, -2 / 3, 0])


_REWARDS = st.lists(st.sampled_from([0.0, 0.3, 1.0]), min_size=2, max_size=16)


@given(_REWARDS)
def test_each_mixed_group_sums_to_zero(rewards):
    r = torch.tensor(rewards, dtype=torch.float64)
    a = signbalance(r, torch.zeros(len(r), dtype=torch.long), torch.ones(len(r), dtype=torch.bool))
    assert a.sum().item() == pytest.approx(0, abs=1e-12)


@given(_REWARDS, st.sampled_from(["token_mean", "seq_mean_token_mean", "sum_over_max_length"]), st.integers(0, 99))
def test_balance_holds_under_the_aggregation_in_use(rewards, aggregation, seed):
    """What a group's tokens pull up equals what they push down, in the weights of the loss."""
    r = torch.tensor(rewards, dtype=torch.float64)
    lengths = torch.randint(1, 20, r.shape, generator=torch.Generator().manual_seed(seed))
    mask = torch.arange(20) < lengths[:, None]
    settings = {"aggregation": {"max_length": 20}} if aggregation == "sum_over_max_length" else {}
    objective = resolve("signbalance", settings, aggregation)
    a = objective.advantages(r, torch.zeros(len(r), dtype=torch.long), torch.ones(len(r), dtype=torch.bool), lengths)
    from sleuth.objectives.aggregation import StepTotals

    weights = objective.aggregation.weights(mask, StepTotals.of(mask), torch.float64)
    assert (weights * mask * a[:, None]).sum().item() == pytest.approx(0, abs=1e-12)


def test_balance_over_rollouts_ignores_lengths():
    objective = resolve("signbalance", {"signbalance": {"balance": "rollouts"}})
    a = objective.advantages(*_group(8, 3, torch.float64), torch.arange(1, 9))
    assert a[-1].item() == pytest.approx(-0.6)
