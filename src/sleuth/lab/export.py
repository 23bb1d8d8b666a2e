"""A comparison in one small file: every metric of every step of every run, to be kept beside what is written about it.

``sleuth.comparison-metrics/1``, lines of JSON, by the name's ending compressed. The first line has recipe, regimes and
arms as in ``comparison.json``; each further one is a run: ``regime``, ``arm``, ``seed``, ``status``, ``error`` and
``metrics``, name → values by step (null where a step has none): rewards as they are, all else to four significant
digits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sleuth.errors import UserError
from sleuth.jsonl import read_jsonl, write_jsonl
from sleuth.lab.comparison import Comparison
from sleuth.lab.results import Result, Status

SCHEMA = "sleuth.comparison-metrics/1"


def export(comparison: Comparison, records: Mapping[str, Sequence[Mapping[str, Any]]], file: Path) -> None:
    """Write the metrics of all runs that have any.

    Args:
        records: the step records of each run, by its folder.
    """
    head = {key: value for key, value in comparison.to_dict(cells=False).items() if key not in ("table", "verdict")}
    rows = _runs(comparison.results, records)
    write_jsonl(file, [head | {"schema": SCHEMA, "cells": _planned(comparison)}, *rows])


def read_export(file: Path) -> tuple[Comparison, dict[str, list[dict[str, Any]]]]:
    """The comparison, and for each run (by its folder's name) its step records as in ``metrics.jsonl``.

    Raises:
        UserError: no such file, or not one of ours.
    """
    rows = [row for _, row in read_jsonl(file)]
    if not rows or rows[0].get("schema") != SCHEMA:
        raise UserError(f"{file}: not exported from a comparison (its first line has no schema {SCHEMA})")
    head = rows[0]
    try:
        records = {row["run"]: _records(row["metrics"]) for row in rows[1:]}
        results = [
            Result(
                **{key: cell[key] for key in ("regime", "arm", "seed", "run", "error")},
                status=Status(cell["status"]),
                rewards=tuple(record.get("reward") for record in records.get(cell["run"], [])),
            )
            for cell in head["cells"]
        ]
        comparison = Comparison(head["recipe"], head["tuned"], head["regimes"], head["arms"], results)
    except (KeyError, ValueError, TypeError) as error:
        raise UserError(f"{file}: damaged ({type(error).__name__}: {error}); export it again") from None
    return comparison, records


def _planned(comparison: Comparison) -> list[dict[str, Any]]:
    keys = ("regime", "arm", "seed", "run", "status", "error")
    return [{key: cell[key] for key in keys} for cell in (result.to_dict() for result in comparison.results)]


def _runs(results: Sequence[Result], records: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[dict[str, Any]]:
    for result in results:
        if of_run := records.get(result.run):
            names = list(dict.fromkeys(name for record in of_run for name in record))
            metrics = {name: [_short(name, record.get(name)) for record in of_run] for name in names}
            yield {"run": result.run, "metrics": metrics}


def _records(metrics: dict[str, list]) -> list[dict[str, Any]]:
    steps = zip(*metrics.values(), strict=True)
    return [{name: value for name, value in zip(metrics, step, strict=True) if value is not None} for step in steps]


def _short(name: str, value: Any) -> Any:
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return None
    return value if name == "reward" else float(f"{value:.4g}")
