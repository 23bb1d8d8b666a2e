"""Which rollouts each pass of each process works on."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from sleuth.training.micro_batches import PADDING, at_rows, deal, joined


def _updates(dealt, updates):
    """The places of each update, over all processes."""
    passes = len(dealt[0]) // updates
    return [
        sorted(
            place
            for process in dealt
            for part in process[u * passes : (u + 1) * passes]
            for place in part
            if place != PADDING
        )
        for u in range(updates)
    ]


@given(
    per_update=st.integers(1, 12),
    updates=st.integers(1, 4),
    size=st.integers(1, 5),
    processes=st.integers(1, 5),
    seed=st.integers(0, 99),
)
def test_every_place_is_dealt_once_and_an_update_is_the_same_for_any_number_of_processes(
    per_update, updates, size, processes, seed
):
    lengths = [(7 * n) % 11 for n in range(per_update * updates)]
    dealt = deal(lengths, updates, size, processes, seed)
    assert len({len(process) for process in dealt}) == 1
    assert all(len(part) == size for process in dealt for part in process)
    of_one = _updates(deal(lengths, updates, per_update, 1, seed), updates)
    assert _updates(dealt, updates) == of_one
    assert sorted(place for update in of_one for place in update) == list(range(len(lengths)))


def test_rows_of_like_length_stand_in_one_pass_on_all_processes():
    dealt = deal([9, 1, 8, 2, 7, 3, 6, 4], updates=1, size=2, processes=2, seed=0)
    assert sorted(dealt[0][0] + dealt[1][0]) == [1, 3, 5, 7]
    assert sorted(dealt[0][1] + dealt[1][1]) == [0, 2, 4, 6]


def test_what_does_not_divide_is_padded_first():
    assert sum(place == PADDING for process in deal([1] * 5, 1, 2, 2, 0) for part in process for place in part) == 3


def test_joining_and_taking_rows_keeps_every_row_whole():
    parts = [
        {"mask": torch.tensor([[1, 1], [1, 0]]), "name": ["a", "b"], "count": torch.tensor(7)},
        {"mask": torch.tensor([[0, 0], [0, 1]]), "name": ["c", "d"], "count": torch.tensor(7)},
    ]
    out = at_rows(joined(parts), torch.tensor([3, 0]))
    assert out["name"] == ["d", "a"]
    assert out["mask"].tolist() == [[0, 1], [1, 1]]
    assert out["count"] == 7
