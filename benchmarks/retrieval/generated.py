"""Passages and queries that are made up: Zipf-distributed words, topics, titles. For sizes that no shipped data has."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

_WORDS = 400_000
_TOPIC = 8


def passages(count: int, seed: int = 0) -> Iterator[dict[str, str]]:
    """Rows of 60 to 100 words, 8 of them a topic that comes again and again in its passage."""
    for block in range(0, count, 1000):
        rng = np.random.default_rng([seed, block])
        size = min(1000, count - block)
        words = _zipf(rng, size * 100).reshape(size, 100)
        topics = rng.integers(0, _WORDS, (size, _TOPIC))
        lengths = rng.integers(60, 101, size)
        for row in range(size):
            text = [f"w{n}" for n in words[row, : lengths[row]]]
            text[::4] = [f"w{topics[row, n % _TOPIC]}" for n in range(len(text[::4]))]
            number = block + row
            title = f"w{topics[row, 0]} e{number // 7}"
            yield {"id": str(number), "title": title, "text": " ".join(text)}


def queries(count: int, corpus: int, seed: int = 0) -> list[str]:
    """Questions of about ten words on passages of a corpus of this size: a title, words of the text, words of any."""
    rng = np.random.default_rng([seed, 10**9])
    made: list[str] = []
    for number in rng.integers(0, corpus, count).tolist():
        block = number // 1000 * 1000
        inner = np.random.default_rng([seed, block])
        size = min(1000, corpus - block)
        _zipf(inner, size * 100)
        topics = inner.integers(0, _WORDS, (size, _TOPIC))[number - block]
        others = _zipf(rng, 4)
        made.append(" ".join([*(f"w{n}" for n in (*topics[:4], *others)), f"e{number // 7}", "who"]))
    return made


def _zipf(rng: np.random.Generator, count: int) -> np.ndarray:
    return np.minimum(rng.zipf(1.1, count), _WORDS) - 1
