"""Step records of saved rollouts: what can be known of training steps without the trainer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sleuth.diagnostics.behaviour import behaviour
from sleuth.diagnostics.drift import drift_of
from sleuth.types import Trajectory, group_trajectories


def records_of_rollouts(trajectories: Sequence[Trajectory]) -> tuple[list[dict[str, Any]], list[str]]:
    """One record a step, ascending, with the names of :mod:`sleuth.diagnostics.names`; and notes, a sentence each.

    Ratios are there as far as ``old_logprobs`` and ``new_logprobs`` are, with GRPO's advantages by the rewards.
    """
    steps: dict[int, list[Trajectory]] = {}
    for trajectory in trajectories:
        steps.setdefault(trajectory.step, []).append(trajectory)
    records = []
    for step, rollouts in sorted(steps.items()):
        groups = [[t.reward for t in group if not t.failed] for group in group_trajectories(rollouts)]
        silent = sum(len(set(rewards)) < 2 for rewards in groups)
        records.append(
            {**behaviour(rollouts), **drift_of(rollouts), "groups": len(groups), "zero_variance_groups": silent}
            | {"step": step}
        )
    spans = [s for t in trajectories if not t.failed for s in t.policy_spans if s.ids]
    without = sum(s.old_logprobs is None or s.new_logprobs is None for s in spans)
    notes = []
    if without:
        notes.append(f"{without} of {len(spans)} policy spans have no old_logprobs or no new_logprobs, hence no ratios")
    if len(groups_of_one := [g for g in group_trajectories(trajectories) if len(g.trajectories) == 1]) > 0:
        notes.append(f"{len(groups_of_one)} groups have one rollout: it has no advantage, hence no sign")
    return records, notes
