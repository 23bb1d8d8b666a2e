"""A causal language model in two halves: the decoder's hidden states, and the head that makes logits of some."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Head = Callable[[Tensor], Tensor]
"""Hidden states (n, H) → logits (n, V)."""


def hidden_states(model: nn.Module, ids: Tensor, attention: Tensor) -> Tensor:
    """(B, T, H), the states that the head reads. Without the head's work: T × V logits are never made.

    Args:
        model: a transformers causal language model, with LoRA or without.
        ids, attention: (B, T), padded on the right.
    """
    decoder: Any = _causal_model(model).base_model
    return decoder(input_ids=ids, attention_mask=attention, use_cache=False).last_hidden_state


def head_of(model: nn.Module) -> Head:
    """The model's own head, with whatever its kind does to logits; gradients go into its weights where they may."""
    causal = _causal_model(model)
    return _with_finish(causal.get_output_embeddings(), causal.config.get_text_config())


def frozen_head_of(model: nn.Module) -> Head:
    """The head as its weights are now, whatever happens to the model later. No gradient, no copy.

    With LoRA on the head itself: the head without its adapter.
    """
    causal = _causal_model(model)
    layer: Any = causal.get_output_embeddings()
    layer = getattr(layer, "base_layer", layer)
    weight, bias = layer.weight.detach(), None if layer.bias is None else layer.bias.detach()
    return _with_finish(lambda h: nn.functional.linear(h, weight, bias), causal.config.get_text_config())


def _causal_model(model: Any) -> Any:
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def _with_finish(head: Callable[[Tensor], Tensor], config: Any) -> Head:
    """``head`` with the scale (Cohere, Falcon-H1, Granite) and the soft cap (Gemma) that a config asks for."""
    scale = next((v for key in _FACTORS if (v := getattr(config, key, None)) is not None), None)
    if scale is None and (divisor := getattr(config, "logits_scaling", None)) is not None:
        scale = divisor if config.model_type == "hyperclovax" else 1 / divisor
    cap = getattr(config, "final_logit_softcapping", None)

    def logits(h: Tensor) -> Tensor:
        out = head(h)
        if scale is not None:
            out = out * scale
        return cap * torch.tanh(out / cap) if cap is not None else out

    return logits


_FACTORS = ("logit_scale", "output_multiplier", "lm_head_multiplier")
