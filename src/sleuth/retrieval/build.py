"""From a corpus to an index folder: passages first, then the engine, the manifest and the folder's name last.

Everything is made in ``.NAME.partial`` beside the folder, which takes its name when it is whole. A build that was
killed leaves that partial folder; the next one with the same corpus and settings goes on from the passages and vectors
that it finds there. Any other starts anew.
"""

from __future__ import annotations

import fcntl
import importlib.metadata
import json
import os
import shutil
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial as partial_call
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from sleuth.errors import UserError
from sleuth.jsonl import write_atomically
from sleuth.retrieval.bm25 import BM25Settings
from sleuth.retrieval.chunking import Chunking
from sleuth.retrieval.corpus import CorpusDigest, duplicate, read_passages
from sleuth.retrieval.manifest import MANIFEST, Manifest
from sleuth.retrieval.problems import Problem, Problems
from sleuth.retrieval.sources import source_files
from sleuth.retrieval.store import (
    LINES,
    PLACES,
    PassageStore,
    StoreWriter,
    escaped_field,
    field_hash,
    without_duplicates,
)
from sleuth.types import Document

if TYPE_CHECKING:
    from sleuth.retrieval.encoders import Encoder

Kind = Literal["bm25", "tantivy", "dense", "hybrid"]

Progress = Callable[[str, int], None]
"""Told of what is being done (``reading``, ``encoding``, ``indexing``) and how many passages have been."""

_PLAN, _READ = "plan.json", "read.json"
_EVERY = 1000


class IndexSettings(BaseModel):
    """What to build.

    Attributes:
        kind: ``bm25`` (exact, k1 and b of your own), ``tantivy`` (large corpora, little memory, passages can be added
            and deleted), ``dense`` (vectors of an encoder), ``hybrid`` (words and vectors, fused by rank).
        words: what ``hybrid`` finds words with.
        bm25: of bm25 and tantivy; tantivy refuses other k1 and b than its own.
        dense: a :class:`sleuth.retrieval.dense_index.DenseSettings` as a mapping, for dense and hybrid.
        rank_constant: of reciprocal rank fusion.
        chunking: of a folder of texts.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Kind = "bm25"
    words: Literal["bm25", "tantivy"] = "bm25"
    bm25: BM25Settings = Field(default_factory=BM25Settings)
    dense: dict[str, Any] = Field(default_factory=dict)
    rank_constant: int = Field(default=60, ge=1)
    chunking: Chunking = Field(default_factory=Chunking)

    @property
    def word_engine(self) -> str | None:
        """bm25 or tantivy, where words are indexed at all."""
        return {"dense": None, "hybrid": self.words}.get(self.kind, self.kind)

    @property
    def has_vectors(self) -> bool:
        return self.kind in ("dense", "hybrid")

    def load_encoder(self, device: str | None = None) -> Encoder:
        """What makes the vectors of dense and hybrid, on ``device`` (None: its own choice).

        Raises:
            UserError: it can't be loaded.
        """
        from sleuth.retrieval.dense_index import DenseSettings

        return DenseSettings.model_validate(self.dense).load(device)


@dataclass(frozen=True, slots=True)
class Built:
    """What a build did; ``resumed``: it went on from an earlier one."""

    manifest: Manifest
    problems: Problems
    resumed: bool


def build_index(
    source: str,
    folder: Path,
    settings: IndexSettings,
    *,
    strict: bool = False,
    device: str | None = None,
    encoder: Callable[[], Encoder] | None = None,
    progress: Progress = lambda doing, done: None,
) -> Built:
    """Build ``folder`` from the passages of ``source``.

    Args:
        strict: the first passage that can't be used stops the build.
        device: that the encoder runs on; None: its own choice.
        encoder: gives the encoder of an index with vectors; None: it is loaded here.

    Raises:
        UserError: the folder is taken, the corpus can't be read or has no passages, a library is missing, or another
            build of this folder is going on.
    """
    folder = Path(os.path.abspath(folder))
    check_settings(settings)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} is not empty; choose another folder with -o")
    partial = folder.with_name(f".{folder.name}.partial")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _only_one(folder):
        plan = _plan(source, settings, strict)
        if not _same_plan(partial, plan):
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            with write_atomically(partial / _PLAN) as out:
                out.write(json.dumps(plan).encode())
        resumed = (partial / _READ).is_file()
        problems = Problems(strict=strict)
        if not resumed:
            try:
                _read(source, partial, settings, problems, progress)
            except UserError:  # the corpus has to be mended, so that nothing here is of use any more
                shutil.rmtree(partial)
                raise
        manifest = _index(source, partial, settings, encoder or partial_call(settings.load_encoder, device), progress)
        for name in (_PLAN, _READ):
            (partial / name).unlink()
        sync_folder(partial)
        if folder.exists():
            folder.rmdir()
        os.replace(partial, folder)
        sync_folder(folder.parent)
    return Built(manifest, problems, resumed)


def check_settings(settings: IndexSettings) -> None:
    """Refuse what can't be built before anything is read.

    Raises:
        UserError: k1 or b that tantivy doesn't have, no encoder, or a library that is missing.
    """
    if settings.word_engine:
        settings.bm25.analyzer()
    if settings.word_engine == "tantivy":
        from sleuth.retrieval.tantivy_index import check_parameters, import_tantivy

        import_tantivy()
        check_parameters(settings.bm25.k1, settings.bm25.b)
    if settings.has_vectors:
        from sleuth.recipes.validation import validated
        from sleuth.retrieval.dense_index import DenseSettings, import_faiss

        import_faiss()
        if not settings.dense.get("encoder"):
            raise UserError(f"--kind {settings.kind} needs --encoder: a model folder, a hub name or module:function")
        validated(DenseSettings, settings.dense, where="index", prefix="dense")


def _read(source: str, partial: Path, settings: IndexSettings, problems: Problems, progress: Progress) -> None:
    """Write the store of all passages that can be used."""
    writer = StoreWriter(partial)
    hashes, numbers = array("Q"), array("q")
    places: dict[int, str] = {}
    for passage in read_passages(source, problems, chunking=settings.chunking):
        if passage.part is not None:
            raise UserError(
                f'{passage.place}: an index has no parts ("corpus": "{passage.part}"); search this corpus in process '
                f"with retriever.kind=bm25, or index each part by itself, without the field"
            )
        file = passage.place.rpartition(", ")[0]
        if not places or next(reversed(places.values())) != file:
            places[writer.count] = file
        writer.add(passage.document)
        hashes.append(field_hash(escaped_field(passage.document.id)))
        numbers.append(passage.number)
        if writer.count % _EVERY == 0:
            progress("reading", writer.count)
    writer.close()
    progress("reading", writer.count)
    found = np.frombuffer(hashes, np.uint64) if hashes else np.empty(0, np.uint64)
    for identity, row, first in without_duplicates(partial, found):
        file = next(name for start, name in reversed(places.items()) if start <= row)
        place = f"{file}, line {numbers[row]}"
        problems.add(Problem.DUPLICATE, place, numbers[row], duplicate(identity, numbers[first]))
    count = len(PassageStore(partial))
    if not count:
        kinds = "; ".join(problems.lines())
        raise UserError(f"{source}: no passages; a corpus needs at least one{f' ({kinds})' if kinds else ''}")
    with write_atomically(partial / _READ) as out:
        out.write(json.dumps({"passages": count, "problems": problems.as_json()}).encode())


def _index(
    source: str, partial: Path, settings: IndexSettings, load: Callable[[], Encoder], progress: Progress
) -> Manifest:
    read = json.loads((partial / _READ).read_text())
    (partial / MANIFEST).unlink(missing_ok=True)
    store = PassageStore(partial)
    files = [LINES, PLACES]
    said: dict[str, Any] = {}
    analyzer = settings.bm25.analyzer() if settings.word_engine else None
    digest = CorpusDigest()
    if settings.has_vectors:
        from sleuth.retrieval.dense_index import INDEX, DenseSettings, build_dense, encode_passages

        dense = DenseSettings.model_validate(settings.dense)
        encoder = load()
        dimension = encode_passages(store, encoder, partial, lambda done: progress("encoding", done))
        said |= build_dense(store, dense, encoder, partial, dimension)
        files.append(INDEX)
    documents = _counted(store, digest, progress)
    if settings.word_engine == "bm25":
        from sleuth.retrieval.bm25_index import build_bm25

        files += build_bm25(documents, partial, settings.bm25)
    elif settings.word_engine == "tantivy":
        from sleuth.retrieval.tantivy_index import FOLDER, build_tantivy

        shutil.rmtree(partial / FOLDER, ignore_errors=True)
        assert analyzer is not None
        build_tantivy(documents, partial, analyzer)
    for _ in documents:  # what no engine has read still counts for the hash
        pass
    if settings.kind == "hybrid":
        said |= {"words": settings.words, "rank_constant": settings.rank_constant}
    if settings.word_engine:
        said |= {"k1": settings.bm25.k1, "b": settings.bm25.b}
    if settings.kind != "tantivy":
        files += store.write_lookups()
    manifest = Manifest(
        kind=settings.kind,
        passages=len(store),
        bytes=store.bytes,
        corpus_hash=digest.hexdigest(),
        analyzer=analyzer.description if analyzer else {},
        settings=said,
        versions=versions(settings),
        source=source,
        problems=read["problems"],
        opstamp=_opstamp(partial) if settings.kind == "tantivy" else None,
    )
    # Passages can be added to a tantivy index, so that its files grow.
    manifest.measure(partial, files if settings.kind != "tantivy" else [])
    for name in files:
        _sync(partial / name)
    manifest.write(partial)
    return manifest


def _counted(store: PassageStore, digest: CorpusDigest, progress: Progress) -> Iterator[Document]:
    for number, document in enumerate(store.documents(), 1):
        digest.add(document)
        yield document
        if number % _EVERY == 0 or number == len(store):
            progress("indexing", number)


def versions(settings: IndexSettings) -> dict[str, str]:
    """Of Sleuth and of the libraries that this kind of index is made by."""
    names = ["sleuth", *({"bm25": ["bm25s"], "tantivy": ["tantivy"]}.get(settings.word_engine or "", []))]
    names += ["faiss-cpu", "sentence-transformers"] if settings.has_vectors else []
    found = {}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _opstamp(folder: Path) -> int | None:
    from sleuth.retrieval.tantivy_index import committed_opstamp

    return committed_opstamp(folder)


def _plan(source: str, settings: IndexSettings, strict: bool) -> dict[str, Any]:
    """What has to be the same for a build to go on from another."""
    files = [[str(f.resolve()), f.stat().st_size, f.stat().st_mtime_ns] for f in source_files(source)]
    said = {"source": str(source), "files": files, "settings": settings.model_dump(mode="json"), "strict": strict}
    return json.loads(json.dumps(said | {"sleuth": importlib.metadata.version("sleuth")}))


def _same_plan(partial: Path, plan: dict[str, Any]) -> bool:
    try:
        return json.loads((partial / _PLAN).read_text()) == plan and bool(plan["files"])
    except (OSError, ValueError):
        return False


@contextmanager
def _only_one(folder: Path) -> Iterator[None]:
    """Holds the folder's lock, which a killed process lets go of by itself."""
    path = folder.with_name(f".{folder.name}.lock")
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"{folder}: another process builds this index; wait for it") from None
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_folder(folder: Path) -> None:
    """Have the names in a folder on the disk."""
    _sync(folder)
