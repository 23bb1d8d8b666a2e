"""What a run folder says of the run itself: metrics, alarms, settings, versions, scores."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from sleuth.diagnostics import names
from sleuth.diagnostics.alarm_rules import RULES
from sleuth.diagnostics.alarms import find_alarms
from sleuth.errors import UserError
from sleuth.recipes.schema import Recipe
from sleuth.report.numbers import number, plain

MAX_STEPS = 2000
"""Steps that the charts hold; of a longer run every n-th is shown."""


def run_record(run: Path, recipe: Recipe | None, notes: list[str]) -> dict[str, Any]:
    """Everything that the page shows of a run but its rollouts; ``notes`` gets what a reader must be told.

    Raises:
        UserError: a file of the run can't be read.
    """
    records = read_records(run / "metrics.jsonl")
    summary = _read_json(run / "summary.json")
    written = run / "recipe.yaml"
    rollbacks = [_read_json(file) for file in sorted(run.glob("rollbacks/*/rollback.json"), key=_number_of_folder)]
    return {
        "metrics": metrics_table(records, notes),
        **_alarms(run / "alarms.jsonl", records, recipe),
        "rollbacks": plain(rollbacks),
        "recipe": written.read_text(encoding="utf-8") if written.is_file() else None,
        "environment": plain(_read_json(run / "environment.json")),
        "summary": plain(summary),
        "finished": summary is not None,
    }


def _alarms(file: Path, records: Sequence[dict[str, Any]], recipe: Recipe | None) -> dict[str, Any]:
    """``alarms``, each with its rule's ``title``, and ``afterwards``: whether they were found for this report only.

    A run that raised none leaves no file, and neither does one that was made without alarms; the rules tell them apart.
    """
    raised = read_records(file)
    found = [] if raised else find_alarms(records, recipe.diagnosis.rules if recipe else None)
    titles = {rule.name: rule.title for rule in RULES}
    alarms = raised or [alarm.to_dict() for alarm in found]
    return {
        "alarms": [plain(alarm | {"title": titles.get(str(alarm.get("rule")))}) for alarm in alarms],
        "afterwards": bool(found),
    }


def _number_of_folder(file: Path) -> int:
    return int(file.parent.name) if file.parent.name.isdigit() else 0


def metrics_table(records: Sequence[dict[str, Any]], notes: list[str]) -> dict[str, Any]:
    """Columns from the records of steps.

    Returns:
        ``steps``; ``series``: for each name the values by step, None where there is none; ``broken``: for each name
        the steps whose value is NaN or infinite; ``names``: what each is, its unit and which change is bad.
    """
    shown = list(records)
    if len(shown) > MAX_STEPS:
        every = math.ceil(len(shown) / MAX_STEPS)
        shown = [record for i, record in enumerate(shown) if i % every == 0 or i == len(shown) - 1]
        notes.append(f"The charts show every {_ordinal(every)} of {len(records):,} steps.")
    found = dict.fromkeys(name for record in records for name, value in record.items() if _is_number(value))
    series: dict[str, list[Any]] = {}
    broken: dict[str, list[Any]] = {}
    for name in found:
        if name == "step":
            continue
        series[name] = [_finite(record.get(name)) for record in shown]
        steps = [r.get("step") for r in records if _is_number(r.get(name)) and not math.isfinite(r[name])]
        if steps:
            broken[name] = steps
    return {
        "steps": [record.get("step", i + 1) for i, record in enumerate(shown)],
        "series": series,
        "broken": broken,
        "names": {name: described for name in series if (described := _described(name))},
    }


def read_records(file: Path) -> list[dict[str, Any]]:
    """The complete lines of a file that a run may be writing; none where there is no file."""
    if not file.is_file():
        return []
    records = []
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue  # the half line of a step that is being written, or of a process that was killed
        if isinstance(record, dict):
            records.append(record)
    return records


def rollouts_named(alarms: Iterable[dict[str, Any]]) -> list[tuple[int | None, str]]:
    """``(step, id)`` of the rollouts that alarms name as their evidence."""
    named = []
    for alarm in alarms:
        step = alarm.get("step")
        for rollout in alarm.get("rollouts") or []:
            if isinstance(rollout, dict):
                named.append((rollout.get("step", step), str(rollout.get("id"))))
            else:
                named.append((step, str(rollout)))
    return named


def _described(name: str) -> dict[str, Any] | None:
    known = names.parse(name)
    if known is None:
        return None
    return {"text": known.text, "unit": known.metric.unit, "bad": known.bad}


def _read_json(file: Path) -> Any:
    if not file.is_file():
        return None
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{file}: not JSON ({error}); mend it or take it away") from None


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _finite(value: Any) -> Any:
    return number(value) if _is_number(value) and math.isfinite(value) else None


def _ordinal(n: int) -> str:
    return {2: "2nd", 3: "3rd"}.get(n, f"{n}th")
