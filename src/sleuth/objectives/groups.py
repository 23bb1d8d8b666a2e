"""Groups of rollouts by whatever names an engine gives them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def group_numbers(index: Sequence[Any]) -> Tensor:
    """(B,) long: equal numbers for equal entries of ``index``, in order of first appearance."""
    numbers: dict[Any, int] = {}
    return torch.tensor([numbers.setdefault(key, len(numbers)) for key in index], dtype=torch.long)
