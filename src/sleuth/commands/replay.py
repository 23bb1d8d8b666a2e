"""`sleuth replay`: objectives on saved rollouts."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from sleuth.commands.terminal import console
from sleuth.diagnostics.gradient_differences import GradientDifference, gradient_differences
from sleuth.diagnostics.replay import Replay, UnfitRollout
from sleuth.diagnostics.replay import replay as replay_rollouts
from sleuth.errors import UserError
from sleuth.objectives import TABLE, resolve
from sleuth.objectives.compose import Objective
from sleuth.recipes.yaml_text import YamlError, parse_yaml
from sleuth.rollouts import read_numbered_rollouts
from sleuth.types import Trajectory


def replay(file: str, objectives: Sequence[str], settings: Sequence[str], *, as_json: bool) -> None:
    """Print what each objective makes of the file's rollouts, and with several how far their gradients differ.

    Args:
        objectives: each a name, names joined by ``+``, or several of those joined by commas.
        settings: ``NAME.param=value`` and ``aggregation=NAME``; see :func:`objectives_of`.

    Raises:
        UserError: names file, line and field, or the setting.
    """
    resolved = objectives_of(objectives, settings)
    numbered = list(read_numbered_rollouts(file))
    trajectories = [trajectory for _, trajectory in numbered]
    replays = []
    for objective in resolved:
        try:
            replays.append(replay_rollouts(trajectories, objective))
        except UnfitRollout as error:
            raise UserError(f"{file}, line {numbered[error.row][0]}: {error}") from None
        except UserError as error:
            raise UserError(f"{file}: {error}") from None
    for note in replays[0].notes:
        console(stderr=True).print(f"warning: {note}", soft_wrap=True)
    differences = gradient_differences(replays)
    if as_json:
        one = replays[0].to_dict()
        several = {"objectives": [r.to_dict() for r in replays], "differences": [asdict(d) for d in differences]}
        json.dump(one if len(replays) == 1 else several, sys.stdout, ensure_ascii=False, allow_nan=False)
        sys.stdout.write("\n")
        return
    for result in replays:
        _print_replay(result, trajectories)
    if differences:
        _print_differences(differences)


def objectives_of(names: Sequence[str], settings: Sequence[str]) -> list[Objective]:
    """The objectives of these names, each with the settings that are meant for it.

    A part's settings go to the objectives that name it. ``grpo.…`` goes to those that name ``grpo``, or if none does
    to all, since every objective is a patch on it; ``aggregation.max_length`` likewise to those that use it.

    Raises:
        UserError: an unknown name or setting, or one that no objective takes.
    """
    asked = [name.strip() for text in names for name in text.split(",")]
    if twice := next((name for name in asked if asked.count(name) > 1), None):
        raise UserError(f"objective {twice} is named twice; name each once")
    parts = [[part.strip() for part in name.split("+")] for name in asked]
    given, aggregation = _parse(settings)
    takers: dict[str, list[int]] = {}
    for part in given:
        if part == "aggregation":
            takers[part] = [i for i, own in enumerate(parts) if _sums(own, aggregation)] or [*range(len(asked))]
        else:
            takers[part] = [i for i, own in enumerate(parts) if part in own]
            if part == "grpo":
                takers[part] = takers[part] or [*range(len(asked))]
            if not takers[part]:
                raise UserError(
                    f"--set {part}.{next(iter(given[part]))}: no --objective names {part}; add it or drop it"
                )
    return [
        resolve(name, {part: values for part, values in given.items() if i in takers[part]}, aggregation)
        for i, name in enumerate(asked)
    ]


def _parse(settings: Sequence[str]) -> tuple[dict[str, dict[str, Any]], str | None]:
    """Settings by part, and the aggregation's name."""
    given: dict[str, dict[str, Any]] = {}
    aggregation: str | None = None
    for setting in settings:
        key, equals, text = setting.partition("=")
        part, dot, parameter = key.strip().partition(".")
        if not equals or not part or (dot and not parameter) or not (dot or part == "aggregation"):
            raise UserError(f"--set {setting}: write NAME.param=value, such as search_sapo.gamma=0.2")
        if part != "aggregation" and part not in TABLE:
            resolve(part)  # says which name was meant
        try:
            value = parse_yaml(text)
        except YamlError as error:
            raise UserError(f"--set {setting}: the value is not YAML ({error}); put it in quotes") from None
        if dot:
            given.setdefault(part, {})[parameter] = value
        else:
            aggregation = str(value)
    return given, aggregation


def _sums(parts: Sequence[str], aggregation: str | None) -> bool:
    """Whether an objective of these parts divides by ``aggregation.max_length``."""
    implied = next((TABLE[part].aggregation for part in parts if part in TABLE and TABLE[part].aggregation), None)
    return (aggregation or implied) == "sum_over_max_length"


def _print_replay(result: Replay, trajectories: Sequence[Trajectory]) -> None:
    out = console()
    out.print(f"{result.objective}: loss {result.loss:.6g}")
    out.print("  ".join(f"{name} {_number(value)}" for name, value in result.stats.items()), soft_wrap=True)
    table = Table("rollout", "status", "reward", "tokens", "mean advantage", "loss", "|gradient|", box=None)
    for trajectory, rollout in zip(trajectories, result.rollouts, strict=True):
        advantages = [a for span in rollout.spans for a in span.advantages]
        table.add_row(
            rollout.id,
            trajectory.status.value,
            "" if trajectory.reward is None else _number(trajectory.reward),
            str(len(advantages)),
            _number(sum(advantages) / len(advantages)) if advantages else "",
            _number(sum(x for span in rollout.spans for x in span.loss)),
            _number(sum(x * x for span in rollout.spans for x in span.grad) ** 0.5),
        )
    out.print(table)
    out.print()


def _print_differences(differences: Sequence[GradientDifference]) -> None:
    table = Table("objective", "against", "cosine", "norm ratio", "sign differs", box=None, pad_edge=False)
    for d in differences:
        share = "-" if d.sign_differs is None else f"{d.sign_differs:.1%}"
        table.add_row(d.b, d.a, _number(d.cosine), _number(d.norm_ratio), share)
    console().print(table)


def _number(value: float | int | str | None) -> str:
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
