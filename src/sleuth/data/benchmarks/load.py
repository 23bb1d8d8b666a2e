"""A benchmark's questions with their provenance: from a folder, from the cache, else from where it is published."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from sleuth.data.benchmarks.catalogue import Benchmark, find_benchmark, is_benchmark
from sleuth.data.benchmarks.sealed import CANARY, SEALED_FIELDS, unsealed
from sleuth.data.benchmarks.sources import Found, in_folder, published
from sleuth.data.benchmarks.store import Store, content_sha256
from sleuth.data.contexts import Pool, paragraphs_of, pooled_question
from sleuth.data.forms import question_of, question_row
from sleuth.data.rows import Row
from sleuth.errors import UserError
from sleuth.types import Question

_HASHED = ("id", "question", "golden_answers")
_PASSAGES = ("context", "contexts", "paragraphs", "context_ids")


@dataclass(frozen=True, slots=True)
class Provenance:
    """What is said beside every score on a benchmark.

    Attributes:
        split: the benchmark's; ``expected`` is its published number of questions.
        questions: how many there are here; ``complete`` when they are all of them.
        left_out: reason → rows that were in the place and are no part of the benchmark.
        sha256: of ids, questions and golden answers, in any order (of the encrypted texts, if published so).
        source: the place that they came from.
        sealed: texts must not be written down in the open (:func:`sleuth.data.benchmarks.sealed_row`).
    """

    name: str
    title: str
    split: str
    questions: int
    expected: int
    complete: bool
    left_out: Mapping[str, int]
    sha256: str
    licence: str
    paper: str
    source: str
    sealed: bool
    note: str

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def line(self) -> str:
        """One line for people."""
        all_of = "all" if self.complete else f"{self.questions:,} of"
        return (
            f"{self.name}: {all_of} {self.expected:,} questions ({self.split}), {self.licence}, "
            f"SHA-256 {self.sha256[:16]}…, {self.source}"
        )


@dataclass(frozen=True, slots=True)
class LoadedBenchmark:
    """``questions`` have the benchmark's name as ``data_source``, and ``hops``, ``qtype`` in ``extra`` where known."""

    benchmark: Benchmark
    questions: list[Question]
    provenance: Provenance


def load_benchmark(
    name: str,
    *,
    folder: str | os.PathLike[str] | None = None,
    sha256: str | None = None,
    store: Store | None = None,
    fetch: bool = True,
) -> LoadedBenchmark:
    """The questions of a benchmark.

    Args:
        folder: read them from this folder or file (:func:`sleuth.data.benchmarks.sources.in_folder`); nothing is
            cached then. None: the cached copy, and if there is none, they are fetched and cached.
        sha256: refuse any other content (:attr:`Provenance.sha256`, or its first characters).
        fetch: False refuses instead of going to the network.

    Raises:
        UserError: unknown name, not to be had, damaged, or not the questions that were asked for.
    """
    benchmark = find_benchmark(name)
    store = store or Store()
    if folder is not None:
        rows, provenance = _taken(benchmark, in_folder(benchmark, Path(folder)))
    else:
        known = store.provenance(benchmark.name)
        if known is None:
            if not fetch:
                raise UserError(f"{benchmark.name} is not cached; fetch it first: sleuth data get {benchmark.name}")
            fetch_benchmark(benchmark.name, store=store)
            known = store.provenance(benchmark.name)
        provenance = _provenance(known, store.where(benchmark.name))
        rows = store.rows(benchmark.name)
        if _hash(benchmark, rows) != provenance.sha256:
            raise UserError(
                f"{store.where(benchmark.name)}: not what was fetched (wrong SHA-256); "
                f"fetch it again: sleuth data get {benchmark.name} --force"
            )
    _check_hash(provenance, sha256)
    return LoadedBenchmark(benchmark, [_opened(benchmark, row) for row in rows], provenance)


def load_benchmarks(
    names: Iterable[str], *, folder: str | os.PathLike[str] | None = None, store: Store | None = None
) -> list[LoadedBenchmark]:
    """:func:`load_benchmark` for several names, each once; ids differ across them.

    Raises:
        UserError: as there, and when two names lead to one file.
    """
    loaded: dict[str, LoadedBenchmark] = {}
    for name in dict.fromkeys(find_benchmark(name).name for name in names):
        one = load_benchmark(name, folder=folder, store=store)
        other = loaded.setdefault(one.provenance.source, one)
        if other is not one:
            raise UserError(
                f"{one.provenance.source} would be {other.provenance.name} and {name}; name each one's own folder"
            )
    return list(loaded.values())


def fetch_benchmark(
    name: str,
    *,
    folder: str | os.PathLike[str] | None = None,
    sha256: str | None = None,
    accept_change: bool = False,
    store: Store | None = None,
) -> Provenance:
    """Read a benchmark from ``folder``, or from where it is published, into the cache.

    Raises:
        UserError: not to be had, another hash than asked for or than the first time, or a published place with another
            number of questions than the benchmark has.
    """
    benchmark = find_benchmark(name)
    store = store or Store()
    found = in_folder(benchmark, Path(folder)) if folder is not None else published(benchmark)
    rows, provenance = _taken(benchmark, found)
    if found.whole and not provenance.complete:
        raise UserError(
            f"{benchmark.name}: {found.source} has {provenance.questions:,} questions, the benchmark "
            f"{benchmark.count:,}; it is not the published one"
        )
    _check_hash(provenance, sha256)
    store.pin(benchmark.name, provenance.source, provenance.sha256, renew=accept_change)
    store.write(benchmark.name, rows, provenance.as_dict())
    return provenance


# ---------------------------------------------------------------------------------------------------------------------
# Rows: as they are cached, sealed ones as published


def _taken(benchmark: Benchmark, found: Found) -> tuple[list[dict[str, Any]], Provenance]:
    left_out: dict[str, int] = {}
    rows = list(_rows(benchmark, found.rows, left_out))
    if not rows:
        raise UserError(f"{benchmark.name}: {found.source} holds none of its questions")
    _check_ids(benchmark, rows, found.source)
    provenance = Provenance(
        name=benchmark.name,
        title=benchmark.title,
        split=benchmark.split,
        questions=len(rows),
        expected=benchmark.count,
        complete=len(rows) == benchmark.count,
        left_out=left_out,
        sha256=_hash(benchmark, rows),
        licence=benchmark.licence,
        paper=benchmark.paper,
        source=found.source,
        sealed=benchmark.sealed,
        note=benchmark.note,
    )
    return rows, provenance


def _rows(benchmark: Benchmark, found: Iterator[Row], left_out: dict[str, int]) -> Iterator[dict[str, Any]]:
    for row in found:
        if benchmark.keeps is not None and not benchmark.keeps(row.fields):
            left_out["with an attached file"] = left_out.get("with an attached file", 0) + 1
            continue
        if str(row.fields.get("split", "")) == "train":
            left_out["of the training split"] = left_out.get("of the training split", 0) + 1
            continue
        named = row.fields.get("data_source")
        if isinstance(named, str) and is_benchmark(named) and find_benchmark(named) is not benchmark:
            raise UserError(f'{row.place}: its "data_source" is {named}, not {benchmark.name}; name the right folder')
        if benchmark.sealed:
            identity = str(row.fields.get("id") or f"{benchmark.name}_{row.number - 1}")
            unsealed(row.fields, row.place)  # a row that can't be read is found now, not in the middle of a run
            yield {name: value for name, value in row.fields.items() if name} | {"id": identity}
        else:
            yield question_row(_question(benchmark, row))


def _opened(benchmark: Benchmark, row: dict[str, Any]) -> Question:
    place = f'{benchmark.name} (id "{row.get("id")}")'
    if not benchmark.sealed:
        return question_of(Row(row, place, 0))
    question = _question(benchmark, Row(unsealed(row, place), place, 0))
    return replace(question, extra=question.extra | {CANARY: row[CANARY]})


def _question(benchmark: Benchmark, row: Row) -> Question:
    fields = {benchmark.columns.get(name, name): value for name, value in row.fields.items() if name}
    answer = fields.get("golden_answers")
    if isinstance(answer, str) and "golden_answers" not in row.fields:
        fields["golden_answers"] = [answer]  # these columns hold one answer as text, whatever it looks like
    if benchmark.name == "frames":
        fields = _frames(fields, row)
    paragraphs = paragraphs_of(Row(fields, row.place, row.number))
    question = question_of(Row(fields, row.place, row.number))
    question = pooled_question(question, paragraphs, Pool()) if paragraphs else question
    extra = {name: value for name, value in question.extra.items() if name not in _PASSAGES}
    if paragraphs:
        del extra["supporting_ids"]  # numbers within the row's own paragraphs
    hops = extra.get("hops", benchmark.hops)
    qtype = extra.pop("type", extra.get("qtype"))
    extra |= {name: value for name, value in (("hops", hops), ("qtype", qtype)) if value is not None}
    return replace(question, id=_with_name(question.id, benchmark.name, row), data_source=benchmark.name, extra=extra)


def _frames(fields: dict[str, Any], row: Row) -> dict[str, Any]:
    """Its ids are row numbers in a column without a name; its pages are a list written as text."""
    links = fields.get("wiki_links")
    if isinstance(links, str):
        fields["wiki_links"] = links = [link.strip(" '\"") for link in links.strip("[] ").split(", ") if link]
    fields.setdefault("id", f"frames_{row.fields.get('', row.fields.get('Unnamed: 0', row.number - 1))}")
    if isinstance(links, list) and "supporting_titles" not in fields:
        fields["supporting_titles"] = list(dict.fromkeys(filter(None, map(_title_of, links))))
    if isinstance(fields.get("reasoning_types"), str):
        fields.setdefault("qtype", fields["reasoning_types"])
    return {name: value for name, value in fields.items() if not name.startswith(("Unnamed", "wikipedia_link"))}


def _title_of(link: str) -> str:
    from urllib.parse import unquote

    _, _, page = link.partition("/wiki/")
    return unquote(page.partition("#")[0]).replace("_", " ").strip()


def _with_name(identity: str, name: str, row: Row) -> str:
    """Ids of different benchmarks must differ; FlashRAG's are ``test_0`` in all of them."""
    if identity.startswith((f"{name}_", f"{name}-")):
        return identity
    return f"{name}_{identity}"


def _hash(benchmark: Benchmark, rows: Iterable[dict[str, Any]]) -> str:
    return content_sha256(rows, ("id", *SEALED_FIELDS, CANARY) if benchmark.sealed else _HASHED)


def _check_ids(benchmark: Benchmark, rows: list[dict[str, Any]], source: str) -> None:
    seen: set[str] = set()
    for row in rows:
        if row["id"] in seen:
            raise UserError(f'{benchmark.name}: {source} has the id "{row["id"]}" twice; ids must differ')
        seen.add(row["id"])


def _check_hash(provenance: Provenance, wanted: str | None) -> None:
    if wanted is not None and not provenance.sha256.startswith(wanted.lower()):
        raise UserError(
            f"{provenance.name}: {provenance.source} has SHA-256 {provenance.sha256}, you asked for {wanted}; "
            "these are other questions"
        )


def _provenance(known: dict[str, Any] | None, place: Path) -> Provenance:
    try:
        return Provenance(**(known or {}))
    except TypeError:
        raise UserError(
            f"{place.parent}: written by another version of Sleuth ({json.dumps(known)[:60]}…); "
            f"fetch it again: sleuth data get {place.parent.name} --force"
        ) from None
