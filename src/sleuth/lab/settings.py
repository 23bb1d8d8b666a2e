"""What a recipe says of its comparisons."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

BASELINE = "grpo"
"""The arm that is always there, and that the others are compared with."""


class ComparisonSettings(BaseModel):
    """How ``sleuth compare`` varies a recipe.

    Attributes:
        regimes: name → settings as on the command line, e.g. ``stress: {trainer.lr: 1.5e-3, trainer.steps: 40}``.
            None at all: the recipe as it is, called ``recipe``.
        tuned: the regime whose settings suit plain GRPO best; GRPO there is in every table. None: the first one.
        arms: name → objective, e.g. ``sapo-1: search_sapo[gamma=1]``; what is compared unless ``--objectives`` says
            otherwise.
        seconds_per_step: CPU seconds that a step takes with plain GRPO, as measured; for the estimate of time.
    """

    model_config = ConfigDict(extra="forbid", validate_default=True)

    regimes: dict[str, dict[str, Any]] = Field(default_factory=dict)
    tuned: str | None = None
    arms: dict[str, str] = Field(default_factory=dict)
    seconds_per_step: float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _tuned_is_a_regime(self) -> ComparisonSettings:
        if self.tuned is not None and self.tuned not in self.regimes:
            raise ValueError(
                f"tuned={self.tuned!r} is none of the regimes: {', '.join(self.regimes) or 'there are none'}"
            )
        return self
