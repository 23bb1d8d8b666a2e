"""The reward of a rollout: a weighted sum of outcome, format and costs, or a user's own function."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from sleuth.errors import UserError
from sleuth.plugins import load_object, where_raised
from sleuth.rewards.graders import GRADERS
from sleuth.types import Trajectory

RewardFunction = Callable[[Trajectory], float | Mapping[str, float]]
"""A user's own reward: a number, or components by name with the reward itself under ``"reward"``."""


class RewardSettings(BaseModel):
    """What is rewarded. The default, exact match by the published grader, is Search-R1's reward (arXiv 2503.09516).

    Attributes:
        grader: ``squad`` or ``robust``; decides ``em``, ``f1`` and ``cover_em`` wherever they are reported.
        em, f1, cover_em: weights of the outcome scores, each from 0 to 1.
        format: weight of a valid format (0 or 1).
        search_cost: subtracted for each search.
        token_cost: subtracted for each token that the policy sampled.
        function: a user's own ``module:function`` instead of the weighted sum (see :data:`RewardFunction`).
    """

    model_config = ConfigDict(extra="forbid", validate_default=True)

    grader: Literal["squad", "robust"] = "squad"
    em: float = Field(default=1.0, allow_inf_nan=False)
    f1: float = Field(default=0.0, allow_inf_nan=False)
    cover_em: float = Field(default=0.0, allow_inf_nan=False)
    format: float = Field(default=0.0, allow_inf_nan=False)
    search_cost: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    token_cost: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    function: str | None = None

    @property
    def weights(self) -> dict[str, float]:
        """Weight of each component of :func:`score`; costs are negative."""
        outcome = {name: getattr(self, name) for name in ("em", "f1", "cover_em", "format")}
        return {**outcome, "searches": -self.search_cost, "policy_tokens": -self.token_cost}

    @model_validator(mode="after")
    def _rewards_something(self) -> RewardSettings:
        unused = self.model_fields_set - {"grader", "function"}
        if self.function is not None and unused:
            raise ValueError(
                f"function={self.function} replaces the weighted sum; leave out {', '.join(sorted(unused))}"
            )
        if not any(self.weights.values()):
            raise ValueError("all weights are 0, so every rollout would get the same reward; set em or f1")
        return self


class Reward:
    """Fills ``reward`` and ``rewards`` of trajectories."""

    def __init__(self, settings: RewardSettings | str | None = None):
        """``settings`` may be the name ``module:function`` of a user's own reward.

        Raises:
            UserError: the function can't be loaded or isn't callable.
        """
        if isinstance(settings, str):
            settings = RewardSettings(function=settings)
        self.settings = settings or RewardSettings()
        self._function: RewardFunction | None = None
        if self.settings.function is not None:
            self._function = load_object(self.settings.function)
            if not callable(self._function):
                raise UserError(f"reward {self.settings.function} is not callable; name a function")

    def __call__(self, trajectories: Iterable[Trajectory]) -> None:
        """Reward each trajectory in place. A failed one gets None: it says nothing of the policy.

        ``rewards`` always holds :func:`score`'s components, and those of the user's function if there is one.

        Raises:
            UserError: the user's function raised, or returned something that is no finite number.
        """
        for trajectory in trajectories:
            if trajectory.failed:
                trajectory.reward, trajectory.rewards = None, {}
                continue
            components = score(trajectory, self.settings.grader)
            if self._function is None:
                weights = self.settings.weights
                trajectory.reward = math.fsum(weights[name] * components[name] for name in weights)
            else:
                own = self._own_components(self._function, trajectory)
                trajectory.reward = own.pop("reward")
                components |= own
            trajectory.rewards = components

    def _own_components(self, function: RewardFunction, trajectory: Trajectory) -> dict[str, float]:
        where = f"reward {self.settings.function}, rollout {trajectory.id}"
        try:
            result: Any = function(trajectory)
        except Exception as error:
            what = f"{type(error).__name__}: {error}".splitlines()[0]
            raise UserError(f"{where}: raised {what} ({where_raised(error)})") from error
        components = dict(result) if isinstance(result, Mapping) else {"reward": result}
        if "reward" not in components:
            raise UserError(f'{where}: returned components without "reward"; add the number to train on')
        return {name: _finite(value, f"{where}: {name}") for name, value in components.items()}


def score(trajectory: Trajectory, grader: str) -> dict[str, float]:
    """The components of a rollout: ``em``, ``f1``, ``cover_em``, ``format``, ``searches`` and ``policy_tokens``.

    Only what the policy said is read: its answer, the verdict on its format, its counts. No text of any span is.
    """
    grade = GRADERS[grader].grade(trajectory.answer, trajectory.golden_answers)
    return {
        "em": grade.em,
        "f1": grade.f1,
        "cover_em": grade.cover_em,
        "format": float(trajectory.format_valid),
        "searches": float(trajectory.counts.get("searches", 0)),
        "policy_tokens": float(trajectory.policy_tokens),
    }


def _finite(value: Any, where: str) -> float:
    try:
        number = float("not text" if isinstance(value, str) else value)
    except (TypeError, ValueError):
        raise UserError(f"{where} is {value!r}; return a number") from None
    if not math.isfinite(number):
        raise UserError(f"{where} is {number}; return a finite number")
    return number
