"""Is a run drifting, since when, where, what to do, and what can't be told from what is there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from sleuth.diagnostics.alarm_advice import Setup, options
from sleuth.diagnostics.alarm_limits import AlarmLimits
from sleuth.diagnostics.alarm_rules import Level
from sleuth.diagnostics.alarms import Alarm, AlarmMonitor
from sleuth.diagnostics.history import number

Records = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the records of a run say.

    Attributes:
        engine: a key of :data:`sleuth.diagnostics.foreign_names.ENGINES`.
        first, last, steps: of the records: first and last step, and how many.
        alarms: all that were raised, in order.
        active: rules whose alarm holds at the last step.
        unknown: what can't be told, a sentence each, with what to do for it.
        notes: what else a reader must know.
    """

    engine: str
    first: int
    last: int
    steps: int
    alarms: tuple[Alarm, ...]
    active: tuple[str, ...]
    unknown: tuple[str, ...]
    notes: tuple[str, ...] = field(default=())

    @property
    def level(self) -> Level | None:
        """The worst that holds at the last step; None for a healthy run."""
        return self._worst([alarm for alarm in self.alarms if alarm.rule in self.active])

    @property
    def worst(self) -> Level | None:
        """The worst that was ever raised."""
        return self._worst(self.alarms)

    @property
    def since(self) -> int | None:
        """The step in which the oldest trouble began that still holds."""
        return min((alarm.since for alarm in self.alarms if alarm.rule in self.active), default=None)

    @staticmethod
    def _worst(alarms: Sequence[Alarm]) -> Level | None:
        return max((alarm.level for alarm in alarms), key=lambda level: level.rank, default=None)

    @property
    def headline(self) -> str:
        """The whole of it in a sentence."""
        if self.level is not None:
            state = {
                Level.EARLY: "drifting, reward still fine",
                Level.LATE: "drifting, and the reward goes",
                Level.DEAD: "collapsed",
            }
            now = [alarm for alarm in self.alarms if alarm.rule in self.active and alarm.level is self.level]
            began = min(alarm.since for alarm in now)
            first = f"; first signs in step {self.since}" if self.since is not None and self.since < began else ""
            return f"{state[self.level]}, since step {began}{first}"
        if self.alarms:
            return f"quiet now; there were alarms, the last in step {self.alarms[-1].step}"
        return "no alarm in what can be seen" if self.unknown else "healthy: no alarm"

    @property
    def advice(self) -> list[str]:
        """What to do about the alarms that hold, or if none does about all; each thing once."""
        alarms = [alarm for alarm in self.alarms if alarm.rule in self.active] or list(self.alarms)
        worst_first = sorted(alarms, key=lambda alarm: -alarm.level.rank)
        return list(dict.fromkeys(option for alarm in worst_first for option in options(alarm.advice)))

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "engine": self.engine,
            "first": self.first,
            "last": self.last,
            "steps": self.steps,
            "level": self.level,
            "worst": self.worst,
            "since": self.since,
            "headline": self.headline,
            "alarms": [alarm.to_dict() | {"active": alarm.rule in self.active} for alarm in self.alarms],
            "advice": self.advice,
            "unknown": list(self.unknown),
            "notes": list(self.notes),
        }


def judge(
    records: Records,
    engine: str = "sleuth",
    limits: AlarmLimits | None = None,
    setup: Setup | None = None,
    notes: Sequence[str] = (),
) -> Verdict:
    """Look at all records of a run.

    Args:
        records: at least one, as :class:`~sleuth.diagnostics.alarms.AlarmMonitor` takes them.
        setup: what the run is set to; its learning rate is taken from the records if not given.
    """
    limits = limits or AlarmLimits()
    setup = setup or Setup("sleuth" if engine == "rollouts" else engine, lr=number(records[-1].get("lr")))
    monitor = AlarmMonitor(limits, setup, single=len(records) == 1)
    alarms = [alarm for record in records for alarm in monitor.observe(record)]
    steps = [int(record.get("step") or at) for at, record in enumerate(records, 1)]
    return Verdict(
        engine=engine,
        first=steps[0],
        last=steps[-1],
        steps=len(records),
        alarms=tuple(alarms),
        active=tuple(monitor.active),
        unknown=tuple(_unknown(records, engine, limits)),
        notes=tuple(notes),
    )


# What can't be told ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Gap:
    """Statistics without which something can't be seen.

    Attributes:
        names: one of them is enough.
        hidden: what then can't be seen. ``remedy``: what to do for it, by engine (``""``: nothing is known to do).
    """

    names: tuple[str, ...]
    hidden: str
    remedy: Mapping[str, str]


_RATIOS = {
    "trl": "add sleuth.training.drift_callback.DriftCallback to the trainer",
    "verl": "log quantiles of exp(log_prob - old_log_prob) under the names of docs/diagnosis.md, or save rollouts with "
    "old_logprobs and new_logprobs and diagnose those",
    "rollouts": "save old_logprobs and new_logprobs with them",
    "sleuth": "with one update of a batch there are none (trainer.updates_per_batch)",
}

_ONE_UPDATE = (
    "no ratios: each batch gets one update, before which no weight has moved, so that drift within a batch can't be "
    "seen (nor can it do harm); what can be seen is likelihood, entropy and reward"
)

_GAPS = (
    _Gap(("ratio/pos/q01", "ratio/pos/min"),
         "no per-token ratios by the advantage's sign: the tails, where drift shows first, can't be seen", _RATIOS),
    _Gap(("likelihood/pos",), "no likelihood of positive rollouts: its slow decay can't be seen",
         {"trl": _RATIOS["trl"], "verl": "log the mean old log-prob of positive rows as likelihood/pos"}),
    _Gap(("entropy",), "no entropy: its rise, which leads most collapses, can't be seen",
         {"verl": "log actor/entropy (actor_rollout_ref.actor.calculate_entropy=True)"}),
    _Gap(("grad_norm",), "no gradient norm: explosions and vanishing can't be seen", {}),
    _Gap(("reward",), "no reward: late and dead can't be told", {}),
    _Gap(("format",), "no share of well-formed rollouts: a breaking format can't be seen",
         {"trl": "log it from a reward function with log_metric('format', …)"}),
    _Gap(("share/no_answer", "share/truncated"), "no outcomes of rollouts: answer avoidance can't be seen", {}),
    _Gap(("zero_variance_groups",), "no share of groups without signal: a loss of signal can't be seen early",
         {"verl": "verl logs none; critic/rewards/max and min only bound it"}),
    _Gap(("degenerate",), "no text statistics: degenerate text can't be seen", {}),
)  # fmt: skip


def _unknown(records: Records, engine: str, limits: AlarmLimits) -> list[str]:
    names = {name for record in records for name, value in record.items() if number(value) is not None}
    out = []
    for gap in _GAPS:
        if gap.remedy is _RATIOS and engine != "rollouts" and "likelihood/pos" in names and not names & set(gap.names):
            out.append(_ONE_UPDATE)
        elif not names & set(gap.names):
            remedy = gap.remedy.get(engine, "")
            out.append(f"{gap.hidden}{f'; {remedy}' if remedy else ''}")
    if _always(records, "ratio/mean_log", 0.0) and _always(records, "ratio/clipped", 0.0):
        out.append("every ratio is 1, since each batch gets one update: drift can be seen in entropy and reward alone")
    if 1 < len(records) <= limits.warmup:
        out.append(f"{len(records)} steps are too few for a baseline ({limits.warmup}): relative changes can't be seen")
    if len(records) == 1:
        out.append("one batch has no history: only fixed limits were looked at, and each of them once")
    elif "likelihood/pos" in names and len(records) < limits.trend:
        out.append(f"a slow decay of likelihood needs {limits.trend} steps")
    gap_between = _spacing(records)
    if gap_between > 1:
        out.append(f"one record in {gap_between} steps: a collapse that takes one or two batches shows when it is over")
    return out


def _always(records: Records, name: str, value: float) -> bool:
    values = [number(record.get(name)) for record in records if name in record]
    return bool(values) and all(v == value for v in values)


def _spacing(records: Records) -> int:
    steps = [int(record["step"]) for record in records if number(record.get("step")) is not None]
    gaps = sorted(b - a for a, b in pairwise(steps))
    return gaps[len(gaps) // 2] if gaps else 1
