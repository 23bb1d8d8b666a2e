"""A small corpus, an encoder without weights, and processes that die where a test wants them to."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable

import numpy as np

CITIES = [
    {"id": "paris", "title": "Paris", "text": "Paris is the capital of France. It lies on the Seine."},
    {"id": "berlin", "title": "Berlin", "text": "Berlin is the capital of Germany."},
    {"id": "sao", "title": "São Paulo", "text": 'A city in Brazil.\nBeyoncé — "Queen B" — sang there in 2010.'},
    {"id": "lyon", "title": "Lyon", "text": "Lyon is a city in France."},
    {"id": "paris-2", "title": "Paris", "text": "The Louvre is a museum on the right bank."},
]


def hashing_encoder(dimension: int = 64) -> Callable[[list[str]], np.ndarray]:
    """A bag of hashed words, as unit vectors: near where texts share words."""

    def encode(texts: list[str]) -> np.ndarray:
        vectors = np.zeros((len(texts), dimension))
        for row, text in enumerate(texts):
            for word in text.lower().replace(".", " ").split():
                vectors[row, zlib.crc32(word.encode()) % dimension] += 1
        return vectors

    return encode


def killed(work: Callable[[], object]) -> bool:
    """Run ``work`` in a process of its own; True where it died by ``os._exit(9)`` inside."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


def die(*_: object, **__: object) -> None:
    os._exit(9)
