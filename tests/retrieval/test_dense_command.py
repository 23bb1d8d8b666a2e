"""``sleuth index --kind dense``: the encoder is loaded once, and nothing but our own lines is shown."""

import sys

import pytest

from sleuth.cli import run

pytest.importorskip("faiss")


@pytest.fixture
def counting(tmp_path, monkeypatch):
    """Name of an encoder, and the file with a line for each time that it was made."""
    log = tmp_path / "made"
    (tmp_path / "counting_encoder.py").write_text(
        f"from cities import hashing_encoder\ndef make():\n    open({str(log)!r}, 'a').write('made\\n')\n"
        "    return hashing_encoder()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "counting_encoder", raising=False)
    return "counting_encoder:make", log


@pytest.mark.parametrize("kind", ["dense", "hybrid"])
def test_the_encoder_is_loaded_once_for_estimate_and_build(tmp_path, corpus, counting, capsys, kind):
    encoder, log = counting
    assert run(["index", str(corpus), "-o", str(tmp_path / "index"), "--kind", kind, "--encoder", encoder]) == 0
    assert "estimate: about 5 passages" in capsys.readouterr().err
    assert log.read_text() == "made\n"


def test_no_encoder_is_loaded_for_a_corpus_that_is_not_there(tmp_path, counting, capsys):
    encoder, log = counting
    missing = tmp_path / "none.jsonl"
    assert run(["index", str(missing), "-o", str(tmp_path / "index"), "--kind", "dense", "--encoder", encoder]) == 2
    assert "no such file" in capsys.readouterr().err
    assert not log.exists()


@pytest.fixture(scope="module")
def small_encoder(tmp_path_factory):
    """A folder with a BERT of random weights, which sentence-transformers pools by the mean."""
    pytest.importorskip("sentence_transformers")
    from transformers import BertConfig, BertModel, BertTokenizerFast

    folder = tmp_path_factory.mktemp("bert")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "paris", "capital"]
    (folder / "vocab.txt").write_text("\n".join(words))
    BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    shape = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    BertModel(BertConfig(vocab_size=len(words), **shape)).save_pretrained(folder)
    return str(folder)


def test_no_bar_over_the_encoders_tensors_is_shown(tmp_path, corpus, small_encoder, capsys, monkeypatch):
    from huggingface_hub.utils import are_progress_bars_disabled
    from sentence_transformers import SentenceTransformer
    from transformers.utils import logging

    monkeypatch.setattr(logging, "_tqdm_active", True)
    downloads = are_progress_bars_disabled()
    SentenceTransformer(small_encoder, device="cpu")
    assert "Loading weights" in capsys.readouterr().err
    asked = ["index", str(corpus), "-o", str(tmp_path / "index"), "--kind", "dense", "--encoder", small_encoder]
    assert run(asked) == 0
    said = capsys.readouterr().err
    assert said.startswith("estimate: about 5 passages")
    assert "Loading weights" not in said
    assert are_progress_bars_disabled() is downloads
