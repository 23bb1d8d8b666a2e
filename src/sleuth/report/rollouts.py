"""The rollouts of a report: chosen, replayed for their per-token advantages, packed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sleuth.errors import UserError
from sleuth.jsonl import read_jsonl
from sleuth.recipes.schema import Recipe
from sleuth.report.explain import Rewarding
from sleuth.report.rollout_rows import BLOCK, COLUMNS, Blocks, Questions, Reader, row
from sleuth.report.selection import GroupKey, Selection, select
from sleuth.report.sources import Kind, Source, spread, step_files
from sleuth.report.token_texts import find_codec
from sleuth.rollouts import read_rollouts
from sleuth.types import Trajectory

if TYPE_CHECKING:
    from sleuth.diagnostics.replay import RolloutReplay
    from sleuth.objectives.compose import Objective

MAX_STEP_FILES = 64
"""Step files of a run that are looked into."""

_SAMPLE = 40
"""Rollouts whose packed size tells how many fit."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a user may set.

    Attributes:
        rollouts: most that are shown. ``size``: most characters that they may take, packed.
        objective: whose advantages are shown; None: the run's, or grpo for a file without a run.
        settings: of that objective, as ``NAME.param=value``.
        tokenizer: a folder or hub name, for the texts of single tokens.
    """

    rollouts: int = 5000
    size: int = 20_000_000
    objective: str | None = None
    settings: Sequence[str] = ()
    tokenizer: str | None = None


def collect_rollouts(
    source: Source,
    recipe: Recipe | None,
    options: Options,
    alarmed: Sequence[tuple[int | None, str]],
    notes: list[str],
) -> dict[str, Any] | None:
    """The rollouts of a run or a file; None where a run has saved none.

    Args:
        recipe: the run's, None where there is none.
        alarmed: ``(step, id)`` of rollouts that alarms name, which are shown first.

    Raises:
        UserError: a file that can't be read, an unknown objective or tokenizer.
    """
    files = _files(source, alarmed, notes)
    if not files:
        return None
    codec, why_not = find_codec(source.run, options.tokenizer)
    if why_not:
        notes.append(f"Single tokens are not shown as text: {why_not}.")
    reader = Reader(codec, Rewarding.of(None if recipe is None else recipe.reward))
    sizes, wanted = _groups(files, alarmed)
    room = min(options.rollouts, _room(files, reader, options.size))
    selection = select(sizes, room, wanted)
    if selection.rule:
        why = "" if room == options.rollouts else f" (more would make the file larger than {options.size / 1e6:.0f} MB)"
        notes.append(f"Showing {selection.shown:,} of {selection.total:,} rollouts{why}: {selection.rule}.")
    replayer = _Replayer(_objective(recipe, options))
    blocks, questions, rows = Blocks(reader), Questions(), []
    for batch in _batches(files, selection, whole_steps=source.kind is Kind.RUN):
        replays = replayer(batch)
        for trajectory in batch:
            if (trajectory.step, trajectory.group) in selection.groups:
                replay = replays.get((trajectory.step, trajectory.id))
                rows.append(row(trajectory, questions.add(trajectory), replay))
                blocks.add(trajectory, replay)
    blocks.close()
    notes.extend(replayer.notes())
    return {
        "columns": COLUMNS,
        "rows": rows,
        "questions": questions.table,
        "blocks": blocks.packed,
        "block": BLOCK,
        "total": selection.total,
        "objective": replayer.name,
        "grader": reader.rewarding.grader,
        "function": reader.rewarding.function,
        "texts": codec is not None,
    }


def _files(source: Source, alarmed: Sequence[tuple[int | None, str]], notes: list[str]) -> list[Path]:
    if source.kind is not Kind.RUN:
        return [source.path]
    found = dict(step_files(source.path))
    steps = spread(list(found), MAX_STEP_FILES, [step for step, _ in alarmed if step is not None])
    if len(steps) < len(found):
        notes.append(f"Rollouts are those of {len(steps)} of the {len(found):,} saved steps, evenly spaced.")
    return [found[step] for step in steps]


def _groups(
    files: Sequence[Path], alarmed: Sequence[tuple[int | None, str]]
) -> tuple[dict[GroupKey, int], list[GroupKey]]:
    """Rollouts in each group, and the groups of alarmed rollouts; read without looking into the spans."""
    sizes: Counter[GroupKey] = Counter()
    wanted = []
    named = set(alarmed)
    for file in files:
        for line, fields in read_jsonl(file):
            step, group = fields.get("step") or 0, fields.get("group")
            if not isinstance(step, int) or not isinstance(group, str):
                raise UserError(f"{file}, line {line}: no rollout (step must be an integer, group a string)")
            sizes[step, group] += 1
            if named and {(step, fields.get("id")), (None, fields.get("id"))} & named:
                wanted.append((step, group))
    if not sizes:
        raise UserError(f"{files[0]}: no rollouts in it")
    return dict(sizes), wanted


def _room(files: Sequence[Path], reader: Reader, size: int) -> int:
    """How many rollouts fit in ``size`` characters, from the packed size of a few in the middle of the run."""
    blocks = Blocks(reader)
    count = 0
    for trajectory in read_rollouts(files[len(files) // 2]):
        blocks.add(trajectory, None)
        count += 1
        if count == _SAMPLE:
            break
    blocks.close()
    # Replay adds per-token values, and rollouts differ: a fifth is left for that.
    return max(int(size * 0.8 * count / blocks.size), 1) if count else 0


def _batches(files: Sequence[Path], selection: Selection, *, whole_steps: bool) -> Iterator[list[Trajectory]]:
    """What is replayed together: a run's step, or all that is shown of a file.

    Advantages that look beyond the group need the whole batch. A file may hold far more than one batch, so there only
    what is shown is kept in memory.
    """
    for file in files:
        batch = [t for t in read_rollouts(file) if whole_steps or (t.step, t.group) in selection.groups]
        steps: dict[int, list[Trajectory]] = {}
        for trajectory in batch:
            steps.setdefault(trajectory.step, []).append(trajectory)
        yield from steps.values()


def _objective(recipe: Recipe | None, options: Options) -> Objective:
    """The objective whose advantages are shown. A reference KL changes none of them and is left out."""
    from sleuth.commands.replay import objectives_of
    from sleuth.objectives import resolve

    if options.objective is not None:
        return objectives_of([options.objective], options.settings)[0]
    if options.settings:
        raise UserError("--set needs --objective: say whose setting it is")
    if recipe is None:
        return resolve("grpo")
    return resolve(recipe.objective, recipe.parameters, recipe.aggregation)


class _Replayer:
    """Replays batch after batch, and remembers why some could not be."""

    def __init__(self, objective: Objective) -> None:
        self.name = objective.name
        self._objective = objective
        self._refused: Counter[str] = Counter()

    def __call__(self, batch: Sequence[Trajectory]) -> dict[tuple[int, str], RolloutReplay]:
        from sleuth.diagnostics.replay import UnfitRollout, replay

        fit = list(batch)
        while fit:
            try:
                result = replay(fit, self._objective)
            except UnfitRollout as error:
                # A group goes as a whole: without one of its rollouts the others' advantages would be other ones.
                bad = (fit[error.row].step, fit[error.row].group)
                rest = [t for t in fit if (t.step, t.group) != bad]
                self._refuse(str(error), len(fit) - len(rest))
                fit = rest
            except UserError as error:
                self._refuse(str(error), len(fit))
                break
            else:
                return {(t.step, t.id): rollout for t, rollout in zip(fit, result.rollouts, strict=True)}
        return {}

    def _refuse(self, why: str, count: int) -> None:
        self._refused[why] += count

    def notes(self) -> list[str]:
        return [
            f"No advantages of {count:,} rollouts, since {self.name} can't be replayed on them ({why})."
            for why, count in self._refused.most_common(3)
        ]
