"""What a comparison is read from: its folder, an exported file, or several of both put together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sleuth.errors import UserError
from sleuth.lab.comparison import Comparison
from sleuth.lab.export import read_export
from sleuth.lab.folder import ComparisonFolder
from sleuth.lab.results import Result
from sleuth.training.run_folder import RunFolder

Records = dict[str, list[dict[str, Any]]]
"""Step records of each run that has any, by the run's folder."""


def read_source(path: Path) -> tuple[Comparison, Records]:
    """A comparison as it stands, and the step records of its runs.

    Args:
        path: a comparison's folder, or a file that ``sleuth compare --export`` wrote.

    Raises:
        UserError: neither is there.
    """
    if not path.is_dir():
        return read_export(path)
    comparison = ComparisonFolder.read(path).as_it_stands()
    records = {result.run: RunFolder(path / result.run).read_metrics() for result in comparison.results}
    return comparison, {run: of_run for run, of_run in records.items() if of_run}


def read_sources(paths: Sequence[Path]) -> tuple[Comparison, Records]:
    """Several sources as one comparison.

    Regimes and arms are those of all. A run that several have counts once: a finished one rather than one that isn't.

    Raises:
        UserError: a source can't be read; they don't compare the same; a run is finished in two of them with different
            rewards, so that one of them is mislabelled.
    """
    comparison, records = read_source(paths[0])
    for path in paths[1:]:
        other, of_other = read_source(path)
        comparison, records = _joined(comparison, records, other, of_other, path)
    return comparison, records


def _joined(
    one: Comparison, of_one: Records, other: Comparison, of_other: Records, path: Path
) -> tuple[Comparison, Records]:
    for what, before, now in (("recipe", one.recipe, other.recipe), ("tuned regime", one.tuned, other.tuned)):
        if before != now:
            raise UserError(
                f"{path}: its {what} is {now}, that of the sources before it {before}; they can't be joined"
            )
    regimes = _same(one.regimes, other.regimes, "regime", path)
    arms = _same(one.arms, other.arms, "arm", path)
    results: dict[str, Result] = {result.run: result for result in one.results}
    records = dict(of_one)
    for result in other.results:
        known = results.get(result.run)
        if known is not None and known.done and result.done and _rewards(known) != _rewards(result):
            raise UserError(
                f"{path}: {result.label} is finished here and in a source before, with other rewards; "
                "leave out the one that is wrong"
            )
        if known is None or (result.done and not known.done):
            results[result.run] = result
            records.pop(result.run, None)
            if result.run in of_other:
                records[result.run] = of_other[result.run]
    return Comparison(one.recipe, one.tuned, regimes, arms, list(results.values())), records


def _same(one: Mapping[str, Any], other: Mapping[str, Any], what: str, path: Path) -> dict[str, Any]:
    for name in one.keys() & other.keys():
        if one[name] != other[name]:
            raise UserError(f"{path}: its {what} {name} is {other[name]}, that of the sources before it {one[name]}")
    return {**one, **other}


def _rewards(result: Result) -> list[float | None]:
    return [None if reward is None else round(reward, 6) for reward in result.rewards]
