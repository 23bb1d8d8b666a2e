"""The figures of ``figures.yaml``, and what in them can't be right. Nothing is corrected."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from sleuth.data.benchmarks.catalogue import BENCHMARKS

SETUP = ("grader", "k", "retriever", "corpus", "trained_on", "checkpoint")
"""What a source may say of its set-up."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where figures are printed, and how they came about, as far as it is said (:data:`SETUP`)."""

    name: str
    title: str
    where: str
    setup: Mapping[str, Any]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Figure:
    """One row of a printed table.

    Attributes:
        metric: ``em``, ``f1`` or ``accuracy`` (of a judge).
        values: benchmark → what is printed, from 0 to 1.
        averages: name → what is printed; ``averaged``: name → the benchmarks that it is over.
        decimals: that are printed.
    """

    source: Source
    model: str
    method: str
    metric: str
    values: Mapping[str, float]
    averages: Mapping[str, float]
    averaged: Mapping[str, tuple[str, ...]]
    decimals: int

    def recomputed(self, average: str) -> float | None:
        """The mean of the printed values; None where one of them isn't printed."""
        values = [self.values.get(name) for name in self.averaged[average]]
        return math.fsum(v for v in values if v is not None) / len(values) if None not in values else None

    def shown(self, value: float) -> str:
        """With the printed number of decimals."""
        return f"{value:.{self.decimals}f}"


@cache
def figures() -> tuple[Figure, ...]:
    """All of them, in the order of the file."""
    content, known = _content(), sources()
    named = content["columns"]
    found = []
    for table in content["tables"]:
        columns = _columns(table["columns"], named)
        averaged = {name: _columns(over, named) for name, over in table["averages"].items()}
        for model, method, *numbers in table["rows"]:
            if len(numbers) != len(columns) + len(averaged):
                raise ValueError(f"{table['source']}, {model} {method}: {len(numbers)} numbers")
            values = dict(zip([*columns, *averaged], numbers, strict=True))
            found.append(
                Figure(
                    source=known[table["source"]],
                    model=model,
                    method=method,
                    metric=table["metric"],
                    values={name: values[name] for name in columns if values[name] is not None},
                    averages={name: values[name] for name in averaged if values[name] is not None},
                    averaged=averaged,
                    decimals=table.get("decimals", 3),
                )
            )
    return tuple(found)


@cache
def sources() -> Mapping[str, Source]:
    """By name."""
    return {
        name: Source(name, entry["title"], entry["where"], entry["setup"], entry.get("note", ""))
        for name, entry in _content()["sources"].items()
    }


def flags(figure: Figure) -> list[str]:
    """What in a row can't be right, each a line; empty where nothing is found.

    * A printed average that the printed values don't give: off by more than rounding them all can explain.
    * An exact match on Bamboogle that no number of right answers to its 125 questions gives: some other number of
      questions was scored, or the mean of several runs.
    """
    found = []
    for name, printed in figure.averages.items():
        mean = figure.recomputed(name)
        if mean is not None and abs(mean - printed) > 10**-figure.decimals + 1e-9:
            found.append(f"{name} is printed as {figure.shown(printed)}; its values give {figure.shown(mean)}")
    score = figure.values.get("bamboogle")
    questions = BENCHMARKS["bamboogle"].count
    if score is not None and figure.metric == "em" and not _reachable(score, questions, figure.decimals):
        others = [n for n in range(questions - 1, questions - 6, -1) if _reachable(score, n, figure.decimals)]
        fits = f"; {' or '.join(map(str, others[:2]))} can" if others else ""
        found.append(f"bamboogle: one answer to each of {questions} questions can't give {figure.shown(score)}{fits}")
    return found


def _reachable(score: float, questions: int, decimals: int) -> bool:
    right = round(score * questions)
    return any(abs(score - n / questions) <= 0.5 * 10**-decimals + 1e-9 for n in (right - 1, right, right + 1))


def _columns(over: str | Sequence[str], named: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    return tuple(named[over] if isinstance(over, str) else over)


@cache
def _content() -> dict[str, Any]:
    import yaml

    return yaml.safe_load(files(__package__).joinpath("figures.yaml").read_text(encoding="utf-8"))
