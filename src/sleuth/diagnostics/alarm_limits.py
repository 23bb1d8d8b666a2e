"""What the alarms compare with: one limit a rule, each with the reason for its value.

All of it can be set in a recipe, ``diagnosis.rules.low_tail.limit=0.2``, and is one object here, so that limits can be
tuned on some runs and tried on others.
"""

from __future__ import annotations

import math
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Threshold(BaseModel):
    """When one rule speaks.

    Attributes:
        limit: what the statistic is compared with; each rule's reason says in which unit.
        hits, window: the limit must be crossed in ``hits`` of the last ``window`` steps that have the statistic. One
            bad batch is noise.
        on: False switches the rule off.
    """

    model_config = ConfigDict(extra="forbid")

    limit: float = Field(allow_inf_nan=False)
    hits: int = Field(default=1, ge=1)
    window: int = Field(default=1, ge=1)
    on: bool = True

    @model_validator(mode="after")
    def _fits(self) -> Threshold:
        if self.hits > self.window:
            raise ValueError(f"hits={self.hits} can't come in a window of {self.window} steps")
        return self


def _threshold(limit: float, hits: int, window: int, why: str) -> Any:
    return Field(default=Threshold(limit=limit, hits=hits, window=window), description=why)


_TINY = 1e-30
_SENSIBLE: tuple[tuple[tuple[str, ...], float, float], ...] = (
    (("low_tail", "lost_tokens", "mean_drift"), _TINY, 1.0),
    (("large_steps", "negative_burst"), 1.0, math.inf),
    (("entropy_rise", "gradient_explosion", "clip_share"), 1.0, math.inf),
    (("entropy_collapse", "gradient_vanishing", "searches_vanish", "reward_fell", "format_fell", "reward_gone"),
     _TINY, 1.0),
    (("sinking_tokens", "sequence_drift", "answer_avoidance", "degenerate", "zero_variance", "failed_rollouts",
      "no_signal", "format_slips"), 0.0, 0.999),
    (("likelihood_falls", "repeated_queries"), 0.0, math.inf),
)  # fmt: skip
"""Rules, and between which values their limit must lie to be crossed by some runs and not by others."""


class AlarmLimits(BaseModel):
    """The limits of every rule (:data:`sleuth.diagnostics.alarm_rules.RULES`).

    Attributes:
        warmup: steps at the start whose median and spread (MAD) are the run's own baseline. Rules that compare with it
            are silent until then.
        settle: steps at the start in which ratios don't count: an optimiser without a history takes its largest steps
            there, in runs that collapse and in runs that don't.
        trend: steps over which a slow fall is measured.
        spreads: a value must also lie so many spreads from the baseline, so that a statistic which was noisy from the
            start raises no alarm for being noisy.
    """

    model_config = ConfigDict(extra="forbid")

    warmup: int = Field(default=5, ge=2)
    settle: int = Field(default=3, ge=0)
    trend: int = Field(default=20, ge=6)
    spreads: float = Field(default=4.0, ge=0)

    low_tail: Threshold = _threshold(
        0.15,
        2,
        5,
        "1 % quantile of r on positive tokens. Runs at a fitting learning rate stay above 0.75; many that "
        "drift and yet don't collapse dip to 0.2.",
    )
    large_steps: Threshold = _threshold(
        1.11,
        2,
        5,
        "95 % quantile of r on positive tokens: how far a batch's updates carry the policy. Of all figures of the "
        "ratio it tells runs that collapse best from others at the same rate. At a fitting one it is below 1.05.",
    )
    sinking_tokens: Threshold = _threshold(
        0.05,
        3,
        5,
        "share of positive tokens with r below 0.8. Runs that keep their reward go above 0.04, but not on end.",
    )
    lost_tokens: Threshold = _threshold(
        1e-8, 2, 5, "lowest r of a positive token. It dips before a collapse, but to 1e-7 in runs that survive, too."
    )
    negative_burst: Threshold = _threshold(
        60.0,
        2,
        5,
        "highest r of a negative token: plain GRPO's gradient has no bound there. Runs that survive reach 50.",
    )
    sequence_drift: Threshold = _threshold(
        0.2, 2, 5, "share of positive rollouts whose length-normalised ratio is below 0.9 (ISDD made measurable)."
    )
    likelihood_falls: Threshold = _threshold(
        0.05, 3, 5, "nats a token that positive rollouts lost over `trend` steps while reward didn't fall (LLD)."
    )
    entropy_rise: Threshold = _threshold(
        1.5, 3, 5, "times the baseline. It leads the fall of reward by 40 to 60 steps in the published GRPO run."
    )
    entropy_collapse: Threshold = _threshold(
        0.1, 3, 5, "times the baseline. Healthy runs sharpen too, down to about 0.15 of it."
    )
    gradient_explosion: Threshold = _threshold(
        8.0, 2, 5, "times the median of the last `trend` steps. Runs that die of it show 20 times and more."
    )
    gradient_vanishing: Threshold = _threshold(
        0.05, 3, 5, "times the baseline: the update has stopped to learn. A healthy run's falls to about a third."
    )
    clip_share: Threshold = _threshold(
        3.0, 3, 5, "times the baseline's share of clipped tokens (and above 1 %, where published runs begin to die)."
    )
    answer_avoidance: Threshold = _threshold(
        0.2,
        5,
        5,
        "share of rollouts without an answer, above the baseline's. F1 rewards invite it. Runs that keep their reward "
        "go 0.2 above it for four steps.",
    )
    format_slips: Threshold = _threshold(
        0.3,
        3,
        5,
        "share of well-formed rollouts lost since the best so far. Broken tags come before the reward falls; a fifth "
        "was lost for a while in runs that keep their reward.",
    )
    degenerate: Threshold = _threshold(
        0.25, 2, 5, "share of rollouts that repeat themselves, above the baseline's; up to 0.13 in runs that survive."
    )
    searches_vanish: Threshold = _threshold(0.4, 3, 5, "times the baseline: the policy gives up searching and guesses.")
    repeated_queries: Threshold = _threshold(
        0.5, 3, 5, "repeated queries a rollout, above the baseline's: it searches in circles."
    )
    zero_variance: Threshold = _threshold(
        0.8, 3, 5, "share of groups whose rewards are all equal, while reward is below 0.8: no signal is left in them."
    )
    failed_rollouts: Threshold = _threshold(
        0.1,
        2,
        5,
        "share of rollouts that the retriever or a tool failed: a fault of the environment, not of the policy.",
    )
    mean_drift: Threshold = _threshold(
        0.91,
        2,
        5,
        "exp of the mean log-ratio. Runs that survive are below 0.95 for a while.",
    )
    reward_fell: Threshold = _threshold(
        0.7, 2, 3, "times the peak, both as means over 5 steps: more than batches of 100 rollouts vary by chance."
    )
    format_fell: Threshold = _threshold(
        0.6, 2, 3, "times the best share of well-formed rollouts. From 0.7 runs come back whole."
    )
    reward_gone: Threshold = _threshold(
        0.5, 5, 5, "times the earlier peak, for 5 steps on end: by then no published or own run has come back whole."
    )
    no_signal: Threshold = _threshold(
        0.95, 3, 5, "share of groups without signal, with next to no reward: there is nothing left to learn from."
    )
    not_finite: Threshold = _threshold(0, 1, 1, "loss, gradient, entropy or ratios that are NaN or infinite.")

    @model_validator(mode="after")
    def _can_be_crossed(self) -> AlarmLimits:
        for names, low, high in _SENSIBLE:
            for name in names:
                threshold = self.of(name)
                if threshold.on and not low <= threshold.limit <= high:
                    bounds = f"from {low:g} to {high:g}" if high < math.inf else f"at least {low:g}"
                    raise ValueError(
                        f"{name}.limit={threshold.limit:g}: it must be {bounds}, otherwise the rule speaks always or "
                        f"never; {name}.on=false switches it off"
                    )
        return self

    @model_validator(mode="before")
    @classmethod
    def _keep_what_is_not_said(cls, data: Any) -> Any:
        """``low_tail: {limit: 0.2}`` changes the limit alone, and keeps this rule's own hits and window."""
        if not isinstance(data, dict):
            return data
        merged = dict(data)
        for name, value in data.items():
            field = cls.model_fields.get(name)
            if isinstance(value, dict) and field is not None and isinstance(field.default, Threshold):
                merged[name] = field.default.model_dump() | value
        return merged

    def of(self, rule: str) -> Threshold:
        """The threshold of a rule by name."""
        return getattr(self, rule)

    @classmethod
    def rules(cls) -> dict[str, str]:
        """Every rule's name with the reason for its limit."""
        return {
            name: field.description or ""
            for name, field in cls.model_fields.items()
            if isinstance(field.default, Threshold)
        }
