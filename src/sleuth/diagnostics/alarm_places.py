"""Where it drifts: the kind of token and the turn that are worst, and the rollouts that show it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sleuth.diagnostics.history import History
from sleuth.diagnostics.names import KINDS, LAST_TURN, SIGNS, TURNS, parse
from sleuth.types import Span, Status, Trajectory

_FEWEST = 20
"""Tokens that a split must have: a quantile of fewer is chance."""


@dataclass(frozen=True, slots=True)
class Place:
    """A split of a batch's tokens; None where it doesn't matter or isn't known.

    Attributes:
        sign: ``pos`` or ``neg``. ``kind``: think, query, answer, tag, other.
        turn: from 1; :data:`sleuth.diagnostics.names.LAST_TURN` is that one and all later ones.
    """

    sign: str | None = None
    kind: str | None = None
    turn: int | None = None

    def __str__(self) -> str:
        signs = {"pos": "positive", "neg": "negative"}
        words = [f"{self.kind} tokens" if self.kind else ""]
        words += [f"turn {self.turn}{'+' if self.turn == LAST_TURN else ''}" if self.turn else ""]
        words += [f"{signs[self.sign]} advantage" if self.sign else ""]
        return ", ".join(word for word in words if word)

    def to_dict(self) -> dict[str, str | int | None]:
        return {"sign": self.sign, "kind": self.kind, "turn": self.turn}


def find_place(history: History, statistic: str) -> Place:
    """The place in which a statistic is worst in the latest step, by comparing the record's splits."""
    name = parse(statistic)
    if name is None:
        return Place()
    head, _, stat = statistic.rpartition("/")
    signs = [name.sign] if name.sign else list(SIGNS) if head == "ratio" else [None]
    up = name.bad == "up"
    if head == "entropy" or statistic == "entropy":
        kind = _worst(history, {k: f"entropy/{k}" for k in KINDS}, True)
        return Place(kind=kind)
    if not statistic.startswith("ratio/") or stat == "clipped":
        return Place(sign=name.sign)
    if name.sign is None:
        sign = _worst(history, {s: f"ratio/{s}/{stat}" for s in signs if s}, up)
        if sign is None:
            return Place()
    else:
        sign = name.sign
    kind = _worst(history, {k: f"ratio/{sign}/{k}/{stat}" for k in KINDS}, up)
    turn = _worst(history, {t: f"ratio/{sign}/{t}/{stat}" for t in TURNS}, up)
    return Place(sign, kind, None if turn is None else int(turn.removeprefix("turn").removesuffix("+")))


def _worst(history: History, names: dict[str, str], up: bool) -> str | None:
    """The key whose statistic is farthest out; against its own baseline where there is one and up means times of it."""
    found: dict[str, float] = {}
    for key, name in names.items():
        value = history.now(name)
        tokens = history.now(f"{name.rpartition('/')[0]}/tokens")
        if value is None or (tokens is not None and tokens < _FEWEST):
            continue
        if name.startswith("entropy/"):
            base = history.baseline(name)
            if base is None or base.median <= 0:
                continue
            value /= base.median
        found[key] = value
    if not found:
        return None
    return (max if up else min)(found, key=lambda key: found[key])


# Sample rollouts ------------------------------------------------------------------------------------------------------


def worst_rollouts(trajectories: Sequence[Trajectory], rule: str, where: Place, count: int = 4) -> tuple[str, ...]:
    """Ids of the rollouts that show a rule's finding best, worst first; empty where the rollouts don't tell.

    Args:
        trajectories: of one step. Ratio rules need their ``old_logprobs`` and ``new_logprobs``.
        where: only tokens of this place count, and rollouts whose reward is above (``pos``) or below (``neg``) the mean
            of their group.
    """
    score = _SCORES.get(rule)
    if score is None:
        return ()
    rollouts = _of_sign(trajectories, where.sign) if where.sign else list(trajectories)
    scored = [(value, t.id) for t in rollouts if (value := score(t, where)) is not None]
    return tuple(name for _, name in sorted(scored)[:count])


def _of_sign(trajectories: Sequence[Trajectory], sign: str) -> list[Trajectory]:
    rewards: dict[tuple[int, str], list[float]] = {}
    for t in trajectories:
        if not t.failed and t.reward is not None:
            rewards.setdefault((t.step, t.group), []).append(t.reward)
    out = []
    for t in trajectories:
        if t.failed or t.reward is None:
            continue
        group = rewards[t.step, t.group]
        advantage = t.reward - sum(group) / len(group)
        if advantage > 0 if sign == "pos" else advantage < 0:
            out.append(t)
    return out


def _log_ratios(trajectory: Trajectory, where: Place) -> list[float]:
    out: list[float] = []
    for turn, span in enumerate(trajectory.policy_spans, 1):
        if span.old_logprobs is None or span.new_logprobs is None:
            continue
        if where.turn is not None and min(turn, LAST_TURN) != where.turn:
            continue
        out += [span.new_logprobs[i] - span.old_logprobs[i] for i in _tokens(span, where.kind)]
    return out


def _tokens(span: Span, kind: str | None) -> Sequence[int]:
    if kind is None:
        return range(len(span.ids))
    if kind == "other":
        covered = {i for part in span.parts for i in range(part.start, part.end)}
        return [i for i in range(len(span.ids)) if i not in covered]
    return [i for part in span.parts if part.kind.value == kind for i in range(part.start, part.end)]


def _lowest(trajectory: Trajectory, where: Place) -> float | None:
    return min(_log_ratios(trajectory, where), default=None)


def _highest(trajectory: Trajectory, where: Place) -> float | None:
    highest = max(_log_ratios(trajectory, where), default=None)
    return None if highest is None else -highest


def _mean(trajectory: Trajectory, where: Place) -> float | None:
    ratios = _log_ratios(trajectory, where)
    return sum(ratios) / len(ratios) if ratios else None


def _without_answer(trajectory: Trajectory, where: Place) -> float | None:
    return -trajectory.policy_tokens if trajectory.status in (Status.NO_ANSWER, Status.TRUNCATED) else None


def _malformed(trajectory: Trajectory, where: Place) -> float | None:
    return None if trajectory.format_valid or trajectory.failed else trajectory.reward or 0.0


def _failed(trajectory: Trajectory, where: Place) -> float | None:
    return 0.0 if trajectory.failed else None


def _repeats(trajectory: Trajectory, where: Place) -> float | None:
    repeated = trajectory.counts.get("repeated_queries", 0)
    return -float(repeated) if repeated else None


def _guesses(trajectory: Trajectory, where: Place) -> float | None:
    return trajectory.reward if not trajectory.failed and not trajectory.counts.get("searches", 0) else None


def _unrewarded(trajectory: Trajectory, where: Place) -> float | None:
    return None if trajectory.failed else trajectory.reward


_SCORES: dict[str, Callable[[Trajectory, Place], float | None]] = {
    "low_tail": _lowest,
    "large_steps": _highest,
    "sinking_tokens": _lowest,
    "lost_tokens": _lowest,
    "negative_burst": _highest,
    "sequence_drift": _mean,
    "mean_drift": _mean,
    "answer_avoidance": _without_answer,
    "format_slips": _malformed,
    "format_fell": _malformed,
    "failed_rollouts": _failed,
    "repeated_queries": _repeats,
    "searches_vanish": _guesses,
    "reward_fell": _unrewarded,
    "reward_gone": _unrewarded,
}
"""The lower, the worse; None for a rollout that doesn't show it."""


def rollout_ids(value: Any) -> tuple[str, ...]:
    """The ids in a line of ``alarms.jsonl``."""
    return tuple(str(x) for x in value) if isinstance(value, list) else ()
