"""The table of alarm rules: each looks at the records so far and says whether its limit is crossed in this step.

A rule decides nothing alone: :class:`sleuth.diagnostics.alarms.AlarmMonitor` raises an alarm when the limit was crossed
often enough. Limits and their reasons are in :mod:`sleuth.diagnostics.alarm_limits`, under the rule's name; names of
statistics in :mod:`sleuth.diagnostics.names`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean, median

from sleuth.diagnostics.alarm_limits import AlarmLimits
from sleuth.diagnostics.history import History, is_broken


class Level(StrEnum):
    """How far it has gone."""

    EARLY = "early"
    """Drift is visible, the reward still fine: cheap to mend."""
    LATE = "late"
    """The reward is falling, or falls next."""
    DEAD = "dead"
    """The policy is lost; only a checkpoint from before helps."""

    @property
    def rank(self) -> int:
        """0 for early, 2 for dead."""
        return list(Level).index(self)


@dataclass(frozen=True, slots=True)
class Reading:
    """A rule's look at one step.

    Attributes:
        value, limit: as compared, baseline worked in, so that both are in the statistic's own unit.
        crossed: whether ``value`` is on the wrong side of ``limit``.
    """

    statistic: str
    value: float
    limit: float
    crossed: bool


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the table.

    Attributes:
        name: also the name of its threshold.
        title: what it has found, in words.
        needs: statistics, of which it must have at least one to say anything.
        read: the look at the latest step; None where the record doesn't tell, or not yet.
    """

    name: str
    level: Level
    title: str
    needs: tuple[str, ...]
    read: Callable[[History, float, AlarmLimits], Reading | None]


Look = Callable[[History, float, AlarmLimits], Reading | None]


# Against a fixed limit ------------------------------------------------------------------------------------------------


def _below(name: str) -> Look:
    def read(history: History, limit: float, limits: AlarmLimits) -> Reading | None:
        value = _settled(history, name, limits)
        return None if value is None else Reading(name, value, limit, value < limit)

    return read


def _above(name: str) -> Look:
    def read(history: History, limit: float, limits: AlarmLimits) -> Reading | None:
        value = _settled(history, name, limits)
        return None if value is None else Reading(name, value, limit, value > limit)

    return read


def _settled(history: History, name: str, limits: AlarmLimits) -> float | None:
    """This step's value, unless it is one of the first: the optimiser's first steps are large in every run."""
    return history.now(name) if history.records > limits.settle else None


# Against the run's own first steps ------------------------------------------------------------------------------------


def _times_baseline(name: str, *, least: float = 0.0) -> Look:
    """Above ``limit`` times the baseline (below it for a limit under 1), outside of its spread, and above ``least``."""

    def read(history: History, limit: float, limits: AlarmLimits) -> Reading | None:
        value, base = history.now(name), history.baseline(name)
        if value is None or base is None or base.median <= 0:
            return None
        margin = limits.spreads * base.spread
        if limit >= 1:
            bound = max(limit * base.median, base.median + margin, least)
            return Reading(name, value, bound, value > bound)
        bound = min(limit * base.median, base.median - margin)
        return Reading(name, value, bound, value < bound)

    return read


def _over_baseline(*names: str) -> Look:
    """The sum of the statistics is more than ``limit`` above its baseline, and outside of its spread."""

    def read(history: History, limit: float, limits: AlarmLimits) -> Reading | None:
        known = [name for name in names if history.now(name) is not None]
        if not known:
            return None
        base = [history.baseline(name) for name in known]
        present = [b for b in base if b is not None]
        if len(present) < len(known):
            return None
        value = math.fsum(history.now(name) or 0.0 for name in known)
        start = math.fsum(b.median for b in present)
        bound = start + max(limit, limits.spreads * math.fsum(b.spread for b in present))
        worst = max(known, key=lambda name: history.now(name) or 0.0)
        return Reading(worst, value, bound, value > bound)

    return read


# Against the run's recent steps or its best ---------------------------------------------------------------------------


def _gradient_explosion(history: History, limit: float, limits: AlarmLimits) -> Reading | None:
    """Of the largest norm in the step where that is known: the last update's is one of many."""
    name = "grad_norm" if history.now("grad_norm_max") is None else "grad_norm_max"
    value, recent = history.now(name), history.before(name)[-limits.trend :]
    if value is None or len(recent) < limits.warmup:
        return None
    bound = limit * median(recent)
    return Reading(name, value, bound, value > bound > 0)


def _likelihood_falls(history: History, limit: float, limits: AlarmLimits) -> Reading | None:
    """Medians of the last and of the first third of the trend: one outlier moves neither."""
    likelihood, reward = history.tail("likelihood/pos", limits.trend), history.tail("reward", limits.trend)
    if len(likelihood) < limits.trend or len(reward) < limits.trend:
        return None
    change = _last_third(likelihood) - _first_third(likelihood)
    crossed = change < -limit and _last_third(reward) >= _first_third(reward)
    return Reading("likelihood/pos", change, -limit, crossed)


def _first_third(values: Sequence[float]) -> float:
    return median(values[: len(values) // 3])


def _last_third(values: Sequence[float]) -> float:
    return median(values[-(len(values) // 3) :])


def _below_peak(name: str, smooth: int) -> Look:
    """The mean of ``smooth`` steps against the best such mean before. Rewards may be negative: they count from their
    lowest value so far."""

    def read(history: History, limit: float, limits: AlarmLimits) -> Reading | None:
        values, now = history.before(name), history.now(name)
        if now is None or len(values) < max(smooth, limits.warmup):
            return None
        floor = min(0.0, min(values), now)
        means = [fmean(values[i - smooth : i]) for i in range(smooth, len(values) + 1)]
        peak = max(means) - floor
        if peak <= 0:
            return None
        value = fmean([*values[len(values) - smooth + 1 :], now])
        bound = floor + limit * peak
        return Reading(name, value, bound, value < bound)

    return read


def _format_slips(history: History, limit: float, limits: AlarmLimits) -> Reading | None:
    value, values = history.now("format"), history.before("format")
    if value is None or len(values) < limits.warmup:
        return None
    bound = max(median(values[i - limits.warmup : i]) for i in range(limits.warmup, len(values) + 1)) - limit
    return Reading("format", value, bound, value < bound)


# Signal ---------------------------------------------------------------------------------------------------------------


def silent_groups(history: History) -> float | None:
    """Share of groups without signal; None where only their number is known."""
    count, groups = history.now("zero_variance_groups"), history.now("groups")
    return None if count is None or not groups else count / groups


def _zero_variance(below_reward: float) -> Look:
    def read(history: History, limit: float, limits: AlarmLimits) -> Reading | None:
        share, reward = silent_groups(history), history.now("reward")
        if share is None or reward is None:
            return None
        return Reading("zero_variance_groups", share, limit, share > limit and reward < below_reward)

    return read


def _no_signal(history: History, limit: float, limits: AlarmLimits) -> Reading | None:
    grad = history.now("grad_norm")
    reading = _zero_variance(0.05)(history, limit, limits)
    if reading is not None and reading.crossed:
        return reading
    if grad is not None and grad == 0:
        return Reading("grad_norm", 0.0, 0.0, True)
    return reading or (None if grad is None else Reading("grad_norm", grad, 0.0, False))


def _not_finite(history: History, limit: float, limits: AlarmLimits) -> Reading | None:
    for name in ("loss", "grad_norm", "entropy", "ratio/mean", "ratio/pos/mean", "ratio/neg/mean"):
        if is_broken(history.record.get(name)):
            return Reading(name, float(history.record[name]), 0.0, True)
    return Reading("loss", history.now("loss") or 0.0, 0.0, False)


def _mean_drift(history: History, limit: float, limits: AlarmLimits) -> Reading | None:
    mean_log = history.now("ratio/mean_log")
    value = history.now("ratio/exp_mean_log") if mean_log is None else math.exp(min(max(mean_log, -20.0), 20.0))
    return None if value is None else Reading("ratio/exp_mean_log", value, limit, value < limit)


FAILED = ("share/retriever_failed", "share/aborted")
NO_ANSWER = ("share/no_answer", "share/truncated")

RULES: tuple[Rule, ...] = (
    Rule("low_tail", Level.EARLY, "ratios of positive tokens sink in the tail", ("ratio/pos/q01",),
         _below("ratio/pos/q01")),
    Rule("large_steps", Level.EARLY, "the policy moves far within a step, again and again", ("ratio/pos/q95",),
         _above("ratio/pos/q95")),
    Rule("sinking_tokens", Level.EARLY, "many positive tokens lose a fifth of their probability within a step",
         ("ratio/pos/below_0.8",), _above("ratio/pos/below_0.8")),
    Rule("lost_tokens", Level.EARLY, "single positive tokens lose nearly all of their probability",
         ("ratio/pos/min",), _below("ratio/pos/min")),
    Rule("negative_burst", Level.EARLY, "a negative token's ratio explodes", ("ratio/neg/max",),
         _above("ratio/neg/max")),
    Rule("sequence_drift", Level.EARLY, "whole positive rollouts lose likelihood within a step",
         ("sequence/pos/below_0.9",), _above("sequence/pos/below_0.9")),
    Rule("likelihood_falls", Level.EARLY, "positive rollouts become less likely while reward holds",
         ("likelihood/pos",), _likelihood_falls),
    Rule("entropy_rise", Level.EARLY, "entropy climbs", ("entropy",), _times_baseline("entropy")),
    Rule("entropy_collapse", Level.EARLY, "entropy is nearly gone", ("entropy",), _times_baseline("entropy")),
    Rule("gradient_explosion", Level.EARLY, "the gradient's norm explodes", ("grad_norm",), _gradient_explosion),
    Rule("gradient_vanishing", Level.EARLY, "the gradient vanishes", ("grad_norm",), _times_baseline("grad_norm")),
    Rule("clip_share", Level.EARLY, "more and more tokens are clipped", ("ratio/clipped",),
         _times_baseline("ratio/clipped", least=0.01)),
    Rule("answer_avoidance", Level.EARLY, "rollouts stop answering", NO_ANSWER, _over_baseline(*NO_ANSWER)),
    Rule("format_slips", Level.EARLY, "the format begins to break", ("format",), _format_slips),
    Rule("degenerate", Level.EARLY, "text degenerates into repetition", ("degenerate",), _over_baseline("degenerate")),
    Rule("searches_vanish", Level.EARLY, "the policy gives up searching", ("searches",), _times_baseline("searches")),
    Rule("repeated_queries", Level.EARLY, "the policy repeats its queries", ("repeated_queries",),
         _over_baseline("repeated_queries")),
    Rule("zero_variance", Level.EARLY, "groups without any signal take over", ("zero_variance_groups",),
         _zero_variance(0.8)),
    Rule("failed_rollouts", Level.EARLY, "rollouts fail", FAILED, _over_baseline(*FAILED)),
    Rule("mean_drift", Level.LATE, "the policy has drifted as a whole", ("ratio/mean_log", "ratio/exp_mean_log"),
         _mean_drift),
    Rule("reward_fell", Level.LATE, "reward falls", ("reward",), _below_peak("reward", 5)),
    Rule("format_fell", Level.LATE, "the format is breaking down", ("format",), _below_peak("format", 3)),
    Rule("reward_gone", Level.DEAD, "reward stays below half of its peak", ("reward",), _below_peak("reward", 1)),
    Rule("no_signal", Level.DEAD, "no signal is left", ("zero_variance_groups", "grad_norm"), _no_signal),
    Rule("not_finite", Level.DEAD, "numbers are no longer finite", ("loss", "grad_norm"), _not_finite),
)  # fmt: skip
"""All rules, mildest level first. Their order is the order in which a step's alarms are raised."""


def table() -> str:
    """The rules as a Markdown table; docs hold it word for word."""
    limits, reasons = AlarmLimits(), AlarmLimits.rules()
    rows = [
        f"| `{rule.name}` | {rule.level} | {rule.title} | {limits.of(rule.name).limit:g} | "
        f"{limits.of(rule.name).hits} of {limits.of(rule.name).window} | {reasons[rule.name]} |"
        for rule in RULES
    ]
    head = [
        "| rule | level | it found | limit | steps | what is compared, and why there |",
        "|---|---|---|--:|---|---|",
    ]
    return "\n".join([*head, *rows])
