"""Memory: what a pass keeps, against what transformers' layers really keep."""

import pytest
import torch

from sleuth.sizing.memory import MemorySettings, activations, held, layer_activations, total
from sleuth.sizing.shapes import SHAPES, shape_of_config

KINDS = {"qwen2": {}, "llama": {}, "qwen3": {"head_dim": 24}}


def _kept(kind, layers, weights, autocast, checkpointing):
    """Bytes that a forward pass of 2 × 32 tokens keeps beside the model's parameters."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(
        kind,
        vocab_size=128,
        hidden_size=64,
        intermediate_size=176,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_hidden_layers=layers,
        **KINDS[kind],
    )
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").to(weights).train()
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    parameters = {p.data_ptr() for p in model.parameters()}
    kept = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            kept[storage.data_ptr()] = (storage.nbytes(), tensor)  # the tensor stays, so that no address comes twice
        return tensor

    ids = torch.randint(0, 128, (2, 32))
    hooks = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
    with hooks, torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        model.model(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False)
    return shape_of_config(config.to_dict()), sum(size for size, _ in kept.values())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("weights", "autocast"), [(torch.float32, False), (torch.float32, True), (torch.bfloat16, False)]
)
def test_a_layer_keeps_what_is_said(kind, weights, autocast):
    (_, two), (shape, three) = (_kept(kind, n, weights, autocast, False) for n in (2, 3))
    compute = 2 if autocast else weights.itemsize
    wanted = 64 * layer_activations(shape, weights.itemsize, compute)
    if autocast:  # and the weights' copies in 16 bits
        wanted += shape.linear_parameters / shape.layers * 2
    assert three - two == pytest.approx(wanted, rel=0.01)


@pytest.mark.parametrize("weights", [torch.float32, torch.bfloat16])
def test_with_checkpointing_a_layer_keeps_its_input(weights):
    (_, two), (shape, three) = (_kept("qwen2", n, weights, False, True) for n in (2, 3))
    assert three - two == pytest.approx(64 * shape.hidden * weights.itemsize, rel=0.01)


def test_what_is_held_is_weights_gradients_and_two_moments():
    shape = SHAPES["Qwen2.5-3B"]
    parts = held(shape.parameters, shape, MemorySettings(reference=True))
    assert total(parts) == 5 * 4 * shape.parameters
    assert total(held(shape.parameters, shape, MemorySettings(reference=True, shards=8))) == total(parts) / 8


def test_adapters_leave_the_weights_and_little_else():
    shape = SHAPES["Qwen2.5-3B"]
    parts = held(shape.parameters, shape, MemorySettings(lora=16, reference=True))
    assert parts["weights"] == 4 * shape.parameters
    assert total(parts) < 1.05 * parts["weights"]


def test_a_second_copy_is_spread_over_its_own_gpus():
    shape = SHAPES["Llama-3.1-70B"]
    parts = held(shape.parameters, shape, MemorySettings(shards=64, sampler=2, sampler_shards=4))
    assert parts["sampler's weights"] == shape.parameters / 2


def test_checkpointing_costs_less_the_deeper_a_model_is():
    shape = SHAPES["Qwen2.5-7B"]
    whole = activations(shape, 4096, MemorySettings(weights=2))
    assert activations(shape, 4096, MemorySettings(weights=2, checkpointing=True)) < whole / 8


def test_autocast_copies_whole_weights_and_no_sharded_ones():
    shape = SHAPES["Qwen2.5-3B"]
    whole, sharded = (activations(shape, 100, MemorySettings(shards=n)) for n in (1, 8))
    assert whole - sharded == 2 * shape.linear_parameters
