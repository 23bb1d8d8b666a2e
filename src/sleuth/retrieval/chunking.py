"""A text or Markdown file cut into passages: at headings, then at paragraphs, then at sentences.

A passage holds whole paragraphs as long as they fit, since one that ends in the middle of a thought is found and read
less well. Only what is too long by itself is cut at the ends of sentences, and only such a sentence between words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from pydantic import BaseModel, ConfigDict, Field, model_validator

_HEADING = re.compile(r" {0,3}(#{1,6})\s+(.*?)\s*#*\s*$")
_UNDERLINE = re.compile(r" {0,3}(=+|-+)\s*$")
_FENCE = re.compile(r" {0,3}(```|~~~)")
_LETTERS = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
_SENTENCE = re.compile(r"(?<=[.!?。！？])[\"'”’)\]]*\s+|(?<=[。！？])")


class Chunking(BaseModel):
    """How long a passage may be.

    Attributes:
        words: at most so many (white-space separated) words a passage. 100 is what the Wikipedia dumps of this field
            are cut to.
        overlap: words of whole sentences at the end of a passage that the next one repeats; 0: none.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    words: int = Field(default=100, ge=10)
    overlap: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _goes_on(self) -> Chunking:
        if self.overlap * 2 > self.words:
            raise ValueError(f"overlap={self.overlap} must be at most half of words={self.words}")
        return self


@dataclass(frozen=True, slots=True)
class Chunk:
    """A passage of a file; ``line`` is where its first paragraph begins, counted from 1."""

    title: str
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class _Paragraph:
    text: str
    line: int


def chunk_file(text: str, name: str, chunking: Chunking | None = None) -> Iterator[Chunk]:
    """The passages of one file, in reading order.

    The title of a passage is the file's own title (its first top heading, else its name without the ending) and, in
    Markdown, the headings that it stands under: ``Handbook › Travel › Trains``. Form feeds, which text taken from a PDF
    has between pages, end a paragraph. A Chinese or Japanese text without spaces counts a word for every two letters.

    Args:
        name: relative path of the file; ``.md`` and ``.markdown`` are read as Markdown.
    """
    chunking = chunking or Chunking()
    path = PurePosixPath(name)
    markdown = path.suffix.lower() in (".md", ".markdown")
    sections = list(_markdown_sections(text) if markdown else [((), _paragraphs(enumerate(text.splitlines(), 1)))])
    top = next((headings[0] for headings, _ in sections if headings), None)
    title = top or path.stem
    for headings, paragraphs in sections:
        below = headings[1:] if headings and headings[0] == title else headings
        yield from _packed(" › ".join((title, *below)), paragraphs, chunking)


def _markdown_sections(text: str) -> Iterator[tuple[tuple[str, ...], list[_Paragraph]]]:
    """(headings from the top down, paragraphs) of each stretch between two headings. Code blocks have no headings."""
    open_headings: list[tuple[int, str]] = []
    lines: list[tuple[int, str]] = []
    fence: str | None = None

    def section() -> tuple[tuple[str, ...], list[_Paragraph]]:
        return tuple(heading for _, heading in open_headings), _paragraphs(lines)

    for number, line in enumerate(text.splitlines(), 1):
        mark = _FENCE.match(line)
        if mark and fence in (None, mark[1]):
            fence = None if fence else mark[1]
        heading = None if fence else _heading(line, lines)
        if heading is None:
            lines.append((number, line))
            continue
        yield section()
        level, words = heading
        open_headings = [(depth, text) for depth, text in open_headings if depth < level] + [(level, words)]
        lines = []
    yield section()


def _heading(line: str, before: list[tuple[int, str]]) -> tuple[int, str] | None:
    """(level, words) of a heading; one that is written by underlining is taken out of ``before``."""
    if match := _HEADING.match(line):
        return len(match[1]), match[2]
    if (match := _UNDERLINE.match(line)) and before and before[-1][1].strip():
        alone = len(before) < 2 or not before[-2][1].strip()
        if alone and (match[1][0] == "=" or len(match[1]) > 2):
            return (1 if match[1][0] == "=" else 2), before.pop()[1].strip()
    return None


def _paragraphs(lines: Iterable[tuple[int, str]]) -> list[_Paragraph]:
    paragraphs: list[_Paragraph] = []
    held: list[str] = []
    start = 0
    for number, line in [*lines, (0, "")]:
        if line.strip():
            start = start if held else number
            held.append(line.rstrip())
        elif held:
            paragraphs.append(_Paragraph("\n".join(held), start))
            held = []
    return paragraphs


def _packed(title: str, paragraphs: Iterable[_Paragraph], chunking: Chunking) -> Iterator[Chunk]:
    """Passages of whole paragraphs, or of pieces of those that are too long."""
    held: list[_Paragraph] = []
    size = 0
    for piece in _pieces(paragraphs, chunking.words):
        words = _count(piece.text)
        if held and size + words > chunking.words:
            yield Chunk(title, "\n\n".join(p.text for p in held), held[0].line)
            held = _last_sentences(held[-1], min(chunking.overlap, chunking.words - words))
            size = sum(_count(p.text) for p in held)
        held.append(piece)
        size += words
    if held:
        yield Chunk(title, "\n\n".join(p.text for p in held), held[0].line)


def _pieces(paragraphs: Iterable[_Paragraph], limit: int) -> Iterator[_Paragraph]:
    for paragraph in paragraphs:
        if _count(paragraph.text) <= limit:
            yield paragraph
            continue
        sentences: list[str] = []
        size = 0
        for sentence in _sentences(paragraph.text, limit):
            words = _count(sentence)
            if sentences and size + words > limit:
                yield _Paragraph(_joined(sentences), paragraph.line)
                sentences, size = [], 0
            sentences.append(sentence)
            size += words
        yield _Paragraph(_joined(sentences), paragraph.line)


def _sentences(text: str, limit: int) -> Iterator[str]:
    """Sentences, those longer than ``limit`` words in pieces."""
    start = 0
    for end in [*(match.end() for match in _SENTENCE.finditer(text)), len(text)]:
        sentence = text[start:end].strip()
        start = end
        if sentence:
            yield from _cut(sentence, limit)


def _cut(sentence: str, limit: int) -> Iterator[str]:
    if _count(sentence) <= limit:
        yield sentence
        return
    words: list[str] = []
    size = 0
    for word in sentence.split():
        # A "word" of a script without spaces is cut as letters.
        parts = [word] if _count(word) <= limit else [word[i : i + 2 * limit] for i in range(0, len(word), 2 * limit)]
        for part in parts:
            if words and size + _count(part) > limit:
                yield " ".join(words)
                words, size = [], 0
            words.append(part)
            size += _count(part)
    if words:
        yield " ".join(words)


def _last_sentences(paragraph: _Paragraph, words: int) -> list[_Paragraph]:
    kept: list[str] = []
    for sentence in reversed(list(_sentences(paragraph.text, max(words, 1)) if words > 0 else [])):
        if _count(_joined([sentence, *kept])) > words:
            break
        kept.insert(0, sentence)
    return [_Paragraph(_joined(kept), paragraph.line)] if kept else []


def _joined(sentences: list[str]) -> str:
    """Sentences as one text: a full stop of a script without spaces has none behind it."""
    return "".join(s if s[-1] in "。！？" else f"{s} " for s in sentences).rstrip()


def _count(text: str) -> int:
    """Words; Chinese and Japanese letters, which have no spaces between them, count half a word each."""
    words = len(text.split())
    return words if text.isascii() else max(words, len(_LETTERS.findall(text)) // 2)
