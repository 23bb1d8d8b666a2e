"""The tiny policy is an ordinary hub folder, and its tokenizer loses nothing."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sleuth.agent.codec import TokenCodec
from sleuth.world.tiny import MAX_TOKENS, make_tiny_model, make_tiny_tokenizer, save_tiny
from sleuth.world.vocabulary import EOS, TAGS, UNK, VOCABULARY
from sleuth.world.world import World


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("tiny")
    save_tiny(make_tiny_model(0), path)
    return path


@pytest.fixture(scope="module", params=["made", "loaded"])
def tokenizer(request, folder):
    from transformers import AutoTokenizer

    return make_tiny_tokenizer() if request.param == "made" else AutoTokenizer.from_pretrained(folder)


@given(ids=st.lists(st.integers(0, len(VOCABULARY) - 1), max_size=30))
def test_decoding_and_encoding_again_gives_the_same_ids(tokenizer, ids):
    text = tokenizer.decode(ids)
    assert text == " ".join(VOCABULARY[i] for i in ids)
    assert tokenizer(text)["input_ids"] == ids


def test_white_space_between_tokens_is_optional_and_case_does_not_matter(tokenizer):
    spaced = tokenizer("<information> anna rival is otto </information>")["input_ids"]
    assert tokenizer("\n\n<information>Anna rival is\n otto</information>\n")["input_ids"] == spaced
    assert len(spaced) == 6


def test_tags_are_single_tokens_and_not_special(tokenizer):
    for tag in TAGS:
        (number,) = tokenizer(tag)["input_ids"]
        assert tokenizer.decode([number], skip_special_tokens=True) == tag


def test_unknown_words_become_one_unknown_token_each(tokenizer):
    assert tokenizer.decode(tokenizer("who is zaphod ?")["input_ids"]) == f"who is {UNK} ?"


def test_nothing_is_added_and_there_is_no_chat_template(tokenizer):
    assert len(tokenizer) == len(VOCABULARY)
    assert tokenizer.chat_template is None
    assert len(tokenizer("anna")["input_ids"]) == 1
    assert tokenizer.eos_token == EOS


def test_the_codec_spells_ids_as_the_tokenizer_decodes_them(tokenizer):
    codec = TokenCodec(tokenizer)
    ids = tokenizer("<think> it is anna </think> <answer> anna </answer>")["input_ids"]
    assert codec.decode(ids) == tokenizer.decode(ids)
    assert codec.end_ids == {VOCABULARY.index(EOS)}


def test_an_observation_of_three_passages_is_short(tokenizer):
    texts = [document.text for document in World.create("w", 0).documents]
    assert max(len(tokenizer(text)["input_ids"]) for text in texts) == 5
    assert all(UNK not in tokenizer.tokenize(text) for text in texts)


def test_the_folder_loads_as_the_same_model(folder):
    from transformers import AutoModelForCausalLM

    model, loaded = make_tiny_model(0), AutoModelForCausalLM.from_pretrained(folder)
    ids = torch.arange(40)[None]
    with torch.no_grad():
        assert torch.equal(model(ids).logits, loaded(ids).logits)
    assert loaded.dtype == torch.float32
    assert loaded.config.eos_token_id == VOCABULARY.index(EOS)


def test_the_model_is_tiny_and_reads_long_contexts():
    model = make_tiny_model(0)
    assert 100_000 < sum(p.numel() for p in model.parameters()) < 300_000
    assert model.config.max_position_embeddings == MAX_TOKENS


def test_the_seed_decides_the_weights_and_leaves_the_global_generator_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    one, same, other = make_tiny_model(1), make_tiny_model(1), make_tiny_model(2)
    assert torch.equal(torch.rand(3), expected)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), same.parameters(), strict=True))
    assert not torch.equal(one.model.embed_tokens.weight, other.model.embed_tokens.weight)
