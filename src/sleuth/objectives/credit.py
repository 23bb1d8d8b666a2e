"""From the rewards of a batch to the advantage of every token: where whole groups are at hand, before any shuffle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sleuth.objectives.advantages import zero_variance_groups
from sleuth.objectives.compose import Objective
from sleuth.objectives.zero_variance import rows_with_copies
from sleuth.types import Trajectory


@dataclass(frozen=True, slots=True)
class Credit:
    """What an objective gives the rollouts of a batch.

    Attributes:
        rollouts: (B,) advantages as the rewards give them.
        tokens: (B, T) after all reshapes.
        kept: (B,) bool: rollouts that enter the loss. Mask the others before anything is counted.
        rows: (B,) long: the row whose rollout takes each place of the step; its own number unless a copy does. Take
            every tensor of the batch at these rows, after masking.
        statistics: by the names of ``metrics.jsonl``. ``zero_variance_groups``; ``masked_rollouts``: valid ones left
            out; ``replaced_rollouts``: those in whose place a copy stands; ``advantage/<sign>_mean`` and ``_max``: size
            over valid rollouts of that sign; and what each reshape tells, as ``<reshape>/<statistic>``.
    """

    rollouts: Tensor
    tokens: Tensor
    kept: Tensor
    rows: Tensor
    statistics: dict[str, float]


TeacherScores = Callable[[Tensor], tuple[Tensor, Tensor]]
"""From (B,) bool, the rollouts that have to be scored, to their old and the teacher's log-probs, (B, T) each: before
the first update on this batch, and NaN where the teacher has not scored."""


def assign_credit(
    objective: Objective,
    rewards: Tensor,
    groups: Tensor,
    valid: Tensor,
    mask: Tensor,
    trajectories: Sequence[Trajectory],
    *,
    seed: int = 0,
    teacher: TeacherScores | None = None,
) -> Credit:
    """Advantages of the rollouts and tokens of a batch, and which of them make up the step.

    Args:
        rewards: (B,) float. ``groups``: (B,) integer, equal numbers are rollouts of one prompt; whole groups.
        valid: (B,) bool, False for failed rollouts.
        mask: (B, T) bool or 0/1, 1 for policy tokens; column t is ``completion_ids[t]``.
        trajectories: B rollouts with rewards, in row order.
        seed: of the step, for the choice of copies.
        teacher: asked where a reshape wants a teacher; None: log-probs are those of the trajectories' spans.

    Raises:
        UserError: a reshape needs something of the trajectories that they don't have.
    """
    valid = valid.bool()
    mask = mask.bool()
    advantages = objective.advantages(rewards, groups, valid, (mask & valid[:, None]).sum(-1))
    kept = objective.kept(rewards, groups, valid)
    own = torch.arange(len(rewards), device=groups.device)
    rows = rows_with_copies(rewards, groups, valid, seed=seed) if objective.zero_variance == "copy" else own
    statistics: dict[str, float] = {
        "zero_variance_groups": zero_variance_groups(rewards, groups, valid),
        "masked_rollouts": int((valid & ~kept & (rows == own)).sum()),
        "replaced_rollouts": int((rows != own).sum()),
    }
    for sign, sizes in (("pos", advantages[valid & (advantages > 0)]), ("neg", -advantages[valid & (advantages < 0)])):
        if len(sizes):
            statistics[f"advantage/{sign}_mean"] = float(sizes.mean())
            statistics[f"advantage/{sign}_max"] = float(sizes.max())
    tokens = advantages[:, None].expand(mask.shape).clone()
    for reshape in objective.reshapes:
        given: dict[str, Tensor] = {}
        if reshape.wants_teacher is not None and teacher is not None:
            old, scores = teacher(reshape.wants_teacher(advantages, trajectories) & kept)
            given = {"old_logp": old, "teacher_logp": scores}
        reshaped = reshape.apply(tokens, mask & kept[:, None], trajectories, groups, **given)
        tokens = reshaped.advantages
        statistics |= {f"{reshape.name}/{name}": value for name, value in reshaped.statistics().items()}
    return Credit(advantages, tokens, kept, rows, statistics)
