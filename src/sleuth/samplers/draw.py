"""Drawing one token a row from next-token logits, and the random numbers for it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from sleuth.types import SamplingParams


def uniforms(seeds: Sequence[int], count: int) -> torch.Tensor:
    """``count`` numbers in [0, 1) for each seed.

    A row depends on its seed alone, and a longer row begins with the shorter one; so a draw is the same in any batch
    and under any token limit.

    Returns:
        (len(seeds), count) float64 on the CPU.
    """
    rows = np.empty((len(seeds), count))
    for row, seed in zip(rows, seeds, strict=True):
        np.random.default_rng(seed).random(out=row)
    return torch.from_numpy(rows)


def draw(logits: torch.Tensor, uniform: torch.Tensor, params: SamplingParams) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw by inverting the cumulative distribution, so that a token is a function of its row's logits and number.

    Args:
        logits: (B, V), any float type.
        uniform: (B,) float64 in [0, 1); not read when greedy.

    Returns:
        tokens: (B,) int64.
        logprobs: (B,) float32, those of the full softmax at ``params.temperature`` (at 1 when greedy), whatever
            ``top_k`` and ``top_p`` left out; NaN for a row whose logits give no probabilities.
    """
    logits = logits.float()
    if params.temperature == 0:
        tokens = logits.argmax(-1, keepdim=True)
        return tokens.squeeze(-1), (logits.gather(-1, tokens) - logits.logsumexp(-1, keepdim=True)).squeeze(-1)
    logprobs = torch.log_softmax(logits / params.temperature if params.temperature != 1 else logits, dim=-1)
    # Summed in double precision: a float32 sum over 150,000 tokens would lose the rare ones.
    cumulative = _restrict(logprobs.exp(), params).cumsum(-1, dtype=torch.float64)
    total = cumulative[:, -1:]
    # Below the total even after rounding; and with right=True no token of probability 0 is ever hit.
    target = torch.minimum(uniform.unsqueeze(-1) * total, torch.nextafter(total, torch.zeros_like(total)))
    # Among NaN a search ends behind the last token.
    tokens = torch.searchsorted(cumulative, target, right=True).clamp_(max=logits.shape[-1] - 1)
    return tokens.squeeze(-1), logprobs.gather(-1, tokens).squeeze(-1)


def _restrict(probabilities: torch.Tensor, params: SamplingParams) -> torch.Tensor:
    """Set to 0 what ``top_k`` and ``top_p`` exclude: the k likeliest, then the fewest that hold mass p of those."""
    vocabulary = probabilities.shape[-1]
    k = min(params.top_k, vocabulary) if params.top_k > 0 else vocabulary
    if k == vocabulary and params.top_p >= 1:
        return probabilities
    values, order = probabilities.topk(k, dim=-1)
    if params.top_p < 1:
        before = values.cumsum(-1, dtype=torch.float64) - values
        # The likeliest token stays even for top_p = 0.
        drop = before >= params.top_p * values.sum(-1, keepdim=True, dtype=torch.float64)
        drop[:, 0] = False
        values = values.masked_fill(drop, 0.0)
    return torch.zeros_like(probabilities).scatter_(-1, order, values)
