"""What turns text into vectors for a dense index: sentence-transformers, or an encoder of your own."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sleuth.errors import UserError
from sleuth.models import no_loading_bars
from sleuth.plugins import load_object

_E5 = re.compile(r"(^|[/_-])e5([_-]|$)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Encoder:
    """An encoder with what it wants in front of a text.

    Attributes:
        name: as the user gave it; an index remembers it and refuses another.
        encode: texts in, (texts, dimension) out.
        query_prefix, passage_prefix: E5 models want ``query: `` and ``passage: ``.
    """

    name: str
    encode: Callable[[list[str]], Any]
    query_prefix: str = ""
    passage_prefix: str = ""

    def queries(self, texts: Sequence[str]) -> np.ndarray:
        """Unit vectors, float32 (texts, dimension)."""
        return self._unit([self.query_prefix + text for text in texts])

    def passages(self, texts: Sequence[str]) -> np.ndarray:
        """Unit vectors, float32 (texts, dimension)."""
        return self._unit([self.passage_prefix + text for text in texts])

    def _unit(self, texts: list[str]) -> np.ndarray:
        vectors = np.asarray(self.encode(texts), np.float32)
        if vectors.ndim != 2 or len(vectors) != len(texts):
            raise UserError(f"encoder {self.name}: {len(texts)} texts gave an array of shape {vectors.shape}")
        if not np.isfinite(vectors).all():
            raise UserError(f"encoder {self.name}: a vector holds NaN or infinity")
        return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def full_name(name: str) -> str:
    """A model folder by its whole path, so that an index finds it from anywhere; any other name as it is."""
    path = Path(name).expanduser()
    return str(path.absolute()) if path.is_dir() else name


def load_encoder(name: str, device: str | None = None, prefixes: tuple[str, str] | None = None) -> Encoder:
    """The encoder called ``name``.

    Args:
        name: a model folder or hub name for sentence-transformers, or ``module:function`` of your own, which is called
            without arguments and returns a function from a list of texts to an array (texts, dimension).
        device: for sentence-transformers (``cpu``, ``cuda:1``); None: its own choice.
        prefixes: in front of a query and of a passage; None: ``query: `` and ``passage: `` for E5 models, else none.

    Raises:
        UserError: it can't be loaded.
    """
    if prefixes is None:
        prefixes = ("query: ", "passage: ") if _E5.search(Path(name).name) else ("", "")
    if ":" in name and not Path(name).exists():
        return Encoder(name, load_object(name)(), *prefixes)
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError:
        raise UserError("a dense index needs sentence-transformers; pip install 'sleuth[dense]'") from None
    no_loading_bars()
    try:
        model = SentenceTransformer(name, device=device)
    except Exception as error:  # whatever the hub, the files or torch raise
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UserError(f"encoder {name}: can't be loaded ({first}); give a model folder or a hub name") from None

    def encode(texts: list[str]) -> Any:
        return model.encode(texts, batch_size=64, show_progress_bar=False, convert_to_numpy=True)

    return Encoder(name, encode, *prefixes)
