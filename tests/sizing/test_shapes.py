"""Shapes of models: their parameters and caches, against transformers' own models."""

import json

import pytest

from sleuth.errors import UserError
from sleuth.sizing.shapes import SHAPES, Shape, find_shape, shape_of_config

PUBLISHED = {
    "Qwen2.5-0.5B": 494_032_768,
    "Qwen2.5-1.5B": 1_543_714_304,
    "Qwen2.5-3B": 3_085_938_688,
    "Qwen2.5-7B": 7_615_616_512,
    "Qwen2.5-14B": 14_770_033_664,
    "Qwen2.5-32B": 32_763_876_352,
    "Qwen2.5-72B": 72_706_203_648,
    "Llama-3.2-1B": 1_235_814_400,
    "Llama-3.2-3B": 3_212_749_824,
    "Llama-3.1-8B": 8_030_261_248,
    "Llama-3.1-70B": 70_553_706_496,
    "SmolLM2-135M": 134_515_008,
    "SmolLM2-360M": 361_821_120,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_known_shape_has_the_published_number_of_parameters(name):
    assert SHAPES[name].parameters == PUBLISHED[name]


KINDS = {"qwen2": {}, "llama": {}, "qwen3": {"head_dim": 24}}


def _config(kind, **changes):
    from transformers import AutoConfig

    sizes = {
        "vocab_size": 211,
        "hidden_size": 64,
        "intermediate_size": 112,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 3,
    }
    return AutoConfig.for_model(kind, **{**sizes, **KINDS[kind], **changes})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tied", [True, False])
def test_parameters_of_a_config_are_those_of_its_model(kind, tied):
    import torch
    from transformers import AutoModelForCausalLM

    config = _config(kind, tie_word_embeddings=tied)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    shape = shape_of_config(config.to_dict())
    assert shape.parameters == sum(p.numel() for p in model.parameters())
    linear = sum(m.weight.numel() for m in model.model.modules() if isinstance(m, torch.nn.Linear))
    assert shape.linear_parameters == linear


def test_adapters_are_as_many_as_peft_makes():
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    config = _config("llama")
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
        adapted = get_peft_model(model, LoraConfig(r=3, target_modules="all-linear", task_type="CAUSAL_LM"))
    trained = sum(p.numel() for p in adapted.parameters() if p.requires_grad)
    assert shape_of_config(config.to_dict()).lora_parameters(3) == trained


def test_operations_are_those_that_torch_counts():
    import torch
    from torch.utils.flop_counter import FlopCounterMode
    from transformers import AutoModelForCausalLM

    config = _config("qwen2")
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    ids = torch.arange(40)[None]
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(input_ids=ids)
    # Without fused attention every token meets every other one.
    assert shape_of_config(config.to_dict()).flops(40, 40) == pytest.approx(counter.get_total_flops(), rel=0.01)


@pytest.mark.parametrize("written", ["Qwen/Qwen2.5-3B-Instruct", "qwen2.5-3b", "Qwen2.5-3B", "me/qwen2.5-3b-base"])
def test_a_name_is_known_however_it_is_written(written):
    assert find_shape(written) == ("Qwen2.5-3B", SHAPES["Qwen2.5-3B"])


def test_a_folder_is_read_by_its_config_alone(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(_config("qwen3").to_dict()))
    name, shape = find_shape(str(tmp_path))
    assert name == str(tmp_path)
    assert shape == Shape(3, 64, 112, 4, 2, 24, 211, tied=shape.tied, head_norms=True)


@pytest.mark.parametrize(
    ("config", "said"),
    [(None, "no config.json"), ({}, "no shape can be read"), ({"num_experts": 8}, "mixture of experts")],
)
def test_a_folder_without_a_dense_decoder_is_refused(tmp_path, config, said):
    if config is not None:
        (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=said):
        find_shape(str(tmp_path))


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(UserError, match=r"did you mean Qwen2\.5-3B"):
        find_shape("qwen2.5-3bb")
