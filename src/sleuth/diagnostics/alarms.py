"""Alarms: a run's drift, seen in its step records before the reward falls.

A monitor takes the records of ``metrics.jsonl`` one after another and raises alarms. It reads nothing else and keeps no
clock, so that alarms can be found again from the records of any run, ours or another trainer's.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sleuth.diagnostics.alarm_advice import Setup, advice
from sleuth.diagnostics.alarm_limits import AlarmLimits
from sleuth.diagnostics.alarm_places import Place, find_place
from sleuth.diagnostics.alarm_rules import RULES, Level, Reading, Rule
from sleuth.diagnostics.history import History


@dataclass(frozen=True, slots=True)
class Alarm:
    """What was found, with its evidence.

    Attributes:
        rule: a name of :data:`sleuth.diagnostics.alarm_rules.RULES`. ``statistic``: a name in the step's record.
        value, limit: as compared in step ``step``, when the alarm was raised.
        since: the step in which the limit was first crossed; a checkpoint of an earlier step is healthy.
        where: the sign, kind and turn in which it is worst.
        rollouts: ids of the step's worst rollouts there, if they are at hand.
        advice: what to change, with the settings to type.
        action: what was done about it.
    """

    level: Level
    rule: str
    statistic: str
    value: float
    limit: float
    step: int
    since: int
    where: Place = field(default_factory=Place)
    rollouts: tuple[str, ...] = ()
    advice: str = ""
    action: str = "warn"

    @property
    def title(self) -> str:
        """What it has found, in words."""
        return _RULES[self.rule].title

    @property
    def line(self) -> str:
        """All of it but the advice, in one line."""
        place = f" ({self.where})" if str(self.where) else ""
        since = f", since step {self.since}" if self.since != self.step else ""
        limit = f"limit {self.limit:.3g}" if math.isfinite(self.value) else "must be finite"
        found = f"{self.title}{place}: {self.statistic} {self.value:.3g}, {limit}{since}"
        return f"{self.level} alarm in step {self.step}: {found}"

    def to_dict(self) -> dict[str, Any]:
        """As a line of ``alarms.jsonl``; a value that is not finite is null."""
        return {
            "level": self.level.value,
            "rule": self.rule,
            "statistic": self.statistic,
            "value": self.value if math.isfinite(self.value) else None,
            "limit": self.limit,
            "step": self.step,
            "since": self.since,
            "where": self.where.to_dict(),
            "rollouts": list(self.rollouts),
            "advice": self.advice,
            "action": self.action,
        }


_RULES: dict[str, Rule] = {rule.name: rule for rule in RULES}


class _Vigil:
    """One rule's memory: which of the latest steps crossed the limit."""

    def __init__(self, hits: int, window: int) -> None:
        self.hits = hits
        self.looks: deque[tuple[int, bool]] = deque(maxlen=window)
        self.raised = False

    def since(self, step: int, reading: Reading) -> int | None:
        """If an alarm is due now, the first step of the window that crossed the limit.

        It is due once, and again only after a whole window of steps was quiet.
        """
        self.looks.append((step, reading.crossed))
        crossed = [at for at, crossed in self.looks if crossed]
        if not crossed:
            self.raised = False
        if self.raised or len(crossed) < self.hits:
            return None
        self.raised = True
        return crossed[0]


class AlarmMonitor:
    """Raises alarms from step records as they come.

    Args:
        setup: what the run is set to, for advice with numbers.
        single: there is one batch only: a limit crossed once counts. Rules that need a baseline stay silent.
    """

    def __init__(self, limits: AlarmLimits | None = None, setup: Setup | None = None, *, single: bool = False) -> None:
        self.limits = limits or AlarmLimits()
        if single:
            self.limits = self.limits.model_copy(update={"settle": 0})
        self.setup = setup or Setup()
        self.history = History(self.limits.warmup)
        self._vigils: dict[str, _Vigil] = {}
        for rule in RULES:
            threshold = self.limits.of(rule.name)
            if threshold.on:
                self._vigils[rule.name] = _Vigil(1 if single else threshold.hits, threshold.window)

    def observe(self, record: Mapping[str, Any]) -> list[Alarm]:
        """Take in one step's record; the alarms that it raises, mildest first.

        An alarm is raised once, and again only after its limit wasn't crossed for a whole window of steps.
        """
        self.history.add(record)
        alarms = []
        for name, vigil in self._vigils.items():
            rule = _RULES[name]
            reading = rule.read(self.history, self.limits.of(name).limit, self.limits)
            since = None if reading is None else vigil.since(self.history.step, reading)
            if reading is None or since is None:
                continue
            where = find_place(self.history, reading.statistic)
            alarms.append(
                Alarm(
                    level=rule.level,
                    rule=name,
                    statistic=reading.statistic,
                    value=reading.value,
                    limit=reading.limit,
                    step=self.history.step,
                    since=since,
                    where=where,
                    advice=advice(name, self.setup),
                )
            )
        return alarms

    @property
    def active(self) -> list[str]:
        """Names of the rules whose alarm is raised and hasn't gone quiet since."""
        return [name for name, vigil in self._vigils.items() if vigil.raised]


def find_alarms(
    records: Iterable[Mapping[str, Any]], limits: AlarmLimits | None = None, setup: Setup | None = None
) -> list[Alarm]:
    """All alarms of a run's step records, in the order of their steps."""
    monitor = AlarmMonitor(limits, setup)
    return [alarm for record in records for alarm in monitor.observe(record)]
