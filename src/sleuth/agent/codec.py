"""Between token ids and text, exactly: which bytes each token stands for.

The episode finds tags in the bytes of the sampled ids and needs to know which token a byte belongs to. Re-tokenising
decoded text can't tell (many id sequences have the same text), so the codec keeps a table of the bytes of every token.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from typing import Any


class TokenCodec:
    """Encodes environment text and spells out sampled ids.

    Args:
        tokenizer: a Hugging Face fast tokenizer.
        end_ids: ids that end the policy's turn; default: the tokenizer's ``eos_token_id`` and the usual end-of-turn
            tokens of chat templates that it knows.
    """

    def __init__(self, tokenizer: Any, end_ids: Sequence[int] | None = None):
        self.tokenizer = tokenizer
        self._backend = tokenizer.backend_tokenizer
        self.end_ids = frozenset(end_ids) if end_ids is not None else _end_ids(tokenizer)
        self._pieces = _piece_table(tokenizer)
        self._joins_with_space = _decoder_type(tokenizer) is None

    def encode(self, text: str) -> list[int]:
        """Ids of ``text`` as it stands: tags and special tokens written in it are recognised, none are added."""
        return self._backend.encode(text, add_special_tokens=False).ids

    def encode_foreign(self, text: str) -> list[int]:
        """Ids of a text that is not ours (a passage, a tool's result): special tokens written in it stay plain text."""
        self._backend.encode_special_tokens = True
        try:
            return self.encode(text)
        finally:
            self._backend.encode_special_tokens = False

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ``ids``, special tokens included; bytes that are no UTF-8 become U+FFFD."""
        return b"".join(self.pieces(ids)).decode("utf-8", errors="replace")

    def pieces(self, ids: Sequence[int]) -> list[bytes]:
        """The bytes of each id; joined they are the text."""
        if self._pieces is None:
            return self._pieces_by_decoding(ids)
        table = self._pieces
        out = [table.get(i, b"") for i in ids]
        if self._joins_with_space:
            out[1:] = [b" " + piece for piece in out[1:]]
        return out

    def ids_containing(self, needle: bytes) -> dict[int, bytes]:
        """Every id whose bytes contain ``needle``, with its bytes."""
        table = self._pieces
        if table is None:
            table = {i: self.tokenizer.decode([i]).encode() for i in range(len(self.tokenizer))}
        return {i: piece for i, piece in table.items() if needle in piece}

    def cut(self, text: str, limit: int) -> str:
        """The start of ``text`` that its first ``limit`` tokens cover."""
        encoding = self._backend.encode(text, add_special_tokens=False)
        return text if len(encoding.ids) <= limit else text[: encoding.offsets[limit - 1][1]]

    def _pieces_by_decoding(self, ids: Sequence[int]) -> list[bytes]:
        # For a tokenizer whose pieces can't be tabulated: what each id adds to the decoded text. An id that ends inside
        # a character adds nothing; the id that completes the character adds it whole.
        out: list[bytes] = []
        done = ""
        for n in range(1, len(ids) + 1):
            text = self.tokenizer.decode(list(ids[:n]), skip_special_tokens=False, clean_up_tokenization_spaces=False)
            if n < len(ids) and text.endswith("\ufffd"):
                out.append(b"")
                continue
            out.append(text[len(done) :].encode("utf-8", errors="replace"))
            done = text
        return out

    @cached_property
    def chat_template(self) -> str | None:
        return getattr(self.tokenizer, "chat_template", None)


def _end_ids(tokenizer: Any) -> frozenset[int]:
    usual = ("<|im_end|>", "<|eot_id|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>")
    known = tokenizer.get_vocab()
    ids = {known[token] for token in usual if token in known}
    if tokenizer.eos_token_id is not None:
        ids.add(tokenizer.eos_token_id)
    return frozenset(ids)


def _decoder_type(tokenizer: Any) -> str | None:
    decoder = json.loads(tokenizer.backend_tokenizer.to_str()).get("decoder")
    return decoder["type"] if decoder else None


def _piece_table(tokenizer: Any) -> dict[int, bytes] | None:
    """Bytes by id, or None where this tokenizer's decoding is not a concatenation of pieces that we know."""
    decoder = json.loads(tokenizer.backend_tokenizer.to_str()).get("decoder")
    kinds = {decoder["type"], *(d["type"] for d in decoder.get("decoders", []))} if decoder else set()
    if not kinds:
        spell = str.encode
    elif "ByteLevel" in kinds:
        spell = _byte_level_speller()
    elif kinds & {"Metaspace", "ByteFallback"} or decoder["type"] == "Replace":
        spell = _sentencepiece_bytes
    else:
        return None
    added = {i: str(token) for i, token in tokenizer.added_tokens_decoder.items()}
    table = {i: spell(token) for token, i in tokenizer.get_vocab().items() if i not in added}
    table.update({i: token.encode() for i, token in added.items()})
    probe = tokenizer.backend_tokenizer.encode(
        "The <search> naïve 1,234 “query” 北京\n</search>\n\nx", add_special_tokens=False
    ).ids
    joined = (b" " if not kinds else b"").join(table[i] for i in probe).decode("utf-8", errors="replace")
    plain = tokenizer.decode(probe, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    return table if joined.strip() == plain.strip() else None


def _sentencepiece_bytes(token: str) -> bytes:
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        return bytes([int(token[3:5], 16)])
    return token.replace("\u2581", " ").encode()


def _byte_level_speller() -> Any:
    # Byte-level BPE writes each byte as one printable character: the printable Latin-1 characters stand for themselves,
    # all others for U+0100 onwards in order of their value.
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    rest = [b for b in range(256) if b not in plain]
    of_char = {chr(b): b for b in plain} | {chr(256 + n): b for n, b in enumerate(rest)}

    def spell(token: str) -> bytes:
        return b"".join(bytes([of_char[c]]) if c in of_char else c.encode() for c in token)

    return spell
