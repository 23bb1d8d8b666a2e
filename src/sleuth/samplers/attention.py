"""Attention over a :class:`~sleuth.samplers.cache.KVStore`, plugged into transformers' own models.

transformers lets a caller name the attention function of a model (its attention interface, made for serving engines):
projections, rotary embedding, norms and head stay the model's own code, and only what is between them is ours. Beside
packing, that saves the copy that transformers' ``sdpa`` makes of every key and value at every step when query heads
share key heads.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel

from sleuth.errors import UserError
from sleuth.samplers.cache import KVStore
from sleuth.samplers.packing import AttentionGroup, Packing, Segment

_NAME = "sleuth_packed"

_UNSUPPORTED = {
    "softcap": "attention with capped scores",
    "s_aux": "attention sinks",
}


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    packing: Packing,
    scaling: float | None = None,
    sliding_window: int | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Attend from each packed token to its own conversation, after storing the new keys and values.

    Args:
        query: (1, heads, N, size); ``key`` and ``value`` have as many heads or a divisor of that.
        sliding_window: this layer sees so many tokens back, itself included; None: all.

    Returns:
        (1, N, heads, value size), and None for the weights.

    Raises:
        UserError: the model asks for a kind of attention that this isn't.
    """
    for option, kind in _UNSUPPORTED.items():
        if options.get(option) is not None:
            raise UserError(f"this model uses {kind}, which the transformers sampler can't do: use another engine")
    layer: int = module.layer_idx  # type: ignore[assignment]
    packing.windows[layer] = sliding_window
    keys, values = packing.write(layer, key[0].transpose(0, 1), value[0].transpose(0, 1))
    queries = query[0].transpose(0, 1)
    outputs = [_attend(group, queries, keys, values, scaling, sliding_window) for group in packing.groups]
    return (outputs[0] if len(outputs) == 1 else torch.cat(outputs)).unsqueeze(0), None


def _attend(
    group: AttentionGroup, queries: Tensor, keys: Tensor, values: Tensor, scaling: float | None, window: int | None
) -> Tensor:
    """(N, heads, size) of all queries → (n, heads, value size) of the group's n tokens."""
    first, last = group.tokens
    q = queries[first:last]
    if group.spread is not None:
        q = q[group.spread]
    rows, width = group.positions.shape
    heads, shared = q.shape[1], keys.shape[1]
    repeats = heads // shared
    # Query heads that share a key head become further queries of that head, so that no key is copied for them.
    q = q.view(rows, width, shared, repeats, -1).permute(0, 2, 3, 1, 4).reshape(rows, shared, repeats * width, -1)
    seen = slice(group.first_column(window), group.columns)
    k, v, bias = keys[group.rows, :, seen], values[group.rows, :, seen], group.bias(repeats, q.dtype, window)
    out = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scaling)
    out = out.view(rows, shared, repeats, width, -1).permute(0, 3, 1, 2, 4).reshape(rows * width, heads, -1)
    return out if group.real is None else out[group.real]


AttentionInterface.register(_NAME, packed_attention)


@contextmanager
def evaluation(model: PreTrainedModel) -> Iterator[None]:
    """Evaluation mode without gradient; afterwards every module is in the mode that it was in."""
    training = [m for m in model.modules() if m.training]
    try:
        for m in training:
            m.training = False
        # Not inference_mode: a buffer that a model makes for itself in it could never be trained through.
        with torch.no_grad():
            yield
    finally:
        for m in training:
            m.training = True


@contextmanager
def sampling_mode(model: PreTrainedModel) -> Iterator[None]:
    """:func:`evaluation` with packed attention in place of the model's own, which is back afterwards."""
    configs = {id(m.config): m.config for m in model.modules() if hasattr(m, "config")}.values()
    names = [(c, c._attn_implementation) for c in configs if hasattr(c, "_attn_implementation")]
    try:
        for config, _ in names:
            config._attn_implementation = _NAME
        with evaluation(model):
            yield
    finally:
        for config, name in names:
            config._attn_implementation = name


def packed_forward(model: PreTrainedModel, packing: Packing, keep: Tensor | None = None) -> Tensor:
    """Logits (len(keep), V) after the packed tokens that ``keep`` indexes, or after all. Only in ``sampling_mode``."""
    return model(
        input_ids=packing.tokens.unsqueeze(0),
        position_ids=packing.positions.unsqueeze(0),
        use_cache=False,
        logits_to_keep=0 if keep is None else keep,
        packing=packing,
    ).logits[0]


def check_supported(model: PreTrainedModel) -> None:
    """Refuse a model that packed attention would get wrong, by its description and by trying.

    Raises:
        UserError: it isn't a decoder-only text model with causal attention, full or in a sliding window, or its packed
            forward and its own forward differ on a few tokens.
    """
    config = model.config
    name = getattr(config, "name_or_path", "") or type(model).__name__
    layer_types = set(getattr(config, "layer_types", None) or ()) - {"full_attention", "sliding_attention"}
    ropes = _rope_types(getattr(config, "rope_parameters", None) or {})
    problem = None
    if config.is_encoder_decoder or config.get_text_config() is not config:
        problem = "isn't a decoder-only text model"
    elif layer_types:
        problem = f"has layers of type {', '.join(sorted(layer_types))}, not only full or sliding-window attention"
    elif changing := ropes & {"dynamic", "longrope"}:
        problem = f"has {changing.pop()} rotary embeddings, which change with the longest row of a batch"
    elif not getattr(model, "_supports_attention_backend", True):
        problem = "doesn't take part in transformers' attention interface"
    else:
        difference, windows = _tried(model)
        if difference > (1e-3 if model.dtype == torch.float32 else 0.1):
            problem = "gives other logits with packed attention than by itself"
        elif windows != _windows_of(config):  # a window of more tokens than were tried would not have shown
            problem = "has sliding windows that it doesn't tell the attention interface"
    if problem:
        raise UserError(f"model {name} {problem}, so the transformers sampler can't run it: use another engine")


def _rope_types(parameters: dict[str, Any]) -> set[str]:
    """Of a config's ``rope_parameters``, which are one set or one for each type of layer."""
    sets = [parameters, *(value for value in parameters.values() if isinstance(value, dict))]
    return {rope["rope_type"] for rope in sets if rope.get("rope_type")}


def _windows_of(config: Any) -> dict[int, int | None]:
    """By layer, how far it sees according to the config; None: everything."""
    window = getattr(config, "sliding_window", None)
    types = getattr(config, "layer_types", None)
    if types is None:
        return dict.fromkeys(range(config.num_hidden_layers), window)
    return {i: window if kind == "sliding_attention" else None for i, kind in enumerate(types)}


def _tried(model: PreTrainedModel) -> tuple[float, dict[int, int | None]]:
    """Largest difference between next-token logits of packed forwards and of the model's own, in standard deviations of
    the latter; and by layer, the window that the packed forward was told."""
    ids = [i * 7919 % model.config.vocab_size for i in range(16)]
    conversations = [ids[:10], ids[10:]]
    store = KVStore()
    store.reserve(2, 16)
    with sampling_mode(model):
        for ends in ((8, 4), (10, 6)):
            starts = (0, 0) if ends == (8, 4) else (8, 4)
            segments = [Segment(i, starts[i], conversations[i][starts[i] : ends[i]]) for i in range(2)]
            packing, last = Packing.of_segments(store, segments, model.device)
            ours = packed_forward(model, packing, last).float()
    with evaluation(model):
        own = torch.stack([model(torch.tensor([c], device=model.device)).logits[0, -1] for c in conversations]).float()
    return float((ours - own).abs().max() / own.std()), packing.windows
