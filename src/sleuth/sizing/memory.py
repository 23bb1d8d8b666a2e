"""Memory of one GPU: what is held all the time, and the most that an update or a rollout needs on top."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sleuth.sizing.shapes import Shape

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "auto": 2}

_TILE_TOKENS, _TILE_VOCABULARY = 4096, 32768
"""TRL's head projects so many tokens on so many words at a time, and never holds all logits."""


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """How a model is held and trained.

    Attributes:
        weights: bytes a weight. ``compute``: bytes a number in forward and backward passes.
        lora: rank of adapters that are trained instead of the weights.
        reference: a copy of the start model is held.
        checkpointing: activations are computed again in the backward pass.
        shards: GPUs over which weights, gradients and optimiser are spread; 1: each holds all.
        sampler: bytes a weight of a second copy that a server on the same GPU samples from; 0: none.
        sampler_shards: GPUs over which that copy is spread.
    """

    weights: int = 4
    compute: int = 2
    lora: int | None = None
    reference: bool = False
    checkpointing: bool = False
    shards: int = 1
    sampler: int = 0
    sampler_shards: int = 1


def held(parameters: int, shape: Shape | None, settings: MemorySettings) -> dict[str, float]:
    """Bytes that one GPU holds throughout, by what they are.

    Args:
        shape: for the size of adapters; None: unknown.
    """
    weights = parameters * settings.weights
    parts: dict[str, float] = {"weights": weights}
    if settings.lora is None:
        parts |= {"gradients": weights, "AdamW": 2 * weights}
        if settings.reference:
            parts["reference"] = weights
    else:
        adapters = (shape.lora_parameters(settings.lora) if shape is not None else 0) * settings.weights
        parts |= {"adapters": adapters, "gradients": adapters, "AdamW": 2 * adapters}
    parts = {name: size / settings.shards for name, size in parts.items()}
    if settings.sampler:
        parts["sampler's weights"] = parameters * settings.sampler / settings.sampler_shards
    return parts


def layer_activations(shape: Shape, weights: int, compute: int) -> float:
    """Bytes a token that one layer keeps for its backward pass, as transformers' layers do with fused attention.

    Each of the two norms keeps its input in 32 bits and its normalised form, and the linear layers behind it its output
    (under autocast each of the five linear layers its own copy); attention its queries, keys, values and output; the
    MLP both halves of its gate, what becomes of the first, and their product.

    Args:
        weights, compute: bytes a number; with weights of 4 and 2 in passes it is autocast.
    """
    h, q, kv, c = shape.hidden, shape.queries, shape.key_values, compute
    mixed = weights != compute
    normalised = weights
    norms = 2 * h * (4 + normalised) + (5 if mixed else 2) * h * c + 8
    if shape.head_norms:
        norms += (q + kv) * (4 + compute) + 4 * (shape.heads + shape.key_value_heads)
    attention = (2 * q + 2 * kv) * c + 4 * shape.heads
    return norms + attention + 4 * shape.inner * c


def activations(shape: Shape, tokens: float, settings: MemorySettings) -> float:
    """Bytes that a pass over ``tokens`` tokens keeps for its backward pass, with the copies that autocast makes.

    Sharded weights are gathered in the precision of the pass (:func:`gathered`) and need no copies.
    """
    layer = layer_activations(shape, settings.weights, settings.compute)
    mixed = settings.weights != settings.compute and settings.shards == 1
    if settings.checkpointing:
        # The layers' inputs, and one layer at a time.
        copies = shape.linear_parameters / shape.layers * settings.compute if mixed else 0
        return tokens * (shape.layers * shape.hidden * settings.weights + layer) + copies
    return tokens * shape.layers * layer + (shape.linear_parameters * settings.compute if mixed else 0)


def logits(shape: Shape, tokens: float, *, kernel: bool = True) -> float:
    """Bytes of the largest tile of logits and what is made of it, and of the gradient of the output matrix, 32 bits.

    Args:
        kernel: TRL's kernel works on it, as on a GPU; else torch does step by step, which was seen to hold 9 tiles.
    """
    tile = min(tokens, _TILE_TOKENS) * min(shape.vocabulary, _TILE_VOCABULARY)
    return (3 if kernel else 9) * tile * 4 + shape.vocabulary * shape.hidden * 4


def gathered(shape: Shape, settings: MemorySettings) -> float:
    """Bytes of the weights that a sharded model gathers for a pass: the embeddings, and two layers at a time."""
    if settings.shards == 1:
        return 0.0
    embeddings = shape.vocabulary * shape.hidden * (1 if shape.tied else 2)
    return (embeddings + 2 * shape.linear_parameters / shape.layers) * settings.compute


def total(parts: Mapping[str, float]) -> float:
    """Bytes."""
    return sum(parts.values())
