"""Small tokenizers of every kind that Sleuth meets, trained on the spot."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

# A busy machine is no reason to fail.
hypothesis.settings.register_profile("sleuth", deadline=None)
hypothesis.settings.load_profile("sleuth")

SENTENCES = [
    "<think> I need to find the author. </think><search> author of the tall tower </search>.",
    "<think>The page says Paris.</think>\n<answer> Paris </answer>.\n\n<information>Doc 1(Title: Paris)</information>",
    '<tool_call>\n{"name": "search", "arguments": {"query": "who wrote it"}}\n</tool_call>',
    "naïve café, 1,234 people. “Quoted” words — and so on; São Paulo, 北京.",
]
CHAT_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
WORDS = (
    "what is the capital of france paris rome berlin who wrote it i think and to find a doc title yes no . , ? ( ) :"
)
TAGS = [f"<{slash}{name}>" for name in ("think", "search", "information", "answer") for slash in ("", "/")]


def fast(backend: Tokenizer, **special: Any) -> PreTrainedTokenizerFast:
    from transformers import PreTrainedTokenizerFast  # takes seconds, which tests without a tokenizer needn't wait

    return PreTrainedTokenizerFast(tokenizer_object=backend, **special)


@pytest.fixture(scope="session")
def word_tokenizer() -> PreTrainedTokenizerFast:
    """One token a word or tag; pad and eos are the same token; no decoder, so words are joined by spaces."""
    words = ["<eos>", "<unk>", *TAGS, *WORDS.split()]
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"</?\w+>|\w+|[^\w\s]"), behavior="removed", invert=True)
    return fast(backend, eos_token="<eos>", pad_token="<eos>", unk_token="<unk>")


@pytest.fixture(scope="session")
def bpe_tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE with ChatML's special tokens: ``</search>`` is several tokens, and ``>.`` is one."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=sorted(alphabet), special_tokens=CHAT_TOKENS, show_progress=False
    )
    backend.train_from_iterator(SENTENCES * 3, trainer)
    return fast(backend, eos_token="<|im_end|>", pad_token="<|endoftext|>")


@pytest.fixture(scope="session")
def sentencepiece_tokenizer() -> PreTrainedTokenizerFast:
    """As Llama 2's: a space before every text (written ▁); newlines and unknown characters as bytes (``<0xE5>``)."""
    backend = Tokenizer(models.BPE(unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    ascii_only = ["".join(c for c in s if " " <= c <= "~") for s in SENTENCES]
    trainer = trainers.BpeTrainer(vocab_size=260, special_tokens=["<unk>", "<s>", "</s>"], show_progress=False)
    backend.train_from_iterator(ascii_only * 3, trainer)
    state = json.loads(backend.to_str())
    vocabulary = state["model"]["vocab"]
    for byte in range(256):
        vocabulary[f"<0x{byte:02X}>"] = len(vocabulary)
    state["model"] |= {"byte_fallback": True, "fuse_unk": True}
    backend = Tokenizer.from_str(json.dumps(state))
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return fast(backend, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


@pytest.fixture(scope="session")
def wordpiece_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer whose decoding is no table of pieces: ``##ing`` sticks to the word before it."""
    words = [
        "[UNK]",
        "[SEP]",
        "<",
        ">",
        "/",
        ".",
        "!",
        "##s",
        "##ing",
        "##>",
        *["search", "think", "answer", "paris", "who", "is", "北", "é"],
    ]
    backend = Tokenizer(models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(cleanup=False)
    return fast(backend, unk_token="[UNK]", eos_token="[SEP]")
