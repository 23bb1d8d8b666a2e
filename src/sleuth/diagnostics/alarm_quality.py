"""How good alarms are: how long before a collapse they come, and how often they come for nothing.

Alarms read records alone, so any limits can be tried on runs that were made before. A run *collapsed* when its reward
has an onset; how that is found is given from outside (for the lab: :func:`sleuth.lab.onset.collapse_onset`), so that
the judge is not the accused. Limits must be judged on other runs than they were tuned on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, median
from typing import Any

from sleuth.diagnostics.alarm_limits import AlarmLimits
from sleuth.diagnostics.alarm_rules import RULES, Level
from sleuth.diagnostics.alarms import find_alarms
from sleuth.diagnostics.history import number

Records = Sequence[Mapping[str, Any]]
"""A run's lines of ``metrics.jsonl``."""

Onset = Callable[[Sequence[float]], int | None]
"""From a run's rewards, the number (from 1) of the first batch of its collapse; None for a run that didn't collapse."""

Detector = Callable[[Records], int | None]
"""From a run's records, the step of its first warning; None for a run without one. It reads them in order: whether step
n is a warning depends on records up to n alone."""

KEPT = 0.9
"""A run kept its reward if its last ten batches are not below this share of its best ten: what we call healthy."""


@dataclass(frozen=True, slots=True)
class Quality:
    """How one detector did on a set of runs.

    Attributes:
        collapsed: runs with an onset.
        warned: collapsed runs with a warning before the onset. ``warned_by_5``: 5 steps or more before it.
        leads: for each collapsed run the steps from warning to onset, negative where it came after, None for none.
        healthy, false_alarms: runs without an onset, and those of them with a warning.
        steady, false_on_steady: of the healthy runs those that kept their reward (:func:`declined`), and those of them
            with a warning. A run that slowly lost a third of its reward was no false alarm, though it has no onset.
    """

    detector: str
    collapsed: int
    warned: int
    warned_by_5: int
    leads: tuple[int | None, ...]
    healthy: int
    false_alarms: int
    steady: int
    false_on_steady: int

    @property
    def median_lead(self) -> float | None:
        """Median lead of the runs that were warned before the onset, in steps."""
        early = [lead for lead in self.leads if lead is not None and lead > 0]
        return median(early) if early else None

    def to_dict(self) -> dict[str, Any]:
        """As JSON, with the shares."""
        return asdict(self) | {
            "warned_share": self.warned / self.collapsed if self.collapsed else None,
            "warned_by_5_share": self.warned_by_5 / self.collapsed if self.collapsed else None,
            "false_share": self.false_alarms / self.healthy if self.healthy else None,
            "false_on_steady_share": self.false_on_steady / self.steady if self.steady else None,
            "median_lead": self.median_lead,
        }


def alarm_quality(
    runs: Sequence[Records],
    onset: Onset,
    limits: AlarmLimits | None = None,
    detectors: Mapping[str, Detector] | None = None,
) -> list[Quality]:
    """Judge detectors on the same runs.

    Args:
        limits: of the alarms. ``detectors``: default :func:`standard_detectors` of these limits.
    """
    chosen = standard_detectors(limits) if detectors is None else detectors
    starts = [onset_step(records, onset) for records in runs]
    kept = [start is None and not declined(records) for records, start in zip(runs, starts, strict=True)]
    qualities = []
    for name, detector in chosen.items():
        warnings = [detector(records) for records in runs]
        leads = [
            None if warning is None else start - warning
            for start, warning in zip(starts, warnings, strict=True)
            if start is not None
        ]
        false = [w is not None for s, w in zip(starts, warnings, strict=True) if s is None]
        on_steady = [w is not None for k, w in zip(kept, warnings, strict=True) if k]
        qualities.append(
            Quality(
                detector=name,
                collapsed=len(leads),
                warned=sum(lead is not None and lead > 0 for lead in leads),
                warned_by_5=sum(lead is not None and lead >= 5 for lead in leads),
                leads=tuple(leads),
                healthy=len(false),
                false_alarms=sum(false),
                steady=len(on_steady),
                false_on_steady=sum(on_steady),
            )
        )
    return qualities


def declined(records: Records, share: float = KEPT, window: int = 10) -> bool:
    """Whether the mean reward of the last ``window`` steps is below ``share`` of the best such mean."""
    rewards = [value for r in records if (value := number(r.get("reward"))) is not None]
    if len(rewards) <= window:
        return False
    means = [fmean(rewards[i - window : i]) for i in range(window, len(rewards) + 1)]
    return means[-1] < share * max(means)


def onset_step(records: Records, onset: Onset) -> int | None:
    """The step in which a run's collapse begins."""
    rewarded = [(int(r["step"]), value) for r in records if (value := number(r.get("reward"))) is not None]
    batch = onset([value for _, value in rewarded])
    return None if batch is None else rewarded[batch - 1][0]


# Detectors ------------------------------------------------------------------------------------------------------------


def standard_detectors(limits: AlarmLimits | None = None) -> dict[str, Detector]:
    """Our alarms, and the plain rules that they must beat."""
    return {
        "alarms": alarms(limits),
        "early alarms": alarms(limits, level=Level.EARLY),
        "mean ratio < 0.98": mean_ratio(),
        "reward fell": reward_fell(),
    }


def rule_detectors(limits: AlarmLimits | None = None) -> dict[str, Detector]:
    """Each rule alone: which of them find what, and which cry wolf."""
    return {rule.name: alarms(limits, rules=(rule.name,)) for rule in RULES}


def alarms(
    limits: AlarmLimits | None = None, level: Level | None = None, rules: Sequence[str] | None = None
) -> Detector:
    """Warns at the first alarm, of one level or of some rules only if these are given."""

    def detector(records: Records) -> int | None:
        found = [
            alarm.step
            for alarm in find_alarms(records, limits)
            if (level is None or alarm.level is level) and (rules is None or alarm.rule in rules)
        ]
        return min(found, default=None)

    return detector


def mean_ratio(limit: float = 0.98) -> Detector:
    """Warns when the mean ratio of positive tokens is below the limit: what one sees who logs means."""

    def detector(records: Records) -> int | None:
        for record in records:
            value = number(record.get("ratio/pos/mean"))
            if value is not None and value < limit:
                return int(record["step"])
        return None

    return detector


def reward_fell(share: float = 0.8, smooth: int = 3) -> Detector:
    """Warns when the mean reward of ``smooth`` steps is below ``share`` of the best such mean before."""

    def detector(records: Records) -> int | None:
        rewarded = [(int(r["step"]), value) for r in records if (value := number(r.get("reward"))) is not None]
        best = 0.0
        for i in range(smooth, len(rewarded) + 1):
            mean = fmean(value for _, value in rewarded[i - smooth : i])
            if mean < share * best:
                return rewarded[i - 1][0]
            best = max(best, mean)
        return None

    return detector
