"""The design of a comparison: which runs there are, and the recipe of each."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sleuth.errors import UserError
from sleuth.lab.arms import Arm
from sleuth.lab.settings import BASELINE, ComparisonSettings
from sleuth.recipes.loader import resolve
from sleuth.recipes.schema import Recipe
from sleuth.recipes.validation import nearest_key

CELL_DEFAULTS = ("evaluation.enabled=false", "trainer.keep=last", "trainer.eval_every=0")
"""A comparison reads training rewards alone: every question is new and every rollout sampled by the policy in training.
Settings on the command line win over these."""

ONLY_REGIME = "recipe"
"""The regime of a recipe that names none: the recipe as it is."""

_SHOWN = {"name", "summary", "expect", "requires"}

Regimes = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Cell:
    """One run of a comparison."""

    regime: str
    arm: Arm
    seed: int

    @property
    def run(self) -> str:
        """Its run folder, relative to the comparison's."""
        return f"cells/{self.regime}/{self.arm.folder}/seed-{self.seed}"


@dataclass(frozen=True, slots=True)
class Design:
    """What is compared; seeds are chosen when it is run.

    Attributes:
        recipe: the base that every cell changes.
        tuned: the regime whose plain GRPO is in every table.
        arms: plain GRPO among them.
    """

    recipe: Recipe
    regimes: Regimes
    arms: Sequence[Arm]
    tuned: str

    @classmethod
    def of(cls, recipe: Recipe, arms: Sequence[Arm], given: Sequence[str] = ()) -> Design:
        """The design of a recipe, with all of its regimes.

        Args:
            given: keys that the user has set beside the recipe; no regime sets them to anything else.
        """
        settings = recipe.comparison or ComparisonSettings()
        regimes: Regimes = {
            name: {key: value for key, value in regime.items() if key not in given}
            for name, regime in (settings.regimes or {ONLY_REGIME: {}}).items()
        }
        tuned = settings.tuned or next(iter(regimes))
        return cls(recipe.model_copy(update={"comparison": None}), regimes, arms, tuned)

    def choose_regimes(self, asked: str | None) -> list[str]:
        """Names of regimes, joined by commas; None: all.

        Raises:
            UserError: an unknown one.
        """
        if asked is None:
            return list(self.regimes)
        names = list(dict.fromkeys(name.strip() for name in asked.split(",") if name.strip()))
        for name in names:
            if name not in self.regimes:
                near = nearest_key(name, self.regimes)
                raise UserError(
                    f"--regimes {name}: no such regime{f', did you mean {near}?' if near else ''}; "
                    f"recipe {self.recipe.name} has: {', '.join(self.regimes)}"
                )
        return names

    def cells(self, regimes: Sequence[str], seeds: Sequence[int]) -> list[Cell]:
        """Runs in the order in which they are made: a seed of every arm before the next seed, so that a comparison that
        is stopped early is a balanced one. Plain GRPO of the tuned regime comes last if that regime isn't asked for.

        Args:
            regimes: those whose every arm is run.
        """
        cells = [Cell(regime, arm, seed) for regime in regimes for seed in seeds for arm in self.arms]
        if self.tuned not in regimes:
            baseline = next(arm for arm in self.arms if arm.name == BASELINE)
            cells += [Cell(self.tuned, baseline, seed) for seed in seeds]
        return cells

    def joined(self, other: Design) -> Design:
        """This design with the regimes and arms that ``other`` adds.

        Raises:
            UserError: the two differ in more than that, so that their runs can't be compared.
        """
        _refuse_other_base(self.recipe, other.recipe)
        for name in self.regimes.keys() & other.regimes.keys():
            if self.regimes[name] != other.regimes[name]:
                raise UserError(
                    f"regime {name} has other settings in this comparison ({dict(self.regimes[name])}) than now "
                    f"({dict(other.regimes[name])}); give it another name, or choose another -o folder"
                )
        arms = {arm.name: arm for arm in self.arms}
        for arm in other.arms:
            if (old := arms.setdefault(arm.name, arm)) != arm:
                raise UserError(
                    f"arm {arm.name} stands for {old.objective} {dict(old.settings)} in this comparison and for "
                    f"{arm.objective} {dict(arm.settings)} now; give it another name, or choose another -o folder"
                )
        if self.tuned != other.tuned:
            raise UserError(f"the tuned regime of this comparison is {self.tuned}, not {other.tuned}")
        return Design(self.recipe, {**self.regimes, **other.regimes}, list(arms.values()), self.tuned)

    def recipe_of(self, cell: Cell) -> Recipe:
        """The recipe of one run: the base, then the regime's settings, then the arm's, then the seed.

        Raises:
            UserError: a setting that doesn't exist or has a wrong value; names regime or arm.
        """
        regime = [f"{key}={json.dumps(value)}" for key, value in self.regimes[cell.regime].items()]
        raw = self.recipe.model_dump(mode="json")
        raw["parameters"] = _parameters_for(cell.arm, self.recipe)
        try:
            return resolve(raw, [*regime, *cell.arm.as_settings(), f"seed={cell.seed}"])
        except UserError as error:
            raise UserError(f"{cell.regime}, {cell.arm.name}: {error}") from None

    def check(self) -> None:
        """Refuse a cell that could not be trained, before any is.

        Raises:
            UserError: names regime and arm.
        """
        from sleuth.objectives import resolve as resolve_objective

        for regime in self.regimes:
            for arm in self.arms:
                recipe = self.recipe_of(Cell(regime, arm, 0))
                t = recipe.trainer
                try:
                    objective = resolve_objective(
                        recipe.objective, recipe.parameters, recipe.aggregation, t.kl_coefficient
                    )
                    objective.check_training(t.updates_per_batch)
                except UserError as error:
                    raise UserError(f"{regime}, {arm.name}: {error}") from None


def _refuse_other_base(old: Recipe, new: Recipe) -> None:
    """Names, summaries and what is only shown may differ; what is trained may not."""
    before, after = (recipe.model_dump(mode="json", exclude=_SHOWN) for recipe in (old, new))
    changed = sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
    if changed:
        raise UserError(
            f"this comparison was started with another {changed[0]} than is given now; runs of both can't be compared: "
            "leave it as it was, or choose another -o folder"
        )


def _parameters_for(arm: Arm, base: Recipe) -> dict[str, dict[str, Any]]:
    """The base recipe's parameters of the parts that the arm has.

    Those of ``grpo`` are the base of every objective, less what a part of the arm sets itself.
    """
    from sleuth.objectives import TABLE

    parts = [part.strip() for part in arm.objective.split("+")]
    slots = {TABLE[part].slot for part in parts if part in TABLE and part != BASELINE}
    void = {"advantage": ("std", "eps"), "surrogate": ("clip_low", "clip_high")}
    replaced = {key for slot in slots for key in void.get(slot, ())}
    kept: dict[str, dict[str, Any]] = {}
    implied = next((TABLE[part].aggregation for part in parts if part in TABLE and TABLE[part].aggregation), None)
    aggregation = arm.settings.get("aggregation") or base.aggregation or implied
    for part, values in base.parameters.items():
        if part == "aggregation" and aggregation == "sum_over_max_length":
            kept[part] = dict(values)
        elif part == BASELINE:
            kept[part] = {key: value for key, value in values.items() if key not in replaced}
        elif part in parts:
            kept[part] = dict(values)
    return kept


def parse_seeds(text: str) -> list[int]:
    """``5``: five seeds, 0 to 4. ``5-9``: those. ``1,4`` and ``7,``: exactly those.

    Raises:
        UserError: anything else.
    """
    pieces = [piece.strip() for piece in text.split(",")]
    try:
        if len(pieces) == 1 and pieces[0].isdigit():
            seeds = list(range(int(pieces[0])))
        else:
            seeds = [seed for piece in pieces if piece for seed in _range(piece)]
    except ValueError:
        seeds = []
    if not seeds:
        raise UserError(f"--seeds {text}: write how many (5), which (5-9), or a list (1,4)")
    return list(dict.fromkeys(seeds))


def seeds_text(seeds: Collection[int]) -> str:
    """``seed 4``, ``seeds 0 to 4``, ``seeds 0 to 2, 7``: which they are, since ``--seeds 4`` is how many."""
    known = sorted(seeds)
    runs: list[list[int]] = []
    for seed in known:
        if runs and seed == runs[-1][-1] + 1:
            runs[-1].append(seed)
        else:
            runs.append([seed])
    pieces = [f"{run[0]} to {run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]
    return f"seed{'s' if len(known) > 1 else ''} {', '.join(pieces)}"


def _range(piece: str) -> range:
    first, dash, last = piece.partition("-")
    return range(int(first), int(last) + 1) if dash else range(int(first), int(first) + 1)
