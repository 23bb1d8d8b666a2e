import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sleuth.errors import UserError
from sleuth.objectives import resolve
from sleuth.objectives.zero_variance import in_mixed_groups, rows_with_copies


def rows(groups, rewards, valid=None, seed=0):
    valid = torch.ones(len(groups), dtype=torch.bool) if valid is None else torch.tensor(valid)
    return rows_with_copies(torch.tensor(rewards), torch.tensor(groups), valid, seed=seed).tolist()


def test_a_group_without_signal_makes_room_for_a_whole_mixed_one():
    assert rows([0, 0, 1, 1], [1.0, 1.0, 1.0, 0.0]) == [2, 3, 2, 3]
    # rows of a group need not lie together; they are paired in order
    assert rows([0, 1, 0, 1], [1.0, 1.0, 0.0, 1.0]) == [0, 0, 2, 2]


def test_without_a_mixed_group_of_that_size_everything_stays():
    assert rows([0, 0, 1, 1], [1.0, 1.0, 0.0, 0.0]) == [0, 1, 2, 3]
    assert rows([0, 0, 1, 1, 1], [1.0, 1.0, 1.0, 0.0, 0.0]) == [0, 1, 2, 3, 4]
    assert rows([], []) == []


def test_failed_rollouts_carry_no_signal_and_are_copied_with_their_group():
    # group 0: one sound rollout left; group 1: mixed, with a failed one
    valid = [True, False, False, True, True, False]
    assert rows([0, 0, 0, 1, 1, 1], [1.0, 0.0, 0.0, 1.0, 0.0, 0.0], valid) == [3, 4, 5, 3, 4, 5]


@st.composite
def batches(draw):
    count, size = draw(st.integers(1, 8)), draw(st.integers(1, 4))
    groups = [g for g in range(count) for _ in range(size)]
    order = draw(st.permutations(range(len(groups))))
    rewards = draw(st.lists(st.sampled_from([0.0, 1.0]), min_size=len(groups), max_size=len(groups)))
    valid = draw(st.lists(st.sampled_from([True, True, False]), min_size=len(groups), max_size=len(groups)))
    return torch.tensor([groups[i] for i in order]), torch.tensor(rewards), torch.tensor(valid)


@given(batches(), st.integers(0, 2**31))
def test_copies_are_whole_groups_that_carry_signal_and_take_turns(batch, seed):
    groups, rewards, valid = batch
    taken = rows_with_copies(rewards, groups, valid, seed=seed)
    assert torch.equal(taken, rows_with_copies(rewards, groups, valid, seed=seed))
    mixed = in_mixed_groups(rewards, groups, valid)
    donors = sorted(set(groups[mixed].tolist()))
    times = dict.fromkeys(donors, 0)
    for group in groups.unique().tolist():
        places = (groups == group).nonzero()[:, 0]
        source = groups[taken[places]].unique()
        assert len(source) == 1
        if group in donors or not donors:
            assert torch.equal(taken[places], places)
        else:
            assert torch.equal(taken[places], (groups == source).nonzero()[:, 0])
            times[int(source)] += 1
    if donors:
        assert max(times.values()) - min(times.values()) <= 1


def test_the_seed_decides_who_is_copied():
    groups = [g for g in range(9) for _ in range(2)]
    rewards = [1.0, 1.0] + [1.0, 0.0] * 8
    assert len({tuple(rows(groups, rewards, seed=seed)) for seed in range(20)}) > 3


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        ("grpo", {}, "keep"),
        ("dapo", {}, "mask"),
        ("dapo", {"dapo": {"zero_variance": "copy"}}, "copy"),
        ("sspo", {}, "keep"),
        ("sspo", {"sspo": {"zero_variance": "copy"}}, "copy"),
        ("sspo+dapo", {}, "mask"),
        ("sspo+dapo", {"dapo": {"zero_variance": "keep"}}, "keep"),
        ("sspo+dapo", {"dapo": {"zero_variance": "copy"}, "sspo": {"zero_variance": "copy"}}, "copy"),
    ],
)
def test_who_decides_what_becomes_of_groups_without_signal(name, settings, expected):
    assert resolve(name, settings).zero_variance == expected


@pytest.mark.parametrize(
    "settings",
    [
        {"sspo": {"zero_variance": "copy"}},
        {"sspo": {"zero_variance": "keep"}},
        {"dapo": {}, "sspo": {"zero_variance": "copy"}},
    ],
)
def test_two_wishes_are_refused(settings):
    with pytest.raises(UserError, match=r"dapo.zero_variance=mask and sspo.zero_variance=(copy|keep) differ"):
        resolve("dapo+sspo", settings)
