"""`sleuth index`: build an index, or change one."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from sleuth.commands.folders import check_writable
from sleuth.commands.terminal import console
from sleuth.errors import UserError
from sleuth.recipes.validation import validated
from sleuth.retrieval import build as building
from sleuth.retrieval.build import IndexSettings, build_index
from sleuth.retrieval.chunking import Chunking
from sleuth.retrieval.estimate import estimate
from sleuth.retrieval.problems import Problems


def index(
    corpus: str,
    folder: Path,
    *,
    kind: str,
    bm25: dict[str, Any],
    dense: dict[str, Any],
    words: str | None,
    chunking: dict[str, Any],
    strict: bool,
    device: str | None,
    dry_run: bool,
) -> None:
    """Say what it will cost, build, say what came of it.

    Args:
        bm25, dense, chunking: settings that the user gave, by their names in :class:`IndexSettings`.
        dry_run: stop after the estimate.

    Raises:
        UserError: a wrong setting, corpus or folder.
    """
    raw = {"kind": kind, "bm25": bm25, "dense": dense, "chunking": chunking} | ({"words": words} if words else {})
    settings = validated(IndexSettings, raw, where="index")
    building.check_settings(settings)
    _refuse_unused(settings, bm25, dense, words)
    check_writable(folder)
    out = console(stderr=True)
    encoder = cache(partial(settings.load_encoder, device))  # once for both, and not before the corpus was read
    expected = estimate(corpus, settings, folder, encoder)
    out.print(expected.line())
    for warning in expected.warnings:
        out.print(f"warning: {warning}", soft_wrap=True)
    if dry_run:
        return
    started = time.monotonic()
    with _shown(expected.passages) as progress:
        built = build_index(corpus, folder, settings, strict=strict, encoder=encoder, progress=progress)
    _report(built.problems)
    if built.resumed:
        out.print("went on from an earlier build of the same corpus")
    manifest = built.manifest
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    out.print(
        f"{folder}: {manifest.passages:,} passages, {size / 1e6:,.1f} MB, {time.monotonic() - started:.1f} s; "
        f"corpus {manifest.corpus_hash[:12]}"
    )
    if "recall_at_10" in manifest.settings:
        how = manifest.settings["index"]
        probes = f", {manifest.settings['probes']} lists probed" if "probes" in manifest.settings else ""
        out.print(f"vectors: {how}{probes}; recall@10 against exact search {manifest.settings['recall_at_10']:.3f}")
    say = f"search it: sleuth serve {folder}, or retriever.kind=index retriever.corpus={folder} in a recipe"
    out.print(say, soft_wrap=True)


def change(folder: Path, *, add: str | None, delete: Sequence[str], strict: bool, chunking: dict[str, Any]) -> None:
    """Add passages to an index and delete others.

    Args:
        delete: ids, or one name of a file with an id a line, as ``@FILE``.

    Raises:
        UserError: it can't be changed, or an id isn't there.
    """
    from sleuth.retrieval.changes import change_index

    checked = validated(Chunking, chunking, where="index", prefix="chunking")
    done = change_index(folder, add=add, delete=_ids(delete), strict=strict, chunking=checked)
    _report(done.problems)
    console(stderr=True).print(f"{folder}: {done.added:,} added, {done.replaced:,} replaced, {done.deleted:,} deleted")


def show(folder: Path, *, as_json: bool) -> None:
    """What an index is."""
    from sleuth.retrieval.index import open_index

    opened = open_index(folder) if not as_json else None
    from sleuth.retrieval.manifest import read_manifest

    manifest = read_manifest(folder)
    if as_json:
        from dataclasses import asdict

        print(json.dumps(asdict(manifest), ensure_ascii=False))
        return
    out = console()
    assert opened is not None
    first = f"{folder}: {manifest.kind}, {len(opened):,} passages of {manifest.source}, corpus {opened.corpus_hash}"
    out.print(first, soft_wrap=True)
    for name, value in {**manifest.settings, **manifest.analyzer, **manifest.versions}.items():
        out.print(f"  {name}: {value}")


def _ids(given: Sequence[str]) -> list[str]:
    ids: list[str] = []
    for value in given:
        if not value.startswith("@"):
            ids.append(value)
            continue
        try:
            ids += [line.strip() for line in Path(value[1:]).read_text(encoding="utf-8").splitlines() if line.strip()]
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"--delete {value}: can't be read ({error})") from None
    return ids


def _refuse_unused(settings: IndexSettings, bm25: dict[str, Any], dense: dict[str, Any], words: str | None) -> None:
    """An option that this kind has no use for is a mistake, not something to drop."""
    unused = [*bm25] if settings.word_engine is None else []
    unused += [*dense] if not settings.has_vectors else []
    unused += ["words"] if words and settings.kind != "hybrid" else []
    if unused:
        raise UserError(f"--{unused[0].replace('_', '-')} means nothing for --kind {settings.kind}; drop it")


def _report(problems: Problems) -> None:
    for line in problems.lines():
        console(stderr=True).print(f"warning: {line}", soft_wrap=True)


@contextmanager
def _shown(passages: int | None) -> Iterator[building.Progress]:
    """A bar for each stage on a terminal; otherwise a line when a stage begins."""
    out = console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=out, disable=not out.is_terminal, transient=True) as bar:
        tasks: dict[str, Any] = {}
        totals = {"reading": passages}
        last = {"reading": 0}

        def progress(doing: str, done: int) -> None:
            if doing not in tasks:
                tasks[doing] = bar.add_task(doing, total=totals.get(doing, last["reading"] or passages))
                if not out.is_terminal:
                    out.print(doing)
            last[doing] = done
            bar.update(tasks[doing], completed=done)

        yield progress
