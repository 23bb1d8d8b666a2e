"""Pair mining: of a question's rollouts, a right one to be shown to the teacher and one for the student to learn on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sleuth.errors import UserError
from sleuth.training.search_e1.settings import PairSettings
from sleuth.types import Trajectory, group_trajectories


@dataclass(frozen=True, slots=True)
class Attempt:
    """What mining looks at in a rollout. ``searches`` reached the retriever; ``tokens`` were sampled."""

    correct: bool
    searches: int
    tokens: int


class Dropped(StrEnum):
    """Why a question gives no pair."""

    TOO_FEW = "too_few"
    """Fewer than two of its rollouts can be used; the rest failed or sampled nothing."""
    ALL_WRONG = "all_wrong"
    """None is right, so that there is nothing to show."""
    ALL_ALIKE = "all_alike"
    """All are right, and none in another way than the reference."""
    NO_SEARCH = "reference_without_search"
    """The reference never searched, and the settings don't want such."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A question's pair. Both are rollouts of the pool, with ids as they were sampled."""

    reference: Trajectory
    student: Trajectory


@dataclass(frozen=True, slots=True)
class MinedPairs:
    """Attributes:
    pairs: in the order of the pool's questions.
    statistics: numbers by name, as ``pairs.json`` has them.
    """

    pairs: list[Pair]
    statistics: dict[str, Any]


def choose(attempts: Sequence[Attempt], settings: PairSettings | None = None) -> tuple[int, int] | Dropped:
    """Places of reference and student among a question's rollouts, or why there is no pair.

    Ties go to the fewest sampled tokens (reference) or the most (student), then to the first.
    """
    s = settings or PairSettings()
    if len(attempts) < 2:
        return Dropped.TOO_FEW
    right = [i for i, a in enumerate(attempts) if a.correct]
    wrong = [i for i, a in enumerate(attempts) if not a.correct]
    if not right:
        return Dropped.ALL_WRONG

    def size(i: int) -> tuple[int, int]:
        a = attempts[i]
        return (a.searches, a.tokens) if s.reference == "searches" else (a.tokens, a.searches)

    reference = min(right, key=lambda i: (*size(i), i))
    shown = attempts[reference]
    if shown.searches == 0 and not s.reference_without_search:
        return Dropped.NO_SEARCH
    if wrong:
        gap = {i: abs(attempts[i].searches - shown.searches) if s.contrast == "searches" else 0 for i in wrong}
        return reference, max(wrong, key=lambda i: (gap[i], attempts[i].tokens, -i))
    others = [i for i in right if i != reference]
    if s.all_correct == "drop":
        return Dropped.ALL_ALIKE
    if s.all_correct == "longest":
        student = max(others, key=lambda i: (attempts[i].tokens, attempts[i].searches, -i))
        return (reference, student) if attempts[student].tokens > shown.tokens else Dropped.ALL_ALIKE
    student = max(others, key=lambda i: (attempts[i].searches, attempts[i].tokens, -i))
    return (reference, student) if attempts[student].searches > shown.searches else Dropped.ALL_ALIKE


def mine(pool: Sequence[Trajectory], settings: PairSettings | None = None) -> MinedPairs:
    """At most one pair a question (a group of the pool).

    Raises:
        UserError: a rollout whose rewards don't have ``settings.measure``.
    """
    s = settings or PairSettings()
    pairs: list[Pair] = []
    dropped: Counter[str] = Counter()
    groups = group_trajectories(pool)
    for group in groups:
        usable = [t for t in group if not t.failed and t.policy_tokens]
        chosen = choose([_attempt(t, s) for t in usable], s)
        if isinstance(chosen, Dropped):
            dropped[chosen.value] += 1
        else:
            pairs.append(Pair(usable[chosen[0]], usable[chosen[1]]))
    return MinedPairs(pairs, _statistics(pairs, len(groups), dropped, s))


def searches(trajectory: Trajectory) -> int:
    """Searches that reached the retriever; of a rollout that doesn't count them, its queries."""
    return trajectory.counts.get("searches", len(trajectory.queries))


def _attempt(trajectory: Trajectory, settings: PairSettings) -> Attempt:
    correct = _measured(trajectory, settings) >= settings.correct_at
    return Attempt(correct, searches(trajectory), trajectory.policy_tokens)


def _measured(trajectory: Trajectory, settings: PairSettings) -> float:
    value = trajectory.reward if settings.measure == "reward" else trajectory.rewards.get(settings.measure)
    if value is None:
        known = ", ".join(sorted({*trajectory.rewards, "reward"}))
        raise UserError(
            f"search_e1.pairs.measure={settings.measure}: rollout {trajectory.id} has no such reward; it has {known}"
        )
    return value


def _statistics(pairs: Sequence[Pair], questions: int, dropped: Counter[str], settings: PairSettings) -> dict[str, Any]:
    n = max(len(pairs), 1)
    wrong = sum(_measured(p.student, settings) < settings.correct_at for p in pairs)
    return {
        "questions": questions,
        "pairs": len(pairs),
        "pairs_per_question": len(pairs) / max(questions, 1),
        "dropped": dict(sorted(dropped.items())),
        "share_student_wrong": wrong / n,
        "share_reference_without_search": sum(searches(p.reference) == 0 for p in pairs) / n,
        "reference_searches": sum(searches(p.reference) for p in pairs) / n,
        "student_searches": sum(searches(p.student) for p in pairs) / n,
        "reference_tokens": sum(p.reference.policy_tokens for p in pairs) / n,
        "student_tokens": sum(p.student.policy_tokens for p in pairs) / n,
    }
