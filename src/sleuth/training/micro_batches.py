"""How the rows of an update are dealt to its passes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


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
        rows = order[n * size : (n + 1) * size]
        taken = {k: v[rows] if isinstance(v, Tensor) else [v[i] for i in rows.tolist()] for k, v in whole.items()}
        sorted_parts.append(part | taken)
    return sorted_parts
