"""Bytes to texts and values, so that every engine (atheris, hypothesis, plain random) drives the same targets.

A byte stands for a piece of text that means something to a parser, or begins a character of its own; so a mutated byte
is a mutated tag, number or accent, which random characters would hardly ever hit.
"""

from __future__ import annotations

import string
import unicodedata
from collections.abc import Sequence
from typing import Any

TAGS = (
    *(f"<{slash}{name}>" for name in ("think", "search", "answer", "information", "tool_call") for slash in ("", "/")),
    *("<Search>", "< answer >", "<answer", "</search", "</ think>", "<answer/>", ">", "<", "</", "\n", " ", "\t"),
    *("Answer:", "**Answer**:", "\nAnswer: Paris\n", "Thought:", "Action: search[", "Action: finish[", "]", "[", "**"),
    *(
        "CORRECT",
        "INCORRECT",
        "correct",
        "Paris",
        "who wrote it?",
        "and",
        "no",
        "é",
        "北京",
        "\x00",
        "\u2028",
        "\ud800",
    ),
    *(
        '{"name": "search", "arguments": {"query": "',
        '"}}',
        '{"name": ',
        '"search"',
        ', "arguments": ',
        '"query"',
        ": ",
    ),
    *(
        "{",
        "}",
        '"',
        "\\",
        "null",
        "NaN",
        "1e999",
        "[1]",
        '{"a": 1}',
        "<|im_end|>",
        "\\u0000",
        "\\ud800",
        "5",
        "-",
        ",",
    ),
)
ANSWERS = (
    *("a", "A", "an", "the", "The", "yes", "no", "noanswer", "Paris", "paris", "New", "York", "U.S.", "us", "don't"),
    *("1", "0", "00", "5", "12", "314", "1,000", "1000", "31.4", "-5", "−5", "2½", "10²", "٣", "３", "①", "Ⅳ"),
    *(
        ".",
        ",",
        "'",
        "’",
        "-",
        "–",
        "—",
        "−",
        "_",
        "%",
        "$",
        "€",
        "°",
        "(",
        ")",
        "[",
        '"',
        "“",
        "”",
        "…",
        "!",
        "?",
        "/",
    ),
    *(" ", "  ", "\t", "\n", "\u00a0", "\u2003", "\u200b", "\u00ad", "\ufeff", "\x00", "\ud800", "\U000e0041"),
    *(
        "é",
        "e\u0301",
        "É",
        "ñ",
        "ß",
        "ẞ",
        "İ",
        "ı",
        "ſ",
        "Σ",
        "ς",
        "ﬁ",
        "Å",
        "Å",
        "が",
        "か\u3099",
        "북",
        "\u0301",
        "\u0345",
    ),
    *(
        "北",
        "京",
        "ا",
        "\u05b0",
        "א",
        "\u0e33",
        "🏳",
        "\u200d",
        "º",
        "ª",
        "&",
        "and",
        "+",
        "=",
        "~",
        "x",
        "e",
        "E",
        "1e5",
    ),
)

_END, _OWN = 0xFF, 0xC0


class Bytes:
    """Reads values off a string of bytes; behind its end there are zeros."""

    def __init__(self, data: bytes):
        self._data, self._at = data, 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def byte(self, below: int = 256) -> int:
        """From 0 to ``below`` - 1."""
        self._at += 1
        return self._data[self._at - 1] % below if self._at <= len(self._data) else 0

    def text(self, pieces: Sequence[str]) -> str:
        """Up to a byte 0xFF or the end: a piece a byte, from 0xC0 on a character of the next three bytes."""
        found: list[str] = []
        while self.left > 0:
            byte = self.byte()
            if byte == _END:
                break
            if byte < _OWN:
                found.append(pieces[byte % len(pieces)])
            else:
                found.append(chr(int.from_bytes((self.byte(), self.byte(), self.byte())) % 0x110000))
        return "".join(found)

    def value(self, pieces: Sequence[str], names: Sequence[str], depth: int = 3) -> Any:
        """A value as JSON has them, at most ``depth`` levels deep."""
        kind = self.byte(12 if depth else 7)
        if kind < 3:
            return self.text(pieces)
        if kind < 7:
            return (None, self.byte() - 128, self.byte() / 8, bool(self.byte(2)))[kind - 3]
        if kind < 9:
            return [self.value(pieces, names, depth - 1) for _ in range(self.byte(4))]
        return {self.name(names): self.value(pieces, names, depth - 1) for _ in range(self.byte(4))}

    def name(self, names: Sequence[str]) -> str:
        return names[self.byte(len(names))]

    def variant(self, text: str) -> str:
        """``text`` as someone else might write it: what graders are there to see through, or not."""
        changed = text
        for _ in range(1 + self.byte(3)):
            kind = self.byte(8)
            if kind == 0:
                changed = changed.swapcase()
            elif kind == 1:
                changed = unicodedata.normalize(("NFC", "NFD", "NFKC", "NFKD")[self.byte(4)], changed)
            elif kind == 2:
                changed = ("The ", "a ", " ", "(")[self.byte(4)] + changed + (".", "!", " an", ")")[self.byte(4)]
            elif kind == 3:
                changed = " ".join(changed.split())
            elif kind == 4:
                at = self.byte() % (len(changed) + 1)
                changed = changed[:at] + string.punctuation[self.byte(len(string.punctuation))] + changed[at:]
            elif kind == 5:
                changed = changed.translate({0x27: "’", 0x2D: "–", 0x22: "“"})
            elif kind == 6 and changed:
                at = self.byte() % len(changed)
                changed = changed[:at] + changed[at + 1 :]
            else:
                changed = changed.replace(",", "").replace(".", "")
        return changed
