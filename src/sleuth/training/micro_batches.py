"""Which rows a batch has, and how those of an update are dealt to its passes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def at_rows(batch: dict[str, Any], rows: Tensor) -> dict[str, Any]:
    """The batch with these rows, (n,) long, in their order; a row may come more than once.

    Values are (B, …) tensors, lists of B, or the same for all rows.
    """
    numbers = rows.tolist()

    def taken(value: Any) -> Any:
        if isinstance(value, Tensor) and value.dim():
            return value[rows.to(value.device)]
        return [value[i] for i in numbers] if isinstance(value, list) else value

    return {key: taken(value) for key, value in batch.items()}


def sorted_by_length(parts: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same rows in as many parts, rows of like length together, so that a pass has little padding.

    The order within an update changes nothing but rounding.

    Args:
        parts: micro-batches of one update; values are (B, …) tensors, lists of B, or the same for all.
    """
    size = len(parts[0]["completion_mask"])
    whole: dict[str, Any] = {}
    for key, value in parts[0].items():
        if isinstance(value, Tensor) and value.dim():
            whole[key] = torch.cat([part[key] for part in parts])
        elif isinstance(value, list):
            whole[key] = [x for part in parts for x in part[key]]
    order = whole["completion_mask"].sum(-1).argsort(stable=True)
    sorted_parts = []
    for n, part in enumerate(parts):
        sorted_parts.append(part | at_rows(whole, order[n * size : (n + 1) * size]))
    return sorted_parts
