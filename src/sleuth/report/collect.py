"""Gathers what a report shows, as one JSON value."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sleuth
from sleuth.errors import UserError
from sleuth.recipes.schema import Recipe
from sleuth.report.comparison_record import comparison_record
from sleuth.report.rollouts import Options, collect_rollouts
from sleuth.report.run_record import rollouts_named, run_record
from sleuth.report.sources import Kind, Source, find_source

SCHEMA = "sleuth.report/1"


def collect(path: Path | Source, options: Options | None = None) -> dict[str, Any]:
    """Everything that the report of a run folder, a rollouts file or a comparison shows.

    Returns:
        ``schema``, ``kind``, ``title``, ``source``, ``made`` (UTC), ``version``, ``notes`` (sentences that a reader
        must know), and ``run``, ``rollouts`` and ``comparison``, each None where there is none.

    Raises:
        UserError: there is nothing to report on, or a file of it can't be read.
    """
    source = path if isinstance(path, Source) else find_source(path)
    options = options or Options()
    notes: list[str] = []
    recipe = _recipe(source.run, notes)
    run = run_record(source.path, recipe, notes) if source.kind is Kind.RUN else None
    alarmed = rollouts_named(run["alarms"]) if run else []
    return {
        "schema": SCHEMA,
        "kind": source.kind.value,
        "title": source.path.resolve().name,
        "source": str(source.path),
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "version": sleuth.__version__,
        "run": run,
        "comparison": comparison_record(source.path) if source.kind is Kind.COMPARISON else None,
        "rollouts": None
        if source.kind is Kind.COMPARISON
        else collect_rollouts(source, recipe, options, alarmed, notes),
        "notes": notes,
    }


def _recipe(run: Path | None, notes: list[str]) -> Recipe | None:
    """The recipe of a run; one that this version can't read is said, and the rest of the run is shown without it."""
    if run is None or not (run / "recipe.yaml").is_file():
        return None
    from sleuth.recipes.loader import load_recipe

    try:
        return load_recipe(run / "recipe.yaml", check_required=False)
    except UserError as error:
        notes.append(f"The run's recipe can't be read, so grpo stands in for its objective ({error}).")
        return None
