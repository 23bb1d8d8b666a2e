"""Between token ids and text, exactly: which bytes each token stands for.

The episode finds tags in the bytes of the sampled ids and needs to know which token a byte belongs to. Re-tokenising
decoded text can't tell (many id sequences have the same text), so the codec keeps a table of the bytes of every token.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from sleuth.errors import UserError

_NO_TEXT = re.compile("[\ud800-\udfff\x00]")


def valid_text(text: str) -> str:
    """``text`` with what no UTF-8 file or query can hold (lone surrogates, NUL) as U+FFFD."""
    if text.isascii() and "\x00" not in text:
        return text
    return _NO_TEXT.sub("\ufffd", text)


class TokenCodec:
    """Encodes environment text and spells out sampled ids.

    Args:
        tokenizer: a Hugging Face fast tokenizer. The codec works on copies of its backend, so that truncation or
            padding that others set on it later changes nothing here.
        end_ids: ids that end the policy's turn; default: the tokenizer's ``eos_token_id`` and the usual end-of-turn
            tokens of chat templates that it knows. May be empty.

    Raises:
        UserError: the tokenizer has no Rust backend.
    """

    def __init__(self, tokenizer: Any, end_ids: Sequence[int] | None = None):
        if getattr(tokenizer, "backend_tokenizer", None) is None:
            raise UserError(f"tokenizer {type(tokenizer).__name__}: Sleuth needs a fast tokenizer (tokenizer.json)")
        self.tokenizer = tokenizer
        self.end_ids = frozenset(end_ids) if end_ids is not None else _end_ids(tokenizer)
        self._backend = _private_copy(tokenizer.backend_tokenizer)
        self._foreign = _private_copy(tokenizer.backend_tokenizer)
        self._foreign.encode_special_tokens = True
        self._pieces = _piece_table(tokenizer)
        # Without a decoder tokens are joined by spaces: the bytes of a token that isn't the first.
        self._later_pieces = self._pieces
        if self._pieces is not None and self._backend.decoder is None:
            self._later_pieces = {i: b" " + piece for i, piece in self._pieces.items()}
        self._bos = self._own_bos()
        self._special = [token.content for token in tokenizer.added_tokens_decoder.values() if token.special]
        # The rollouts of a group share their prompt and often their queries, and all share the protocol's own texts.
        self._remembered = lru_cache(maxsize=2048)(self._encoded)
        # A sentencepiece tokenizer puts a space before every text. Text that continues a context gets none: it is
        # encoded behind a newline, whose tokens are then dropped.
        self._anchor: list[int] = []
        if self._pieces is not None and self.decode(self._ids(self._backend, "a")) == " a":
            self._anchor = self._ids(self._backend, "\n")

    @property
    def chat_template(self) -> str | None:
        return getattr(self.tokenizer, "chat_template", None)

    def encode(self, text: str) -> list[int]:
        """Ids of a text of ours that continues a context: special tokens in it are recognised, none are added."""
        return list(self._remembered(self._backend, text, True))

    def encode_foreign(self, text: str) -> list[int]:
        """Ids of a text that is not ours (a passage, a tool's result): special tokens written in it stay plain text."""
        return list(self._remembered(self._foreign, text, True))

    def encode_start(self, text: str, *, bos: bool, foreign: str = "") -> list[int]:
        """Ids of a text that starts a context.

        Args:
            bos: with the token that this tokenizer itself puts before a text.
            foreign: the last part of ``text`` that reads so is not ours (the question).
        """
        ids = self._bos[:] if bos else []
        if foreign in text and any(token in foreign for token in self._special):
            head, _, tail = text.rpartition(foreign)
            return ids + self._ids(self._backend, head) + self.encode_foreign(foreign) + self.encode(tail)
        return ids + list(self._remembered(self._backend, text, False))

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ``ids``, special tokens included; bytes that are no UTF-8 become U+FFFD."""
        return b"".join(self.pieces(ids)).decode("utf-8", errors="replace")

    def pieces(self, ids: Sequence[int]) -> list[bytes]:
        """The bytes of each id, nothing for an id that the tokenizer doesn't know; joined they are the text."""
        table, later = self._pieces, self._later_pieces
        if table is None or later is None:
            return self._pieces_by_decoding(ids)
        pieces = [later.get(i, b"") for i in ids]
        if later is not table:
            first = next((n for n, i in enumerate(ids) if i in table), None)
            if first is not None:
                pieces[first] = table[ids[first]]
        return pieces

    def ids_containing(self, needle: bytes) -> dict[int, bytes]:
        """Every id whose bytes contain ``needle``, with its bytes."""
        table = self._pieces
        if table is None:
            table = {i: self._spell([i]).encode() for i in self.tokenizer.get_vocab().values()}
        return {i: piece for i, piece in table.items() if needle in piece}

    def cut(self, text: str, limit: int) -> str:
        """The start of ``text`` that its first ``limit`` tokens cover."""
        text = valid_text(text)
        encoding = self._foreign.encode(text, add_special_tokens=False)
        return text if len(encoding.ids) <= limit else text[: encoding.offsets[limit - 1][1]]

    def cut_ids(self, ids: Sequence[int], limit: int) -> list[int]:
        """The first ``limit`` ids, fewer where the cut would fall inside a character."""
        kept = list(ids[: max(limit, 0)])
        while kept and len(kept) < len(ids) and _ends_inside_character(b"".join(self.pieces(kept))):
            kept.pop()
        return kept

    def _encoded(self, backend: Any, text: str, continues: bool) -> tuple[int, ...]:
        if continues and self._anchor and text:
            ids = self._ids(backend, "\n" + text)
            if ids[: len(self._anchor)] == self._anchor:
                return tuple(ids[len(self._anchor) :])
        return tuple(self._ids(backend, text))

    @staticmethod
    def _ids(backend: Any, text: str) -> list[int]:
        return backend.encode(valid_text(text), add_special_tokens=False).ids

    def _own_bos(self) -> list[int]:
        bos = self.tokenizer.bos_token_id
        return [bos] if bos is not None and self._backend.encode("").ids[:1] == [bos] else []

    def _spell(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)

    def _pieces_by_decoding(self, ids: Sequence[int]) -> list[bytes]:
        # For a tokenizer whose pieces can't be tabulated: a token's piece is what it adds to the part of the whole text
        # that is settled. An id that ends inside a character adds nothing; the one that completes it adds it whole.
        whole = self._spell(ids)
        pieces: list[bytes] = []
        done = 0
        for n in range(1, len(ids)):
            settled = max(_common_length(self._spell(ids[:n]), whole), done)
            pieces.append(whole[done:settled].encode())
            done = settled
        if ids:
            pieces.append(whole[done:].encode())
        return pieces


def _common_length(a: str, b: str) -> int:
    return next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _private_copy(backend: Any) -> Any:
    backend = copy.deepcopy(backend)
    backend.no_truncation()
    backend.no_padding()
    return backend


def _ends_inside_character(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError as error:
        return error.end == len(text) and error.reason == "unexpected end of data"
    return False


def _end_ids(tokenizer: Any) -> frozenset[int]:
    usual = ("<|im_end|>", "<|eot_id|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>")
    known = tokenizer.get_vocab()
    ids = {known[token] for token in usual if token in known}
    if tokenizer.eos_token_id is not None:
        ids.add(tokenizer.eos_token_id)
    return frozenset(ids)


def _piece_table(tokenizer: Any) -> dict[int, bytes] | None:
    """Bytes by id, or None where this tokenizer's decoding is not a concatenation of pieces that we know."""
    decoder = tokenizer.backend_tokenizer.decoder
    state = json.loads(decoder.__getstate__()) if decoder is not None else {}
    kinds = {state.get("type"), *(d["type"] for d in state.get("decoders", []))}
    spell: Callable[[str], bytes]
    if decoder is None:
        spell = str.encode
    elif "ByteLevel" in kinds:
        spell = _byte_level_speller()
    elif kinds & {"Metaspace", "ByteFallback", "Replace"}:
        spell = _sentencepiece_bytes
    else:
        return None
    table = {i: spell(token) for token, i in tokenizer.get_vocab().items()}
    # Believed only if it spells a probe as the tokenizer does (but for the space that some strip at the start).
    probe = tokenizer.backend_tokenizer.encode(
        "The <search> naïve 1,234 “query” 北京\n</search>\n\nx", add_special_tokens=False
    ).ids
    joined = (b" " if decoder is None else b"").join(table[i] for i in probe).decode("utf-8", errors="replace")
    plain = tokenizer.decode(probe, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    return table if joined.strip() == plain.strip() else None


def _sentencepiece_bytes(token: str) -> bytes:
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        return bytes([int(token[3:5], 16)])
    return token.replace("\u2581", " ").encode()


def _byte_level_speller() -> Callable[[str], bytes]:
    # Byte-level BPE writes each byte as one printable character: the printable Latin-1 characters stand for themselves,
    # all others for U+0100 onwards in order of their value. A token with any other character is plain text.
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    rest = [b for b in range(256) if b not in plain]
    of_char = {chr(b): b for b in plain} | {chr(256 + n): b for n, b in enumerate(rest)}

    def spell(token: str) -> bytes:
        values = [of_char.get(c) for c in token]
        return token.encode() if None in values else bytes(values)  # type: ignore[arg-type]

    return spell
