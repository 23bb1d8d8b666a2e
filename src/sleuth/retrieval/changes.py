"""Passages added to and deleted from a tantivy index, all in force together or not at all.

The order is: new passages are appended to the store, behind the end that the manifest states; the coming manifest is
written beside it; tantivy commits; the coming manifest takes its name. tantivy's commit is the one moment at which the
change happens. A process killed before it leaves a tail that nobody reads; killed after it, the next one that opens the
index finishes the renaming, since tantivy's own record says that the commit took place.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from sleuth.errors import UserError
from sleuth.retrieval.analysis import Analyzer
from sleuth.retrieval.chunking import Chunking
from sleuth.retrieval.corpus import CorpusDigest, read_passages
from sleuth.retrieval.manifest import MANIFEST, Manifest, read_manifest
from sleuth.retrieval.problems import Problem, Problems
from sleuth.retrieval.store import StoreWriter

COMING = "manifest.coming.json"
_LOCK = ".lock"


@dataclass(frozen=True, slots=True)
class Change:
    """Passages that were ``added``, ``replaced`` (added, with an id that was there) and ``deleted``."""

    added: int
    replaced: int
    deleted: int
    problems: Problems


def change_index(
    folder: Path,
    *,
    add: str | None = None,
    delete: Iterable[str] = (),
    strict: bool = False,
    chunking: Chunking | None = None,
) -> Change:
    """Delete passages by id and add those of a corpus. An id that is there already is replaced.

    Raises:
        UserError: not a tantivy index, another process is changing it, or the corpus can't be read.
    """
    read_manifest(folder)  # what is no index gets no lock
    with _locked(folder):
        _finish(folder)
        manifest = read_manifest(folder)
        if manifest.kind != "tantivy":
            raise UserError(
                f"{folder}: a {manifest.kind} index can't be changed; build it with --kind tantivy for that"
            )
        from sleuth.retrieval.tantivy_index import TantivyEngine, TantivyWriter

        problems = Problems(strict=strict)
        known = TantivyEngine(folder, manifest)
        writer = TantivyWriter(folder, Analyzer.described(manifest.analyzer), new=False)
        store = StoreWriter(folder, (manifest.bytes, manifest.passages))
        digest = CorpusDigest(manifest.corpus_hash)
        deleted = 0
        for identity in dict.fromkeys(delete):
            if not known.rows_of("id", identity):
                raise UserError(f"{folder}: no passage has the id {identity!r}; nothing was changed")
            writer.delete(identity)
            digest.add_text(identity)
            deleted += 1
        added = replaced = 0
        seen: set[str] = set()
        for passage in read_passages(add, problems, chunking=chunking) if add is not None else ():
            document = passage.document
            if passage.part is not None:
                raise UserError(f'{passage.place}: an index has no parts; drop the field "corpus"')
            if document.id in seen:
                problems.add(Problem.DUPLICATE, passage.place, passage.number, f'id "{document.id}" was used before')
                continue
            seen.add(document.id)
            if known.rows_of("id", document.id):
                writer.delete(document.id)
                replaced += 1
            writer.add(document, store.count)
            store.add(document)
            digest.add(document)
            added += 1
        store.close()
        if added or deleted:
            coming = _coming(manifest, store, digest.hexdigest())
            coming.write(folder, COMING)
            writer.commit()
            _finish(folder)
        return Change(added - replaced, replaced, deleted, problems)


def finish_change(folder: Path) -> None:
    """Finish, or drop, a change whose process was killed. Nothing is done while another process is changing it."""
    if not (folder / COMING).exists():
        return
    try:
        with _locked(folder):
            _finish(folder)
    except UserError:
        return


def _finish(folder: Path) -> None:
    from sleuth.retrieval.tantivy_index import committed_opstamp

    if not (folder / COMING).exists():
        return
    manifest, coming = read_manifest(folder), read_manifest(folder, COMING)
    stamp = committed_opstamp(folder)
    if stamp == manifest.opstamp:
        (folder / COMING).unlink()
        return
    coming.opstamp = stamp
    coming.write(folder, MANIFEST)
    (folder / COMING).unlink()


def _coming(manifest: Manifest, store: StoreWriter, corpus_hash: str) -> Manifest:
    return replace(manifest, passages=store.count, bytes=store.bytes, corpus_hash=corpus_hash, opstamp=None)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    try:
        handle = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR, 0o666)
    except OSError as error:
        raise UserError(f"{folder}: can't be written ({error.strerror})") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise UserError(f"{folder}: another process is changing this index; wait for it") from None
    finally:
        os.close(handle)
