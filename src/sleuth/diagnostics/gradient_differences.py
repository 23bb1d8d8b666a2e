"""How far the gradients of several objectives differ on the same rollouts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor

from sleuth.diagnostics.replay import Replay


@dataclass(frozen=True, slots=True)
class GradientDifference:
    """Two objectives' gradients by the new log-probs, over all policy tokens of the batch.

    Attributes:
        a, b: the objectives' names.
        cosine: of the angle between them, 1 for the same direction; None where one of them is 0 throughout.
        norm_ratio: length of b's divided by that of a's; None where a's is 0.
        sign_differs: share of tokens at which one is positive, zero or negative and the other isn't, among the tokens
            that get a gradient from at least one of the two; None where there are none.
    """

    a: str
    b: str
    cosine: float | None
    norm_ratio: float | None
    sign_differs: float | None


def gradient_differences(replays: Sequence[Replay]) -> list[GradientDifference]:
    """Every pair of these replays of the same rollouts, in their order.

    Raises:
        ValueError: they are not of the same rollouts.
    """
    gradients = [_gradient(replay) for replay in replays]
    if len({len(gradient) for gradient in gradients}) > 1:
        raise ValueError("replays of different rollouts can't be compared")
    return [
        _difference(replays[i].objective, gradients[i], replays[j].objective, gradients[j])
        for i, j in combinations(range(len(replays)), 2)
    ]


def _difference(name_a: str, a: Tensor, name_b: str, b: Tensor) -> GradientDifference:
    norm_a, norm_b = a.norm().item(), b.norm().item()
    moved = (a != 0) | (b != 0)
    return GradientDifference(
        name_a,
        name_b,
        cosine=(a / norm_a @ (b / norm_b)).item() if norm_a and norm_b else None,
        norm_ratio=norm_b / norm_a if norm_a else None,
        sign_differs=(a.sign() != b.sign())[moved].double().mean().item() if moved.any() else None,
    )


def _gradient(replay: Replay) -> Tensor:
    """(N,) of all policy tokens in file order."""
    values = [g for rollout in replay.rollouts for span in rollout.spans for g in span.grad]
    return torch.tensor(values, dtype=torch.float64)
