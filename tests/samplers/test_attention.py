import pytest
import torch
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

from sleuth.errors import UserError
from sleuth.samplers.attention import check_supported, evaluation, sampling_mode

SIZES = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def test_sampling_mode_leaves_everything_as_it_was(qwen2):
    qwen2.train()
    qwen2.model.layers[1].eval()  # frozen on purpose
    before = [m.training for m in qwen2.modules()]
    with sampling_mode(qwen2):
        assert not any(m.training for m in qwen2.modules())
        assert qwen2.config._attn_implementation == "sleuth_packed"
        assert not torch.is_grad_enabled()
    assert [m.training for m in qwen2.modules()] == before
    assert qwen2.config._attn_implementation == "sdpa"
    assert torch.is_grad_enabled()


def test_training_works_after_sampling_mode(qwen2):
    ids = torch.tensor([[1, 2, 3, 4]])
    qwen2.train()
    expected = qwen2(ids, labels=ids).loss
    with sampling_mode(qwen2):
        pass
    loss = qwen2(ids, labels=ids).loss
    assert torch.equal(loss, expected)
    loss.backward()
    assert qwen2.model.layers[0].self_attn.q_proj.weight.grad is not None


def test_evaluation_turns_gradients_off(qwen2):
    with evaluation(qwen2):
        assert not qwen2(torch.tensor([[1, 2]])).logits.requires_grad


def rope(kind):
    return {"rope_type": kind, "factor": 2.0, "rope_theta": 10_000.0}


MIXED = ["sliding_attention", "full_attention"]
NEOX = {key: size for key, size in SIZES.items() if key != "num_key_value_heads"}


@pytest.mark.parametrize(
    "make",
    [
        lambda: Qwen3ForCausalLM(Qwen3Config(**SIZES, head_dim=16)),
        lambda: LlamaForCausalLM(LlamaConfig(**SIZES, rope_parameters=rope("linear"))),
        lambda: MistralForCausalLM(MistralConfig(**SIZES, sliding_window=None)),
        lambda: MistralForCausalLM(MistralConfig(**SIZES, sliding_window=4)),
        lambda: Gemma3ForCausalLM(Gemma3TextConfig(**SIZES, head_dim=8, sliding_window=4, layer_types=MIXED)),
        lambda: GPT2LMHeadModel(GPT2Config(vocab_size=61, n_embd=32, n_layer=2, n_head=4)),
        lambda: GPTNeoXForCausalLM(GPTNeoXConfig(**NEOX)),
    ],
    ids=["qwen3", "llama-linear-rope", "mistral-full", "mistral-window", "gemma3", "gpt2", "gpt-neox"],
)
def test_decoders_with_causal_attention_are_supported(make):
    torch.manual_seed(0)
    check_supported(make())


def test_a_model_that_keeps_a_window_to_itself_is_refused(monkeypatch):
    """Its window is longer than what is tried, so that the logits agree."""
    model = MistralForCausalLM(MistralConfig(**SIZES, sliding_window=4096))
    check_supported(model)
    for layer in model.model.layers:
        monkeypatch.setattr(
            layer.self_attn, "config", MistralConfig(**SIZES, sliding_window=None, attn_implementation="sdpa")
        )
    with pytest.raises(UserError, match="windows"):
        check_supported(model)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Gemma2ForCausalLM(Gemma2Config(**SIZES, head_dim=8)), "capped scores"),
        (lambda: T5ForConditionalGeneration(T5Config(vocab_size=61, d_model=32, d_kv=8, d_ff=32)), "decoder-only"),
        (lambda: LlamaForCausalLM(LlamaConfig(**SIZES, rope_parameters=rope("dynamic"))), "dynamic"),
        (
            lambda: Qwen3ForCausalLM(Qwen3Config(**SIZES, layer_types=["full_attention", "chunked_attention"])),
            "chunked",
        ),
    ],
    ids=["capped-scores", "encoder-decoder", "dynamic-rope", "chunks"],
)
def test_others_are_refused_with_a_reason(make, problem):
    model = make()
    with pytest.raises(UserError, match=problem) as refusal:
        check_supported(model)
    assert "\n" not in str(refusal.value)


def test_a_model_that_attends_otherwise_is_caught_by_trying(qwen2):
    """Its description says nothing, but its own forward isn't causal attention at these positions."""
    attention = qwen2.model.layers[0].self_attn
    forward = attention.forward

    def other(*args, **kwargs):
        if "packing" in kwargs:
            return forward(*args, **kwargs)
        out, weights = forward(*args, **kwargs)
        return 0.5 * out, weights

    attention.forward = other
    with pytest.raises(UserError, match="other logits"):
        check_supported(qwen2)
