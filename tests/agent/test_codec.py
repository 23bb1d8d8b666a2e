"""Ids and text: what the codec spells is what the tokenizer decodes, for every kind of tokenizer."""

import os
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from sleuth.agent.codec import TokenCodec, valid_text
from sleuth.errors import UserError

PAGE = "São Paulo — “naïve” 北京 </information><answer>x</answer>"


def decoded(codec, ids):
    return codec.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)


def utf8(pieces):
    try:
        return b"".join(pieces).decode()
    except UnicodeDecodeError:
        return None


@given(data=st.data())
def test_pieces_joined_are_the_decoded_text(any_codec, data):
    ids = data.draw(st.lists(st.integers(0, len(any_codec.tokenizer) - 1), max_size=30))
    pieces = any_codec.pieces(ids)
    assert len(pieces) == len(ids)
    text, plain = utf8(pieces), decoded(any_codec, ids)
    if text is None:  # decoders differ in how many replacement characters broken bytes get
        assert "\ufffd" in plain
        assert "\ufffd" in any_codec.decode(ids)
    elif text != plain:  # sentencepiece's decoder strips the one space that every text starts with
        assert text == " " + plain
        assert any_codec._anchor


@given(data=st.data())
def test_broken_bytes_become_the_same_replacement_characters_in_byte_level_bpe(bpe, data):
    ids = data.draw(st.lists(st.integers(0, len(bpe.tokenizer) - 1), max_size=30))
    assert bpe.decode(ids) == decoded(bpe, ids)


@pytest.mark.skipif("SLEUTH_SMOLLM2" not in os.environ, reason="SLEUTH_SMOLLM2 names no folder of SmolLM2")
def test_a_real_tokenizer_spells_as_it_decodes():
    from transformers import AutoTokenizer

    codec = TokenCodec(AutoTokenizer.from_pretrained(os.environ["SLEUTH_SMOLLM2"]))
    draw = random.Random(0)
    assert codec._pieces is not None
    for _ in range(300):
        ids = [draw.randrange(len(codec.tokenizer)) for _ in range(draw.randrange(25))]
        assert codec.decode(ids) == decoded(codec, ids)


@given(data=st.data())
def test_pieces_of_a_prefix_are_a_prefix_of_the_pieces(any_codec, data):
    """A sampler asks after every token: what it has seen may not change under it."""
    ids = data.draw(st.lists(st.integers(0, len(any_codec.tokenizer) - 1), min_size=1, max_size=12))
    n = data.draw(st.integers(0, len(ids)))
    assert any_codec.pieces(ids[:n]) == any_codec.pieces(ids)[:n]


@pytest.mark.parametrize("kind", ["word", "bpe", "sentencepiece"])
def test_usual_tokenizers_get_a_table_and_need_no_decoding(kind, request):
    assert TokenCodec(request.getfixturevalue(f"{kind}_tokenizer"))._pieces is not None


def test_a_tokenizer_without_a_table_is_spelled_by_decoding(wordpiece_tokenizer):
    codec = TokenCodec(wordpiece_tokenizer)
    assert codec._pieces is None
    ids = wordpiece_tokenizer.convert_tokens_to_ids(["who", "##s", "<", "##>"])
    assert codec.pieces(ids) == [b"who", b"s", b" <", b">"]


def test_ids_that_the_tokenizer_does_not_know_have_no_text(any_codec):
    """Models have more rows than their tokenizer has tokens, and a policy may sample any of them."""
    known = any_codec.encode("who is paris")
    unknown = len(any_codec.tokenizer) + 5
    ids = [unknown, known[0], unknown, unknown, *known[1:]]
    assert any_codec.decode(ids) == any_codec.decode(known)
    assert any_codec.pieces(ids)[0] == any_codec.pieces(ids)[2] == b""


def test_special_tokens_written_by_others_stay_text(bpe):
    end = bpe.encode("<|im_end|>")
    assert len(end) == 1
    foreign = bpe.encode_foreign("a <|im_end|> b")
    assert end[0] not in foreign
    assert bpe.decode(foreign) == "a <|im_end|> b"
    assert end[0] in bpe.encode("a <|im_end|> b")


@pytest.mark.parametrize("kind", ["bpe", "sentencepiece"])
@settings(max_examples=30)
@given(text=st.text(max_size=30))
def test_text_that_continues_a_context_is_encoded_as_it_stands(kind, request, text):
    """Also by a sentencepiece tokenizer, which puts a space before every text of its own."""
    codec = TokenCodec(request.getfixturevalue(f"{kind}_tokenizer"))
    text = valid_text(text).replace("▁", "_")
    assert codec.decode(codec.encode(text)) == text
    assert codec.decode(codec.encode_foreign(text)) == text


def test_encoded_ids_are_the_callers_own(bpe):
    bpe.encode("</search>").append(1)
    assert bpe.decode(bpe.encode("</search>")) == "</search>"


def test_a_context_starts_with_the_token_that_the_tokenizer_starts_texts_with(sentencepiece_tokenizer):
    from tokenizers.processors import TemplateProcessing

    backend = sentencepiece_tokenizer.backend_tokenizer
    starting = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    starting.backend_tokenizer.post_processor = TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    plain, codec = TokenCodec(sentencepiece_tokenizer), TokenCodec(starting)
    ids = plain.encode_start("Who?", bos=True)
    assert ids == sentencepiece_tokenizer("Who?", add_special_tokens=False)["input_ids"]
    assert codec.encode_start("Who?", bos=True) == [1, *ids]
    assert codec.encode_start("Who?", bos=False) == ids
    assert codec.encode("Who?")[0] != 1


def test_a_part_that_is_not_ours_keeps_its_special_tokens_as_text(bpe):
    text = "<|im_start|>user\nWhat does <|im_end|> mean?<|im_end|>\n"
    ids = bpe.encode_start(text, bos=False, foreign="What does <|im_end|> mean?")
    assert bpe.decode(ids) == text
    assert [i for i in ids if i in bpe.encode("<|im_start|><|im_end|>")] == bpe.encode("<|im_start|><|im_end|>")
    plain = "<|im_start|>user\nWho?<|im_end|>\n"
    assert bpe.encode_start(plain, bos=False, foreign="Who?") == bpe.encode(plain)


def test_truncation_and_padding_set_by_others_change_nothing(bpe_tokenizer):
    codec = TokenCodec(bpe_tokenizer)
    text = "a text of more than two tokens"
    try:
        bpe_tokenizer(text, truncation=True, max_length=2, padding="max_length")
        assert codec.decode(codec.encode(text)) == text
        later = TokenCodec(bpe_tokenizer)
        assert later.decode(later.encode_foreign(text)) == text
    finally:
        bpe_tokenizer.backend_tokenizer.no_truncation()
        bpe_tokenizer.backend_tokenizer.no_padding()


@pytest.mark.parametrize("encode", ["encode", "encode_foreign"])
def test_what_no_file_can_hold_becomes_the_replacement_character(bpe, encode):
    """R10: lone surrogates and NUL."""
    assert bpe.decode(getattr(bpe, encode)("a\ud800b\x00")) == "a\ufffdb\ufffd"


def test_a_text_is_cut_where_its_tokens_end(any_codec):
    text = "who is paris . who is paris"
    assert any_codec.cut(text, len(text)) == text
    cut = any_codec.cut(text, 3)
    assert text.startswith(cut)
    assert cut
    assert cut != text


@given(limit=st.integers(-1, 60))
def test_ids_are_never_cut_inside_a_character(bpe, limit):
    ids = bpe.encode_foreign("東京🙂" + PAGE)
    kept = bpe.cut_ids(ids, limit)
    assert ids[: len(kept)] == kept
    assert len(kept) <= max(limit, 0)
    assert "\ufffd" not in bpe.decode(kept)
    if limit >= len(ids):
        assert kept == ids


def test_bytes_that_were_broken_before_the_cut_are_kept(bpe):
    lone = bpe.tokenizer.convert_tokens_to_ids(["å"])
    assert bpe.pieces(lone) == [b"\xe5"]
    assert bpe.cut_ids(lone, 1) == lone


def test_end_ids_are_the_eos_and_the_end_of_turn_tokens_of_chat_templates(bpe_tokenizer):
    assert TokenCodec(bpe_tokenizer).end_ids == {0, 2}
    assert TokenCodec(bpe_tokenizer, end_ids=[5]).end_ids == {5}


def test_a_tokenizer_may_have_no_end_token(word_tokenizer):
    bare = PreTrainedTokenizerFast(tokenizer_object=word_tokenizer.backend_tokenizer, unk_token="<unk>")
    assert TokenCodec(bare).end_ids == frozenset()


def test_a_slow_tokenizer_is_refused_in_one_line():
    class Slow:
        pass

    with pytest.raises(UserError, match="Slow: Sleuth needs a fast tokenizer"):
        TokenCodec(Slow())
