from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from sleuth.types import StopRule

VOCABULARY = 97
_SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "eos_token_id": 0,
}


def _spread(model: PreTrainedModel) -> PreTrainedModel:
    """Larger weights than a fresh model's, so that next-token distributions depend on the context."""
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.2)
    return model.eval()


def make_qwen2() -> PreTrainedModel:
    """Four query heads on two key heads."""
    torch.manual_seed(0)
    return _spread(Qwen2ForCausalLM(Qwen2Config(**_SIZES, num_key_value_heads=2)))


def make_llama() -> PreTrainedModel:
    """As many key heads as query heads, untied head."""
    torch.manual_seed(1)
    return _spread(LlamaForCausalLM(LlamaConfig(**_SIZES, num_key_value_heads=4, tie_word_embeddings=False)))


def make_gemma3() -> PreTrainedModel:
    """Two layers that see 6 tokens, shorter than most contexts of these tests, and one that sees all."""
    torch.manual_seed(2)
    types = ["sliding_attention", "full_attention", "sliding_attention"]
    sizes = _SIZES | {"num_hidden_layers": 3, "num_key_value_heads": 1, "head_dim": 8}
    return _spread(Gemma3ForCausalLM(Gemma3TextConfig(**sizes, sliding_window=6, layer_types=types)))


@pytest.fixture
def qwen2() -> PreTrainedModel:
    return make_qwen2()


@pytest.fixture(params=[make_qwen2, make_llama, make_gemma3], ids=["qwen2", "llama", "gemma3"])
def model(request: pytest.FixtureRequest) -> PreTrainedModel:
    return request.param()


@pytest.fixture
def rule() -> Callable[..., StopRule]:
    """Makes stop rules; as given, a turn is over after any trigger."""

    def make(
        triggers: Sequence[int] = (),
        ends: Sequence[int] = (),
        complete: Callable[[Sequence[int]], bool] = lambda _: True,
    ) -> StopRule:
        return StopRule(complete, frozenset(triggers), frozenset(ends))

    return make
