"""Reads the metrics of a run from whatever a trainer left: JSONL, CSV, ``trainer_state.json``, a console log.

All come out as records with the names of :mod:`sleuth.diagnostics.names`, one a step, ascending.
"""

from __future__ import annotations

import ast
import csv
import gzip
import io
import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sleuth.diagnostics.alarm_rules import RULES
from sleuth.diagnostics.foreign_names import ENGINES, engine_of, translate
from sleuth.diagnostics.history import is_broken, number
from sleuth.errors import UserError
from sleuth.jsonl import read_jsonl

Row = dict[str, Any]

READ = frozenset({"reward", *(name for rule in RULES for name in rule.needs)})
"""What the alarms look at."""

_STEPS = ("step", "_step", "Step", "global_step", "trainer/global_step", "training/global_step")
"""What a row's step may be called, the best first."""

_PREFIXES = ("train/", "metrics/")
"""What trackers put before every name."""

_CONSOLE = re.compile(r"step:(\d+)\s+-\s+(.*)")
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|nan|inf)", re.IGNORECASE)


@dataclass(slots=True)
class Log:
    """A run's metrics.

    Attributes:
        engine: ``sleuth``, ``verl`` or ``trl``. ``records``: translated.
        names: all that the files had, in the trainer's own words.
        notes: what a reader must know, a sentence each.
    """

    engine: str
    records: list[Row]
    names: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)


def read_log(paths: Sequence[Path], run: str | None = None) -> Log:
    """One run's metrics from one or several files; rows of the same step are put together.

    Args:
        run: which run's columns to take from a wandb export with several.

    Raises:
        UserError: a file can't be read, holds no metrics, or holds several runs and ``run`` names none of them.
    """
    notes: list[str] = []
    steps: dict[int, Row] = {}
    names: set[str] = set()
    prefixes: set[str] = set()
    owners: dict[str, Path] = {}
    for path in paths:
        own: dict[int, Row] = {}
        own_prefixes: set[str] = set()
        repeated: set[int] = set()
        for step, row in _numbered(_rows(path, run, own_prefixes), path, notes):
            if own.get(step, {}).keys() & row.keys():
                repeated.add(step)
            own.setdefault(step, {}).update(row)
        if repeated:
            notes.append(f"{path.name} has {_some_steps(repeated)} more than once; the last one counts")
        own_names = {name for row in own.values() for name in row}
        if (engine := engine_of(own_names, own_prefixes)) is not None:
            owners.setdefault(engine, path)
        names |= own_names
        prefixes |= own_prefixes
        for step, row in own.items():
            steps.setdefault(step, {}).update(row)
    if len(owners) > 1:
        told = ", ".join(f"{path} is {ENGINES[engine]}'s" for engine, path in owners.items())
        raise UserError(f"{told}: these are not one run; name the files of one")
    engine = engine_of(names, prefixes)
    where = ", ".join(str(path) for path in paths)
    if engine is None:
        seen = ", ".join(sorted(names)[:6]) or "none"
        raise UserError(f"{where}: no metrics of Sleuth, verl or TRL in it (names: {seen}); see docs/diagnosis.md")
    records = [{**translate(row, engine), "step": step} for step, row in sorted(steps.items())]
    records = [r for r in records if r.keys() & READ]  # evaluations and run times have rows of their own
    if not records:
        raise UserError(f"{where}: no step with a reward, loss or ratio in it; give the trainer's training metrics")
    if broken := {r["step"] for r in records if any(is_broken(value) for value in r.values())}:
        notes.append(f"numbers that are NaN or infinite in {_some_steps(broken)}: they are in no mean and no baseline")
    return Log(engine, records, names, notes)


def _some_steps(steps: Collection[int]) -> str:
    listed = sorted(steps)
    shown = ", ".join(map(str, listed[:5]))
    return f"step{'s' if len(listed) > 1 else ''} {shown}{f' and {len(listed) - 5} more' if len(listed) > 5 else ''}"


def _numbered(rows: Iterator[Row], path: Path, notes: list[str]) -> Iterator[tuple[int, Row]]:
    counted = 0
    for row in rows:
        key = next((k for k in _STEPS if number(row.get(k)) is not None), None)
        values = {name: value for name, value in row.items() if name not in _STEPS}
        if not values:
            continue
        counted += 1
        if key is None and counted == 1:
            notes.append(f"{path.name} has no steps; its rows are counted")
        yield counted if key is None else int(row[key]), values


def _rows(path: Path, run: str | None, prefixes: set[str]) -> Iterator[Row]:
    """Flat rows of numbers, in the trainer's own names without trackers' prefixes, which are added to ``prefixes``."""
    if path.is_dir():
        raise UserError(f"{path} is a folder without metrics.jsonl or trainer_state.json; name the metrics file in it")
    name = path.name.removesuffix(".gz").removesuffix(".zst")
    if name.endswith((".jsonl", ".ndjson")):
        raw: Iterator[Row] = (row for _, row in read_jsonl(path))
    elif name.endswith(".json"):
        raw = iter(_json_rows(path))
    elif name.endswith((".csv", ".tsv")):
        raw = _csv_rows(path, run)
    else:
        raw = _console_rows(path)
    for row in raw:
        yield _flat(row, prefixes)


def _flat(row: Row, prefixes: set[str]) -> Row:
    data = row.get("data")
    if isinstance(data, dict):  # verl's file logger
        row = {**data, "step": row.get("step")}
    out: Row = {}
    for name, value in row.items():
        if not isinstance(value, bool | int | float):
            continue
        for prefix in _PREFIXES:
            if name.startswith(prefix):
                prefixes.add(prefix)
                name = name.removeprefix(prefix)
        out[name] = value
    return out


def _json_rows(path: Path) -> list[Row]:
    try:
        content = json.loads(_text(path))
    except ValueError as error:
        raise UserError(f"{path}: not JSON ({error}); for lines of JSON the name must end in .jsonl") from None
    rows = content.get("log_history") if isinstance(content, dict) else content
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise UserError(f"{path}: neither a trainer_state.json (with log_history) nor a list of records")
    return rows


def _text(path: Path) -> str:
    try:
        content = path.read_bytes()
        return (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UserError(f"{path}: not UTF-8 text; give a metrics file (JSONL, CSV, JSON, or a console log)") from None
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; check the path") from None
    except (OSError, EOFError) as error:
        raise UserError(f"{path}: can't be read ({error})") from None


# CSV ------------------------------------------------------------------------------------------------------------------


def _csv_rows(path: Path, run: str | None) -> Iterator[Row]:
    """Plain columns, or wandb's export of a chart: ``Step``, ``RUN - METRIC``, ``RUN - METRIC__MIN``, ``…__MAX``."""
    text = _text(path)
    head = text.partition("\n")[0]
    reader = csv.DictReader(io.StringIO(text), delimiter="\t" if head.count("\t") > head.count(",") else ",")
    columns = [c for c in reader.fieldnames or [] if c is not None]
    runs = sorted({c.rpartition(" - ")[0] for c in columns if " - " in c and not c.endswith(("__MIN", "__MAX"))})
    runs = [name for name in runs if name not in _STEPS]
    if run is not None and run not in runs:
        held = f"it holds {', '.join(runs[:5])}" if runs else "it isn't an export of wandb's charts"
        raise UserError(f"{path}: no run called {run!r}; {held}")
    if len(runs) > 1 and run is None:
        raise UserError(f"{path}: {len(runs)} runs ({', '.join(runs[:5])}); choose one with --run NAME")
    chosen = run or (runs[0] if runs else None)
    for cells in reader:
        row: Row = {}
        for column in columns:
            name = column
            if " - " in column:
                owner, _, name = column.rpartition(" - ")
                if owner != chosen or name.endswith(("__MIN", "__MAX")) or name in _STEPS:
                    continue
            value = _as_number(cells.get(column))
            if value is not None:
                row[name] = value
        yield row


def _as_number(text: Any) -> float | None:
    """A number as any logger writes it; NaN and inf too, an empty cell is None."""
    if isinstance(text, int | float):
        return float(text)
    try:
        return float(str(text).strip().strip('"'))
    except ValueError:
        return None


# Console --------------------------------------------------------------------------------------------------------------


def _console_rows(path: Path) -> Iterator[Row]:
    """verl's ``step:7 - actor/grad_norm:0.31 - …`` and the Trainer's ``{'loss': 0.1, …}``; other lines are skipped."""
    found = False
    for line in _text(path).splitlines():
        row = _verl_line(line) or _trainer_line(line)
        if row:
            found = True
            yield row
    if not found:
        raise UserError(
            f"{path}: no line with metrics in it; give JSONL (.jsonl), CSV (.csv), trainer_state.json, or a console "
            "log of verl or TRL"
        )


def _verl_line(line: str) -> Row | None:
    match = _CONSOLE.search(line)
    if match is None:
        return None
    row: Row = {"step": int(match[1])}
    for pair in match[2].split(" - "):
        name, _, text = pair.strip().rpartition(":")
        value = _NUMBER.search(text.removeprefix("np.float64(").removeprefix("np.float32("))
        if name and value is not None:
            row[name] = float(value[0])
    return row


def _trainer_line(line: str) -> Row | None:
    start, end = line.find("{'"), line.rfind("}")
    if start < 0 or end < start:
        return None
    # The Trainer prints bare nan and inf, which Python can't read back as they stand.
    text = re.sub(r"(?<=: )(nan|inf|-inf)\b", r"'\1'", line[start : end + 1])
    try:
        row = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    if not isinstance(row, dict):
        return None
    values = {str(name): _as_number(value) for name, value in row.items()}
    return {name: value for name, value in values.items() if value is not None} or None
