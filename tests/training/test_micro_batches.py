"""Rows of an update among its passes."""

import torch

from sleuth.training.micro_batches import sorted_by_length


def test_sorting_an_update_by_length_keeps_every_row_whole():
    parts = [
        {"completion_mask": torch.tensor([[1, 1, 1], [1, 0, 0]]), "name": ["long", "short"], "count": torch.tensor(7)},
        {"completion_mask": torch.tensor([[1, 1, 0], [0, 0, 0]]), "name": ["middle", "none"], "count": torch.tensor(7)},
    ]
    out = sorted_by_length(parts)
    assert [part["name"] for part in out] == [["none", "short"], ["middle", "long"]]
    assert [part["completion_mask"].sum(-1).tolist() for part in out] == [[0, 1], [2, 3]]
    assert all(part["count"] == 7 for part in out)
