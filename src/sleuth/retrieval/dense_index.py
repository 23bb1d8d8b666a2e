"""Nearest neighbours of a query's vector, by faiss: exact for small corpora, inverted lists for large ones.

How well inverted lists find the true neighbours depends on the data alone, so it is measured: queries made from the
corpus itself, against exact search, and the number of lists that are looked into is the smallest one that is good
enough.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, field_validator

from sleuth.errors import UserError
from sleuth.retrieval.encoders import Encoder, full_name, load_encoder
from sleuth.retrieval.engine import Hits
from sleuth.retrieval.manifest import Manifest
from sleuth.retrieval.store import PassageStore
from sleuth.types import Document

INDEX = "vectors.faiss"
VECTORS = "vectors.f32"
_CHUNK = 512
_SAMPLE = 256
_DEPTH = 10
_SENTENCE_END = ".!?。！？"


class DenseSettings(BaseModel):
    """How passages become vectors and vectors an index.

    Attributes:
        encoder: see :func:`sleuth.retrieval.encoders.load_encoder`.
        query_prefix, passage_prefix: put in front; None: by the encoder's name.
        exact_up_to: passages up to which every vector is compared; above, inverted lists of 8-bit vectors.
        recall: the share of the true 10 nearest that inverted lists have to find on the sample.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    encoder: str
    query_prefix: str | None = None
    passage_prefix: str | None = None
    exact_up_to: int = Field(default=100_000, ge=0)
    recall: float = Field(default=0.95, gt=0, le=1)

    @field_validator("encoder")
    @classmethod
    def _from_anywhere(cls, value: str) -> str:
        return full_name(value)

    def load(self, device: str | None = None) -> Encoder:
        if self.query_prefix is None and self.passage_prefix is None:
            return load_encoder(self.encoder, device)
        return load_encoder(self.encoder, device, (self.query_prefix or "", self.passage_prefix or ""))


def passage_text(document: Document) -> str:
    """What of a passage is encoded."""
    return f"{document.title}\n{document.text}" if document.title else document.text


def encode_passages(
    store: PassageStore, encoder: Encoder, folder: Path, progress: Callable[[int], None] = lambda done: None
) -> int:
    """Write all passages' vectors to a file in ``folder``, going on from what is there; the dimension.

    Args:
        progress: called with the number of passages that have their vector.
    """
    dimension = encoder.passages(["x"]).shape[1]
    path = folder / VECTORS
    row_bytes = 4 * dimension
    done = (path.stat().st_size // row_bytes if path.exists() else 0) // _CHUNK * _CHUNK
    with path.open("r+b" if path.exists() else "wb") as file:
        file.truncate(done * row_bytes)
        file.seek(done * row_bytes)
        progress(done)
        while done < len(store):
            rows = range(done, min(done + _CHUNK, len(store)))
            file.write(encoder.passages([passage_text(store.document(row)) for row in rows]).tobytes())
            file.flush()
            os.fsync(file.fileno())
            done = rows.stop
            progress(done)
    return dimension


def build_dense(
    store: PassageStore, settings: DenseSettings, encoder: Encoder, folder: Path, dimension: int
) -> dict[str, Any]:
    """Make the index of the encoded vectors; what the manifest has to say of it, the measured recall among it."""
    faiss = import_faiss()
    count = len(store)
    vectors = np.memmap(folder / VECTORS, np.float32, "r", shape=(count, dimension))
    said: dict[str, Any] = {
        "encoder": settings.encoder,
        "query_prefix": encoder.query_prefix,
        "passage_prefix": encoder.passage_prefix,
        "dimension": dimension,
    }
    if count <= settings.exact_up_to:
        index = faiss.IndexFlatIP(dimension)
        for rows in _chunks(count):
            index.add(np.ascontiguousarray(vectors[rows]))
        said |= {"index": "exact", "recall_at_10": 1.0}
    else:
        lists = max(1, min(65_536, round(4 * math.sqrt(count))))
        index = faiss.index_factory(dimension, f"IVF{lists},SQ8", faiss.METRIC_INNER_PRODUCT)
        rng = np.random.default_rng(0)
        sample = np.sort(rng.choice(count, min(count, 50 * lists), replace=False))
        index.train(np.ascontiguousarray(vectors[sample]))
        for rows in _chunks(count):
            index.add(np.ascontiguousarray(vectors[rows]))
        probes, recall = _choose_probes(index, vectors, encoder.queries(_sample_queries(store)), settings.recall, lists)
        said |= {"index": f"IVF{lists},SQ8", "probes": probes, "recall_at_10": recall}
    faiss.write_index(index, str(folder / INDEX))
    (folder / VECTORS).unlink()
    return said


class DenseEngine:
    """Searches what :func:`build_dense` wrote (:class:`sleuth.retrieval.engine.Engine`); the score is the cosine."""

    def __init__(
        self, folder: Path, manifest: Manifest, *, probes: int | None = None, device: str | None = None
    ) -> None:
        faiss = import_faiss()
        said = manifest.settings
        self._encoder = load_encoder(said["encoder"], device, (said["query_prefix"], said["passage_prefix"]))
        flag = faiss.IO_FLAG_MMAP_IFC if said["index"] == "exact" else faiss.IO_FLAG_MMAP
        self._index = faiss.read_index(str(folder / INDEX), flag)
        if said["index"] != "exact":
            self._index.nprobe = int(probes or said["probes"])
        if self._index.d != said["dimension"]:
            raise UserError(f"{folder}: vectors of {self._index.d} dimensions, not {said['dimension']}; build it again")

    def search(self, queries: Sequence[str], k: int) -> list[Hits]:
        asked = [n for n, query in enumerate(queries) if query.strip()]
        hits: list[Hits] = [[] for _ in queries]
        if not asked or not self._index.ntotal:
            return hits
        vectors = self._encoder.queries([queries[n] for n in asked])
        scores, rows = self._index.search(vectors, min(k, self._index.ntotal))
        for n, row_list, score_list in zip(asked, rows.tolist(), scores.tolist(), strict=True):
            # faiss fills up with -1 where it found fewer.
            hits[n] = [(row, score) for row, score in zip(row_list, score_list, strict=True) if row >= 0]
        return hits


def _choose_probes(
    index: Any, vectors: np.ndarray, queries: np.ndarray, wanted: float, lists: int
) -> tuple[int, float]:
    """The smallest power of two (or all lists) that finds the wanted share of the true neighbours, and that share."""
    truth = _exact(vectors, queries, _DEPTH)
    probes = 1
    while True:
        index.nprobe = probes
        _, found = index.search(queries, truth.shape[1])
        shared = sum(len(set(f) & set(t)) for f, t in zip(found.tolist(), truth.tolist(), strict=True))
        recall = shared / truth.size
        if recall >= wanted or probes >= lists:
            return probes, recall
        probes = min(2 * probes, lists)


def _exact(vectors: np.ndarray, queries: np.ndarray, k: int) -> np.ndarray:
    """Rows of the ``k`` nearest, (queries, k), by comparing all."""
    k = min(k, len(vectors))
    scores = np.empty((len(queries), 0), np.float32)
    rows = np.empty((len(queries), 0), np.int64)
    for chunk in _chunks(len(vectors), 65_536):
        new = queries @ np.asarray(vectors[chunk]).T
        scores = np.concatenate([scores, new], axis=1)
        rows = np.concatenate([rows, np.broadcast_to(np.arange(chunk.start, chunk.start + new.shape[1]), new.shape)], 1)
        best = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        scores, rows = np.take_along_axis(scores, best, 1), np.take_along_axis(rows, best, 1)
    return rows


def _sample_queries(store: PassageStore) -> list[str]:
    """Sentences of passages drawn by seed: nearer to what is asked than whole passages are."""
    rng = np.random.default_rng(0)
    rows = rng.choice(len(store), min(len(store), _SAMPLE), replace=False).tolist()
    return [_first_sentence(store.document(row)) for row in rows]


def _first_sentence(document: Document) -> str:
    text = document.text or document.title
    end = min((at for mark in _SENTENCE_END if (at := text.find(mark, 20)) > 0), default=200)
    return text[: end + 1]


def _chunks(count: int, size: int = 16_384) -> Iterator[slice]:
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


def import_faiss() -> Any:
    """The library.

    Raises:
        UserError: it isn't installed.
    """
    try:
        import faiss
    except ImportError:
        raise UserError("a dense index needs faiss; pip install 'sleuth[dense]'") from None
    return faiss
