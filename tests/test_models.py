import logging
from types import SimpleNamespace

import pytest
import torch
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers import models as tokenizer_models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from sleuth.errors import UserError
from sleuth.models import load_model, load_tokenizer

TINY = {
    "vocab_size": 280,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}


@pytest.fixture
def folder(tmp_path):
    """A model folder as save_pretrained writes it: tiny Llama, word-level tokenizer without a padding token."""
    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(**TINY)).save_pretrained(tmp_path / "model")
    words = Tokenizer(tokenizer_models.WordLevel({"<unk>": 0, "<end>": 1, "Paris": 2}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<end>", unk_token="<unk>").save_pretrained(
        tmp_path / "model"
    )
    return tmp_path / "model"


@pytest.fixture
def hub(monkeypatch):
    """Stands for the hub: ``hub.answer`` is what it says about any model (an exception or None)."""
    import huggingface_hub

    state = SimpleNamespace(answer=None, cached=None, asked=[])

    def model_info(self, name, **settings):
        state.asked.append(name)
        if state.answer is not None:
            raise state.answer

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", model_info)
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda *a, **k: state.cached)
    return state


def hub_error(kind):
    error = kind.__new__(kind)
    Exception.__init__(error, "404 Client Error.\n\nSecond line.")
    return error


def test_a_folder_gives_its_own_weights_in_the_dtype_asked_for(folder, hub):
    torch.manual_seed(0)
    expected = LlamaForCausalLM(LlamaConfig(**TINY)).state_dict()
    full = load_model(folder).state_dict()
    assert all(torch.equal(full[name], value) for name, value in expected.items())
    assert load_model(str(folder), dtype="bfloat16").dtype is torch.bfloat16
    assert load_model(folder, dtype=torch.float16).dtype is torch.float16
    assert hub.asked == []


def test_settings_reach_transformers(folder):
    assert load_model(folder, attn_implementation="eager").config._attn_implementation == "eager"


def test_a_tokenizer_without_padding_token_pads_with_its_end_token(folder):
    tokenizer = load_tokenizer(folder)
    assert tokenizer("Paris").input_ids == [2]
    assert tokenizer.pad_token_id == tokenizer.eos_token_id == 1


def test_a_tokenizer_with_no_end_token_either_is_refused(tmp_path, folder):
    words = Tokenizer(tokenizer_models.WordLevel({"<unk>": 0}, unk_token="<unk>"))
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>").save_pretrained(folder)
    with pytest.raises(UserError, match="neither a padding nor an end token"):
        load_tokenizer(folder)


def test_a_lora_adapter_folder_loads_with_its_base(folder, tmp_path):
    peft = pytest.importorskip("peft", reason="LoRA adapters need peft")
    adapted = peft.get_peft_model(
        load_model(folder), peft.LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False)
    )
    adapted.save_pretrained(tmp_path / "adapter")
    ids = torch.arange(5)[None]
    torch.testing.assert_close(load_model(tmp_path / "adapter")(ids).logits, adapted(ids).logits)


@pytest.mark.parametrize("name", ["/nowhere/model", "./nowhere", "~/nowhere/x", "a/b/c", "..\\model"])
def test_what_looks_like_a_path_and_is_missing_is_never_asked_of_the_hub(name, hub):
    for load in (load_model, load_tokenizer):
        with pytest.raises(UserError, match="no such model folder"):
            load(name)
    assert hub.asked == []


@pytest.mark.parametrize("load", [load_model, load_tokenizer])
def test_a_wrong_folder_is_one_clear_line(load, folder, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "typeless").mkdir()
    (tmp_path / "typeless" / "config.json").write_text("{}")
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "config.json").write_bytes((folder / "config.json").read_bytes())
    for name, says in {
        "empty": r"no config\.json in this folder",
        "typeless": "could be loaded from it",
        "bare": "could be loaded from it",
        "model/config.json": "is a file",
    }.items():
        with pytest.raises(UserError, match=says) as error:
            load(tmp_path / name)
        assert str(tmp_path / name) in str(error.value)
        assert "\n" not in str(error.value)


def test_damaged_weights_are_refused(folder):
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(UserError, match="no model could be loaded"):
        load_model(folder)


def test_weights_that_do_not_cover_the_model_are_refused(folder):
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.0.mlp.up_proj.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match=r"1 weights of the model are missing \(first: .*up_proj"):
        load_model(folder)


def test_an_unknown_dtype_and_an_empty_name_are_refused(folder):
    with pytest.raises(UserError, match="float32, bfloat16"):
        load_model(folder, dtype="fp8")
    with pytest.raises(UserError, match="empty"):
        load_model("")


@pytest.mark.parametrize("load", [load_model, load_tokenizer])
def test_what_the_hub_says_becomes_one_line(load, hub):
    from huggingface_hub import errors

    cases = {
        errors.RepositoryNotFoundError: "no such model on the hub",
        errors.GatedRepoError: "accept its terms",
        errors.RevisionNotFoundError: 'no revision "v9"',
    }
    for kind, says in cases.items():
        hub.answer = hub_error(kind)
        with pytest.raises(UserError, match=says) as error:
            load("owner/model", revision="v9")
        assert "\n" not in str(error.value)
    hub.answer = errors.HFValidationError("no")
    with pytest.raises(UserError, match="neither a folder nor a hub name"):
        load("bad name!")


def test_an_unreachable_hub_is_said_when_nothing_is_cached(hub):
    hub.answer = ConnectionError("Name or service not known")
    with pytest.raises(UserError, match=r"can't be reached \(Name or service not known\) and the model isn't cached"):
        load_model("owner/model")


def test_an_unreachable_hub_falls_back_to_the_cache_and_says_so(hub, folder, monkeypatch, caplog):
    from transformers import AutoTokenizer

    hub.answer, hub.cached = ConnectionError("down"), "/cache/config.json"
    seen = {}

    def from_pretrained(source, **settings):
        seen.update(settings, source=source)
        return PreTrainedTokenizerFast.from_pretrained(folder)

    monkeypatch.setattr(AutoTokenizer, "from_pretrained", from_pretrained)
    with caplog.at_level(logging.WARNING):
        load_tokenizer("owner/model")
    assert seen == {"source": "owner/model", "local_files_only": True}
    assert "the cached copy is used" in caplog.text
