"""Where each token's text stands."""

import pytest

from sleuth.agent.codec import TokenCodec
from sleuth.report.token_texts import token_lengths, utf16_length

TEXTS = ["<think> who wrote it </think>", "naïve café 北京", "a 😀 b", "a"]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("tokenizer", ["word_tokenizer", "bpe_tokenizer", "sentencepiece_tokenizer"])
def test_lengths_follow_the_tokens_and_sum_up_to_the_text(tokenizer, text, request):
    codec = TokenCodec(request.getfixturevalue(tokenizer))
    ids = codec.encode(text)
    text = codec.decode(ids)
    lengths = token_lengths(codec, ids, text)
    assert lengths is not None
    assert len(lengths) == len(ids)
    assert sum(lengths) == len(text.encode("utf-16-le")) // 2


def test_a_character_belongs_to_the_token_that_completes_it(bpe_tokenizer):
    codec = TokenCodec(bpe_tokenizer)
    ids = codec.encode("😀")
    assert len(ids) > 1
    assert token_lengths(codec, ids, "😀") == [0] * (len(ids) - 1) + [2]


def test_the_text_of_another_tokenizer_is_not_cut_at_random(bpe_tokenizer):
    codec = TokenCodec(bpe_tokenizer)
    assert token_lengths(codec, codec.encode("Paris is"), "Rome is") is None


def test_lengths_are_counted_as_javascript_does():
    assert [utf16_length(text) for text in ("abc", "né", "😀x")] == [3, 2, 3]
