"""`sleuth diagnose`: is a run drifting, since when, where, and what to do."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sleuth.commands.terminal import console
from sleuth.diagnostics.alarm_advice import Setup
from sleuth.diagnostics.alarm_limits import AlarmLimits
from sleuth.diagnostics.alarm_places import worst_rollouts
from sleuth.diagnostics.alarm_rules import Level
from sleuth.diagnostics.alarms import Alarm
from sleuth.diagnostics.foreign_names import ENGINES
from sleuth.diagnostics.log_files import read_log
from sleuth.diagnostics.verdict import Verdict, judge
from sleuth.errors import UserError
from sleuth.jsonl import read_jsonl
from sleuth.recipes.validation import validated
from sleuth.recipes.yaml_text import YamlError, parse_yaml


def diagnose(
    paths: Sequence[Path],
    *,
    settings: Sequence[str] = (),
    run: str | None = None,
    fail_on: str | None = None,
    as_json: bool = False,
) -> int:
    """Print the verdict on a run.

    Args:
        paths: a run folder, a rollouts file, or one or several metrics files of one run.
        settings: ``RULE.FIELD=VALUE`` or ``FIELD=VALUE`` of :class:`~sleuth.diagnostics.alarm_limits.AlarmLimits`.
        run: which run of a wandb export.
        fail_on: a level.

    Returns:
        1 if an alarm of the level ``fail_on``, or a worse one, was ever raised; else 0.

    Raises:
        UserError: a file can't be read or has no metrics, a wrong setting or level.
    """
    if fail_on is not None and fail_on not in list(Level):
        raise UserError(f"--fail-on {fail_on}: write one of {', '.join(Level)}")
    over = _settings(settings)
    if len(paths) == 1 and (paths[0] / "metrics.jsonl").is_file():
        verdict = _of_run_folder(paths[0], over)
    elif len(paths) == 1 and (paths[0] / "trainer_state.json").is_file():
        verdict = _of_log([paths[0] / "trainer_state.json"], run, over)
    elif len(paths) == 1 and _holds_rollouts(paths[0]):
        verdict = _of_rollouts(paths[0], over)
    else:
        verdict = _of_log(paths, run, over)
    if as_json:
        json.dump(verdict.to_dict(), sys.stdout, ensure_ascii=False, allow_nan=False)
        sys.stdout.write("\n")
    else:
        _print(verdict, ", ".join(str(path) for path in paths))
    return int(fail_on is not None and verdict.worst is not None and verdict.worst.rank >= Level(fail_on).rank)


def _of_run_folder(folder: Path, over: Mapping[str, Any]) -> Verdict:
    """With the run's own limits and settings, and sample rollouts where its rollouts were saved."""
    from sleuth.recipes.loader import load_recipe

    log = read_log([folder / "metrics.jsonl"])
    limits, setup, notes = _limits({}, over), Setup(), list(log.notes)
    if (folder / "recipe.yaml").is_file():
        recipe = load_recipe(folder / "recipe.yaml", check_required=False)
        limits = _limits(recipe.diagnosis.rules.model_dump(), over)
        setup = Setup("sleuth", recipe.trainer.lr, recipe.trainer.updates_per_batch, recipe.objective)
    for file in sorted((folder / "rollbacks").glob("*/rollback.json"), key=lambda file: int(file.parent.name)):
        done = json.loads(file.read_text(encoding="utf-8"))
        notes.append(
            f"rollback {done['number']} gave up steps {done['to_step'] + 1} to {done['from_step']}: "
            f"sleuth diagnose {file.parent / 'metrics.jsonl'}"
        )
        setup = Setup("sleuth", done["settings"]["trainer.lr"], setup.updates, done["settings"]["objective"])
    verdict = judge(log.records, log.engine, limits, setup, notes)
    return replace(verdict, alarms=tuple(_with_rollouts(alarm, folder) for alarm in verdict.alarms))


def _with_rollouts(alarm: Alarm, folder: Path) -> Alarm:
    from sleuth.rollouts import read_rollouts

    file = folder / "rollouts" / f"step-{alarm.step:06d}.jsonl.zst"
    if not file.is_file():
        return alarm
    return replace(alarm, rollouts=worst_rollouts(list(read_rollouts(file)), alarm.rule, alarm.where))


def _of_log(paths: Sequence[Path], run: str | None, over: Mapping[str, Any]) -> Verdict:
    log = read_log(paths, run)
    return judge(log.records, log.engine, _limits({}, over), notes=log.notes)


def _of_rollouts(file: Path, over: Mapping[str, Any]) -> Verdict:
    from sleuth.diagnostics.saved_steps import records_of_rollouts
    from sleuth.rollouts import read_rollouts

    trajectories = list(read_rollouts(file))
    records, notes = records_of_rollouts(trajectories)
    verdict = judge(records, "rollouts", _limits({}, over), notes=notes)
    return replace(
        verdict,
        alarms=tuple(
            replace(
                alarm,
                rollouts=worst_rollouts([t for t in trajectories if t.step == alarm.step], alarm.rule, alarm.where),
            )
            for alarm in verdict.alarms
        ),
    )


def _holds_rollouts(path: Path) -> bool:
    if not path.is_file() or not path.name.removesuffix(".gz").removesuffix(".zst").endswith(".jsonl"):
        return False
    return any("spans" in row for _, row in _first(path))


def _first(path: Path) -> list[tuple[int, dict[str, Any]]]:
    for numbered in read_jsonl(path):
        return [numbered]
    return []


def _settings(settings: Sequence[str]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        rule, dot, field = key.strip().partition(".")
        if not equals or not rule or (dot and not field):
            raise UserError(f"--set {setting}: write RULE.limit=VALUE, such as low_tail.limit=0.2")
        try:
            value = parse_yaml(text)
        except YamlError as error:
            raise UserError(f"--set {setting}: the value is not YAML ({error})") from None
        if dot:
            given.setdefault(rule, {})[field] = value
        else:
            given[rule] = value
    return given


def _limits(base: Mapping[str, Any], over: Mapping[str, Any]) -> AlarmLimits:
    merged = dict(base)
    for name, value in over.items():
        old = merged.get(name)
        merged[name] = old | value if isinstance(old, dict) and isinstance(value, dict) else value
    return validated(AlarmLimits, merged, where="--set")


def _print(verdict: Verdict, where: str) -> None:
    out = console()
    span = f"{verdict.steps} steps, {verdict.first} to {verdict.last}" if verdict.steps > 1 else f"step {verdict.first}"
    out.print(f"{where}: {ENGINES[verdict.engine]}, {span}", soft_wrap=True)
    out.print(verdict.headline, soft_wrap=True)
    if verdict.alarms:
        out.print()
    for alarm in verdict.alarms:
        over = "" if alarm.rule in verdict.active else " (quiet since)"
        out.print(f"{alarm.line}{over}", soft_wrap=True)
        if alarm.rollouts:
            out.print(f"    rollouts: {' '.join(alarm.rollouts)}", soft_wrap=True)
    for title, lines in (
        ("What to do, one at a time:", verdict.advice),
        ("What can't be told:", verdict.unknown),
        ("Notes:", verdict.notes),
    ):
        if lines:
            out.print(f"\n{title}")
            for line in lines:
                out.print(f"  - {line}", soft_wrap=True)
