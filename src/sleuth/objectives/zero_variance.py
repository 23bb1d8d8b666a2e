"""Groups without signal: counted, left out, or their places given to copies of groups that have some.

A group whose rewards are all equal has no advantage. Left in, its tokens only make the loss smaller; left out (DAPO,
arXiv 2503.14476, §3.2), the step is a smaller one. Copies keep a step at its size without sampling anew (as WebSailor
and, after it, SSPO do, arXiv 2608.12764): the copied rollouts weigh twice or more, no new evidence comes in.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sleuth.objectives.advantages import mixed_groups


def in_mixed_groups(rewards: Tensor, groups: Tensor, valid: Tensor) -> Tensor:
    """(B,) bool: valid rollouts of groups that carry signal. Arguments as of every advantage."""
    mixed = torch.zeros_like(valid, dtype=torch.bool)
    for rows in mixed_groups(rewards, groups, valid):
        mixed[rows] = True
    return mixed


def rows_with_copies(rewards: Tensor, groups: Tensor, valid: Tensor, *, seed: int) -> Tensor:
    """Which rollout takes each place of a step when groups without signal make room for copies of mixed ones.

    Groups are copied whole, failed rollouts included, row by row in order, and only over groups of their own size. The
    mixed groups take turns in an order drawn from ``seed``, so that none is copied twice before all are copied once.

    Args:
        rewards: (B,) float. ``groups``: (B,) integer, equal numbers are rollouts of one prompt.
        valid: (B,) bool, False for failed rollouts.
        seed: of the draw; a step's own, so that a resumed run makes the same choice.

    Returns:
        (B,) long, on the device of ``groups``: a row's own number, or that of the row whose copy takes its place.
        Groups without signal keep their places where no mixed group has their size.
    """
    members: dict[int, list[int]] = {}
    for row, group in enumerate(groups.tolist()):
        members.setdefault(group, []).append(row)
    mixed = in_mixed_groups(rewards, groups, valid).tolist()
    donors: dict[int, list[list[int]]] = {}
    uniform: dict[int, list[list[int]]] = {}
    for own in members.values():
        kind = donors if any(mixed[row] for row in own) else uniform
        kind.setdefault(len(own), []).append(own)
    rows = list(range(len(mixed)))
    generator = torch.Generator().manual_seed(seed)
    for size in sorted(uniform):
        available = donors.get(size, [])
        if not available:
            continue
        order = torch.randperm(len(available), generator=generator).tolist()
        for i, replaced in enumerate(uniform[size]):
            for place, row in zip(replaced, available[order[i % len(order)]], strict=True):
                rows[place] = row
    return torch.tensor(rows, dtype=torch.long, device=groups.device)
