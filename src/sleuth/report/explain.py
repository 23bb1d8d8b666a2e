"""Why a rollout got its reward: components and weights, the answers as they are compared, and what was ill-formed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sleuth.report.numbers import number
from sleuth.rewards.graders import GRADERS
from sleuth.rewards.reward import RewardSettings
from sleuth.types import EndReason, Problem, StopReason, Trajectory

_END = {
    EndReason.ANSWER: "The policy answered.",
    EndReason.MAX_TURNS: "The last turn brought no answer.",
    EndReason.MAX_SEARCHES: "The policy asked for one search more than it is allowed.",
    EndReason.MAX_TURN_TOKENS: "A turn was cut by its token limit.",
    EndReason.MAX_TOKENS: "The rollout's token limit left no room to go on.",
    EndReason.RETRIEVER_FAILED: "The retriever failed, so the rollout is in neither loss nor score.",
    EndReason.ABORTED: "The rollout was aborted, so it is in neither loss nor score.",
}
_PROBLEM = {
    Problem.NO_ACTION: "no complete action",
    Problem.EMPTY_QUERY: "a search for nothing",
    Problem.MALFORMED_CALL: "a tool call that can't be read",
    Problem.UNKNOWN_TOOL: "a call of a tool that isn't offered",
}
_EVENTS = {
    "invalid_actions": "invalid actions",
    "malformed_tags": "malformed tags",
    "trailing_content": "turns with text outside of thought and action",
    "repeated_queries": "repeated queries",
    "empty_results": "searches that found nothing",
    "truncated_observations": "observations that were cut",
}


@dataclass(frozen=True, slots=True)
class Rewarding:
    """How the rollouts were rewarded: the grader, and the weights of the components (None: not known)."""

    grader: str = "squad"
    weights: dict[str, float] | None = None
    function: str | None = None

    @classmethod
    def of(cls, settings: RewardSettings | str | None) -> Rewarding:
        """From a recipe's ``reward``; a user's own function has no weights to show."""
        if settings is None:
            return cls()
        if isinstance(settings, str):
            return cls(function=settings)
        if settings.function is not None:
            return cls(settings.grader, None, settings.function)
        return cls(settings.grader, {name: weight for name, weight in settings.weights.items() if weight})


def explain(trajectory: Trajectory, rewarding: Rewarding) -> dict[str, Any]:
    """Components ``[name, value, weight or None]``, the compared answers, the problems in words, and the events.

    ``golden`` has ``[golden answer, its normal form, whether the answer matches it]`` for each golden answer.
    """
    grader = GRADERS[rewarding.grader]
    t = trajectory
    weights = rewarding.weights
    return {
        "components": [
            [name, number(value), None if weights is None else weights.get(name, 0.0)]
            for name, value in t.rewards.items()
        ],
        "answer": None if t.answer is None else grader.normalize(t.answer),
        "golden": [
            [gold, grader.normalize(gold), t.answer is not None and grader.same(t.answer, gold)]
            for gold in t.golden_answers
        ],
        "end": _END[t.end],
        "problems": problems(t),
        "events": [[_EVENTS.get(name, name.replace("_", " ")), count] for name, count in t.counts.items() if count],
    }


def problems(trajectory: Trajectory) -> list[str]:
    """What was wrong with the format, a sentence each; a rollout that is well-formed has none."""
    found = []
    for turn in trajectory.turns:
        action = turn.policy.action
        if action is not None and action.problem is not None:
            found.append(f"Turn {turn.index + 1}: {_PROBLEM[action.problem]}.")
        if turn.policy.stop is StopReason.LENGTH:
            found.append(f"Turn {turn.index + 1}: cut at its {len(turn.policy.ids)} tokens.")
    events = ((name, trajectory.counts.get(name, 0)) for name in ("malformed_tags", "trailing_content"))
    found += [f"{count} × {_EVENTS[name]}." for name, count in events if count]
    if not trajectory.format_valid and not found and not trajectory.failed:
        found.append("The format was found invalid; the rollout doesn't say why.")
    return found
