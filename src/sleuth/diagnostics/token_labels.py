"""What each token of a batch is: its kind and its turn, as the rollout knew them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sleuth.diagnostics.names import KINDS
from sleuth.types import SpanKind, Trajectory

ANSWER = KINDS.index("answer")
"""The number of the kind ``answer`` in :func:`token_labels`."""

_NUMBER = {kind: number for number, kind in enumerate(KINDS)}
_OTHER = KINDS.index("other")


def token_labels(trajectories: Sequence[Trajectory], columns: int) -> tuple[Tensor, Tensor]:
    """Kinds and turns of the tokens, column t being ``completion_ids[t]``.

    Args:
        columns: T of the batch, at least as long as its longest completion.

    Returns:
        kinds: (B, T) int8, the kind's number in :data:`~sleuth.diagnostics.names.KINDS`; ``other`` also where no policy
            token is.
        turns: (B, T) int8, the number of the policy span from 1 (127 and all later ones: 127); 0 where no policy token
            is.
    """
    kinds = torch.full((len(trajectories), columns), _OTHER, dtype=torch.int8)
    turns = torch.zeros((len(trajectories), columns), dtype=torch.int8)
    for row, trajectory in enumerate(trajectories):
        at = -len(trajectory.prompt_ids)
        turn = 0
        for span in trajectory.spans:
            if span.kind is SpanKind.POLICY:
                turn += 1
                turns[row, at : at + len(span.ids)] = min(turn, 127)
                for part in span.parts:
                    kinds[row, at + part.start : at + part.end] = _NUMBER[part.kind.value]
            at += len(span.ids)
    return kinds, turns
