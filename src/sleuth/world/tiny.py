"""The tiny policy: a Llama of 0.14 M parameters and a tokenizer with one token for each word of HopWorld.

Both are ordinary transformers objects: ``save_pretrained`` writes a folder that ``AutoModelForCausalLM`` and
``AutoTokenizer`` load. It learns to search in minutes on a CPU, which is all that it is for.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from sleuth.world.vocabulary import BOS, EOS, PAD, UNK, VOCABULARY

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

MAX_TOKENS = 512

WORD_PATTERN = r"</?\w+>|\w+|[^\w\s]"
"""A token: a tag, a word or a punctuation mark. White space between tokens is optional and never a token."""


def make_tiny_tokenizer() -> PreTrainedTokenizerFast:
    """A word-level tokenizer over :data:`~sleuth.world.vocabulary.VOCABULARY`; ids in its order.

    Lower-cases, maps any other word to ``<unk>``, adds nothing of its own, has no chat template. Decoding joins the
    words by single spaces, and encoding that text gives the same ids back. The protocol's tags are plain words to it,
    so that skipping special tokens keeps them.
    """
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.WordLevel({word: number for number, word in enumerate(VOCABULARY)}, unk_token=UNK))
    backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(WORD_PATTERN), behavior="removed", invert=True)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=PAD,
        bos_token=BOS,
        eos_token=EOS,
        unk_token=UNK,
        model_max_length=MAX_TOKENS,
        clean_up_tokenization_spaces=False,
    )


def make_tiny_model(seed: int) -> LlamaForCausalLM:
    """A freshly initialised tiny policy in fp32 on the CPU; the global random state is left as it was.

    Its architecture is Llama's: for a ``qwen2`` model ``AutoTokenizer`` of transformers 5 builds Qwen's own tokenizer,
    whatever the folder says. One key-value head keeps the cache small, which is half of the cost of decoding at this
    size; a small rotary base suits contexts of some hundred tokens.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    index = {word: number for number, word in enumerate(VOCABULARY)}
    config = LlamaConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=64,
        intermediate_size=176,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=1,
        max_position_embeddings=MAX_TOKENS,
        rope_parameters={"rope_type": "default", "rope_theta": 1000.0},
        initializer_range=0.05,
        tie_word_embeddings=True,
        pad_token_id=index[PAD],
        bos_token_id=index[BOS],
        eos_token_id=index[EOS],
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config).float()


def save_tiny(model: LlamaForCausalLM, folder: str | os.PathLike[str]) -> None:
    """Write model and tokenizer to one folder, as the hub lays it out."""
    model.save_pretrained(folder)
    make_tiny_tokenizer().save_pretrained(folder)
