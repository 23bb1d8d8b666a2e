"""Own scores and published ones in one table, each source with how its set-up differs from one's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sleuth.data.benchmarks.catalogue import find_benchmark, is_benchmark
from sleuth.evaluation.published.figures import Figure, Source, flags
from sleuth.evaluation.sheet import Sheet
from sleuth.evaluation.statistics import Interval

_NAMES = {"grader": "grader", "k": "passages a search", "retriever": "retriever", "corpus": "corpus"}
_TITLES = {"em": "EM", "f1": "F1", "accuracy": "Accuracy by a judge"}


@dataclass(frozen=True, slots=True)
class Own:
    """Scores of one's own.

    Attributes:
        values: benchmark → mean with its interval.
        questions: benchmark → how many were scored.
        setup: ``grader``, ``k``, ``retriever``, ``corpus``, as far as known.
    """

    label: str
    metric: str
    values: Mapping[str, Interval]
    questions: Mapping[str, int]
    setup: Mapping[str, Any]


def differences(source: Source, own: Own) -> list[str]:
    """How the set-up behind ``source`` differs from that of ``own``, or that it isn't stated; each a phrase."""
    found = []
    for name, words in _NAMES.items():
        theirs, ours = source.setup.get(name), own.setup.get(name)
        if theirs is None:
            found.append(f"{words} not stated")
        elif ours is None or str(theirs) != str(ours):
            found.append(f"{words} {theirs}, here {'not known' if ours is None else ours}")
    if "trained_on" in source.setup:
        found.append(f"trained on {source.setup['trained_on']}")
    rule = source.setup.get("checkpoint")
    found.append(f"checkpoint: {rule}" if rule else "checkpoint rule not stated")
    return found


def short_of_whole(own: Own) -> list[str]:
    """Benchmarks of which only a part was scored here, each a phrase."""
    return [
        f"{name}: {n:,} of {find_benchmark(name).count:,} questions"
        for name, n in own.questions.items()
        if is_benchmark(name) and n < find_benchmark(name).count
    ]


def published_sheet(rows: Sequence[Figure], owns: Sequence[Own] = (), sets: Sequence[str] = ()) -> Sheet:
    """One table of one metric: own systems first, then published rows that have one of the sets.

    Args:
        sets: columns; empty: all that own scores have, or without any, all that rows have.
    """
    metric = (owns[0].metric if owns else rows[0].metric) if owns or rows else "em"
    columns = list(sets) or list(dict.fromkeys(name for own in owns for name in own.values))
    columns = columns or list(dict.fromkeys(name for row in rows for name in row.values))
    kept = [row for row in rows if (not sets and not owns) or any(name in row.values for name in columns)]
    numbers = {source: n for n, source in enumerate(dict.fromkeys(row.source.name for row in kept), 1)}
    body = [
        [own.label, "here", *(_interval(own.values.get(name)) for name in columns), *(["–"] if not owns else [""])]
        for own in owns
    ]
    flagged: list[str] = []
    for row in kept:
        problems = flags(row)
        mark = ""
        if problems:
            flagged += [f"! {row.model}, {row.method} [{numbers[row.source.name]}]: {p}" for p in problems]
            mark = " !"
        averages = ", ".join(f"{row.shown(value)} ({name})" for name, value in row.averages.items())
        values = [row.shown(row.values[name]) if name in row.values else "–" for name in columns]
        body.append([f"{row.model}, {row.method}{mark}", f"[{numbers[row.source.name]}]", *values, averages or "–"])
    notes = []
    for name, number in numbers.items():
        source = next(row.source for row in kept if row.source.name == name)
        said = "; ".join(differences(source, owns[0])) if owns else _setup(source)
        note = f" {source.note}" if source.note else ""
        notes.append(f"[{number}] {source.title}, {source.where}. {said[:1].upper()}{said[1:]}.{note}")
    for own in owns:
        parts = short_of_whole(own)
        if parts:
            notes.append(f"here, {own.label}: a part of the set: {'; '.join(parts)}")
    return Sheet(
        f"{_TITLES[metric]} as published{' beside own scores' if owns else ''}",
        ["", "source", *columns, "averages as printed"],
        body,
        left=2,
        bold=frozenset(range(len(owns))),
        notes=[*flagged, *notes],
    )


def _setup(source: Source) -> str:
    said = [f"{words} {source.setup[name]}" for name, words in _NAMES.items() if name in source.setup]
    if "trained_on" in source.setup:
        said.append(f"trained on {source.setup['trained_on']}")
    said.append(
        f"checkpoint: {source.setup['checkpoint']}" if "checkpoint" in source.setup else "checkpoint not stated"
    )
    return "; ".join(said)


def _interval(interval: Interval | None) -> str:
    return "–" if interval is None else f"{interval.mean:.3f} [{interval.low:.3f}, {interval.high:.3f}]"
