"""Which rollouts are shown when not all can be."""

from itertools import pairwise

from sleuth.report.selection import select
from sleuth.report.sources import spread


def test_all_are_shown_where_they_fit():
    sizes = {(1, "a"): 4, (1, "b"): 4}
    chosen = select(sizes, 8)
    assert (chosen.groups, chosen.shown, chosen.total, chosen.rule) == (frozenset(sizes), 8, 8, "")


def test_whole_groups_are_taken_as_many_of_every_step():
    sizes = {(step, f"g{i}"): 4 for step in range(1, 6) for i in range(10)}
    chosen = select(sizes, 82)
    by_step = [sum(step == at for at, _ in chosen.groups) for step in range(1, 6)]
    assert by_step == [4, 4, 4, 4, 4]
    assert (chosen.shown, chosen.total) == (80, 200)
    assert "whole groups" in chosen.rule


def test_groups_of_a_step_are_spread_over_it():
    sizes = {(1, f"{i:03d}"): 1 for i in range(100)}
    places = sorted(int(group) for _, group in select(sizes, 10).groups)
    gaps = [b - a for a, b in pairwise(places)]
    assert places[0] == 0
    assert places[-1] >= 75
    assert max(gaps) <= 16


def test_groups_that_alarms_name_come_first():
    sizes = {(step, f"g{i}"): 4 for step in (1, 2) for i in range(50)}
    chosen = select(sizes, 8, wanted=[(2, "g33"), (2, "g33"), (9, "gone")])
    assert (2, "g33") in chosen.groups
    assert chosen.shown == 8
    assert chosen.rule.startswith("the 1 groups that alarms name")


def test_a_group_that_is_too_large_is_left_out():
    assert select({(1, "a"): 50, (1, "b"): 2}, 10).groups == {(1, "b")}


def test_steps_are_spread_with_the_first_the_last_and_those_that_are_wanted():
    steps = list(range(1, 1001))
    kept = spread(steps, 64, wanted=[500, 501, 5000])
    assert len(kept) == 64
    assert kept == sorted(set(kept))
    assert {1, 1000, 500, 501} <= set(kept)
    assert max(b - a for a, b in pairwise(kept)) <= 20
    assert spread([1, 2, 3], 64) == [1, 2, 3]
