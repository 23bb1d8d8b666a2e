"""A comparison as it stands: its design, its results, and what they show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sleuth.lab.analysis import Line, analyse
from sleuth.lab.design import Design
from sleuth.lab.results import Result
from sleuth.lab.verdict import verdict

SCHEMA = "sleuth.comparison/1"


class Comparison:
    """Table and verdict are worked out from the results.

    Attributes:
        lines: of the regimes that have runs; the design may hold others that weren't asked for.
        recipe: the base recipe's name. ``arms``: by name ``{"objective", "settings"}``.
    """

    def __init__(self, recipe: str, tuned: str, regimes: dict, arms: dict, results: Sequence[Result]):
        self.recipe, self.tuned, self.regimes, self.arms, self.results = recipe, tuned, regimes, arms, list(results)
        asked = {result.regime for result in self.results}
        shown = [regime for regime in self.regimes if regime in asked]
        self.lines: list[Line] = analyse(self.results, shown, list(self.arms), tuned)
        self.verdict: list[str] = verdict(self.lines, self.results, tuned)

    @classmethod
    def of(cls, design: Design, results: Sequence[Result]) -> Comparison:
        arms = {arm.name: {"objective": arm.objective, "settings": dict(arm.settings)} for arm in design.arms}
        regimes = {name: dict(settings) for name, settings in design.regimes.items()}
        return cls(design.recipe.name, design.tuned, regimes, arms, results)

    def to_dict(self, *, cells: bool = True) -> dict[str, Any]:
        """As in ``comparison.json``."""
        return {
            "schema": SCHEMA,
            "recipe": self.recipe,
            "tuned": self.tuned,
            "regimes": self.regimes,
            "arms": self.arms,
            "cells": [result.to_dict() for result in self.results] if cells else [],
            "table": [line.to_dict() for line in self.lines],
            "verdict": self.verdict,
        }
