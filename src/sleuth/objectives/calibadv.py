"""CalibAdv: wrong rollouts keep their good searches, and the answers of a group pull up as much as down.

Two changes of group-relative advantages (arXiv 2604.18235). *Soft penalisation*: a search of a rollout with A < 0 loses
as much of its penalty as its documents were also found by the correct rollouts of the group (the silver documents).
*Rebalance*: in the answers of a group, positive advantages are multiplied so that their sum over tokens equals the
negative one. The third part of the paper, a ``<think>`` that is given instead of sampled, belongs to the protocol.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sleuth.objectives.parameters import CalibAdv
from sleuth.objectives.silver import Searches, search_scores, silver_documents
from sleuth.objectives.turns import turns_in_mask, turns_of
from sleuth.types import Trajectory


@dataclass(frozen=True, slots=True)
class Calibration:
    """Calibrated advantages and how they came about.

    Attributes:
        advantages: (B, T).
        scores: c of each search, row by row; None for rollouts that aren't scored (malformed, failed, or in a group
            without silver documents).
        silver: number of silver documents of each group.
        ratios: r = |negative sum| / positive sum of each group that was rebalanced.
        searches: number of searches of rollouts that didn't fail, and ``softened``: how many lost some of a penalty.
        penalties: for each search with A < 0 the share of its penalty that it keeps.
        before, after: sums over tokens of the positive and of the negative advantages.
    """

    advantages: Tensor
    scores: list[list[float] | None]
    silver: list[int]
    ratios: list[float]
    searches: int
    softened: int
    penalties: list[float]
    before: tuple[float, float]
    after: tuple[float, float]

    def statistics(self) -> dict[str, float]:
        """``score`` (mean c), ``softened`` (share of all searches), ``penalty`` (mean share that searches with A < 0
        keep), ``silver`` (mean of groups that have any), ``without_silver`` (share of groups), ``ratio`` (mean r), and
        the sums over tokens ``pos_before``, ``neg_before``, ``pos_after``, ``neg_after``. What there is nothing to say
        of is left out."""
        scores = [score for row in self.scores if row is not None for score in row]
        silver = [count for count in self.silver if count]
        out: dict[str, float] = {}
        if scores:
            out["score"] = sum(scores) / len(scores)
        if self.searches:
            out["softened"] = self.softened / self.searches
        if self.penalties:
            out["penalty"] = sum(self.penalties) / len(self.penalties)
        if silver:
            out["silver"] = sum(silver) / len(silver)
        if self.silver:
            out["without_silver"] = 1 - len(silver) / len(self.silver)
        if self.ratios:
            out["ratio"] = sum(self.ratios) / len(self.ratios)
        for name, (positive, negative) in (("before", self.before), ("after", self.after)):
            out |= {f"pos_{name}": positive, f"neg_{name}": negative}
        return out


def soften(advantages: Tensor, turns: Tensor, scores: Sequence[Sequence[float] | None]) -> Tensor:
    """Soft penalisation: ``A·(1 - c)`` for the tokens of a search with A < 0; all else stays.

    Args:
        advantages: (B, T).
        turns: (B, T) long, the turn that a token belongs to; -1 for tokens that don't count.
        scores: c of the first turns of each row; None for a row that isn't scored.

    Returns:
        (B, T).
    """
    width = max((len(row) for row in scores if row), default=0)
    if not width:
        return advantages
    table = advantages.new_zeros(len(scores), width + 1)
    for i, row in enumerate(scores):
        if row:
            table[i, : len(row)] = table.new_tensor(row)
    c = table.gather(1, torch.where(turns < 0, width, turns).clamp(max=width))
    # Adding 0 makes a cancelled penalty 0, not -0.
    return torch.where((advantages < 0) & (c > 0), advantages * (1 - c) + 0.0, advantages)


def rebalance(
    advantages: Tensor, scope: Tensor, groups: Tensor, *, target: float = 1.0, zero_one_sided: bool = True
) -> tuple[Tensor, list[float]]:
    """Multiply positive advantages so that a group's positive sum over tokens is ``target`` times its negative one.

    Args:
        advantages: (B, T).
        scope: (B, T) bool, the tokens that are summed and changed.
        groups: (B,) integer; equal numbers are rollouts of one prompt.
        target: λ, the ratio of positive to |negative| sums afterwards.
        zero_one_sided: where one of the sums is 0, set all of a group's tokens in scope to 0; else they stay.

    Returns:
        (B, T), and the ratio |negative| / positive before of each group that has both. There is neither a bound on the
        factor nor a floor: one short right answer against long wrong ones gets a large one, and right answers that are
        longer than wrong ones shrink.
    """
    values = torch.where(scope, advantages, 0.0)
    unique, group = torch.unique(groups.to(advantages.device), return_inverse=True)
    empty = values.new_zeros(len(unique))
    positive = empty.index_add(0, group, values.clamp(min=0).sum(-1))
    negative = empty.index_add(0, group, -values.clamp(max=0).sum(-1))
    both = (positive > 0) & (negative > 0)
    ratio = torch.where(both, negative / torch.where(both, positive, 1.0), 1.0)
    factor = torch.where(both, target * ratio, 0.0 if zero_one_sided else 1.0)
    out = torch.where(scope & (advantages > 0), advantages * factor[group][:, None], advantages)
    if zero_one_sided:
        out = torch.where(scope & ~both[group][:, None], 0.0, out)
    return out, ratio[both].tolist()


def calibrate(
    advantages: Tensor,
    mask: Tensor,
    turns: Tensor,
    groups: Tensor,
    rollouts: Sequence[Searches],
    parameters: CalibAdv,
) -> Calibration:
    """Soft penalisation, then rebalance, as the authors' script does.

    Args:
        advantages: (B, T).
        mask: (B, T) bool, True for policy tokens that count.
        turns: (B, T) long, the turn that a token belongs to, -1 outside.
        groups: (B,) integer; whole groups must be at hand.
        rollouts: B, in row order.

    Returns:
        :class:`Calibration`. Masked tokens and failed rollouts keep their values, whatever those are.
    """
    counts = mask.bool() & (turns >= 0)
    counts &= torch.tensor([r.valid for r in rollouts], dtype=torch.bool, device=counts.device)[:, None]
    members: dict[int, list[int]] = {}
    for row, group in enumerate(groups.tolist()):
        members.setdefault(group, []).append(row)
    scores: list[list[float] | None] = [None] * len(rollouts)
    silver_counts: list[int] = []
    for rows in members.values():
        silver = silver_documents([rollouts[row] for row in rows], parameters)
        silver_counts.append(len(silver))
        for row in rows:
            scored = rollouts[row].valid and (rollouts[row].well_formed or parameters.score_malformed)
            if silver and scored:
                scores[row] = search_scores(rollouts[row], silver, parameters)
    out = advantages
    last = torch.tensor([len(r.documents) for r in rollouts], device=turns.device)[:, None]
    penalised = _turns_with(counts & (advantages < 0) & (turns < last), turns)
    softened, penalties = 0, [1.0] * len(penalised)
    if parameters.soften:
        out = soften(advantages, torch.where(counts, turns, -1), scores)
        softened = len(_turns_with((out != advantages) & counts, turns))
        penalties = [1 - own[turn] if (own := scores[i]) else 1.0 for i, turn in penalised]
    ratios: list[float] = []
    if parameters.rebalance != "none":
        scope = counts
        if parameters.rebalance == "answer":
            scope = counts & (turns >= last)
        out, ratios = rebalance(out, scope, groups, target=parameters.lambda_, zero_one_sided=parameters.zero_one_sided)
    return Calibration(
        advantages=out,
        scores=scores,
        silver=silver_counts,
        ratios=ratios,
        searches=sum(len(r.documents) for r in rollouts if r.valid),
        softened=softened,
        penalties=penalties,
        before=_sums(advantages[counts]),
        after=_sums(out[counts]),
    )


def _turns_with(tokens: Tensor, turns: Tensor) -> list[tuple[int, int]]:
    """Row and turn, once each, of these tokens (B, T)."""
    width = int(turns.max()) + 1 if turns.numel() else 1
    row, _ = tokens.nonzero(as_tuple=True)
    # One number a pair: sorting pairs is many times slower.
    return [divmod(pair, width) for pair in torch.unique(row * width + turns[tokens]).tolist()]


def _sums(advantages: Tensor) -> tuple[float, float]:
    return float(advantages.clamp(min=0).sum()), float(advantages.clamp(max=0).sum())


# ---------------------------------------------------------------------------------------------------------------------
# For trajectories, and for a loop of your own


def reshape(
    advantages: Tensor,
    mask: Tensor,
    trajectories: Sequence[Trajectory],
    groups: Tensor,
    parameters: CalibAdv | None = None,
) -> Tensor:
    """Calibrated advantages of these rollouts (arXiv 2604.18235).

    Args:
        advantages: (B, T).
        mask: (B, T) bool or 0/1, 1 for policy tokens that count; column t is ``completion_ids[t]``.
        trajectories: B rollouts with rewards, in row order; a search's documents are those of its observation span.
        groups: (B,) integer; equal numbers are rollouts of one prompt. Whole groups must be at hand.
        parameters: None for the defaults.

    Returns:
        (B, T). Failed rollouts and masked tokens keep their values bit for bit.

    Raises:
        UserError: thoughts are to be compared, but a rollout has them in other tags than ``parameters.think``.
        ValueError: mask and trajectories don't fit together.
    """
    return calibrate_trajectories(advantages, mask, trajectories, groups, parameters).advantages


def calibrate_trajectories(
    advantages: Tensor,
    mask: Tensor,
    trajectories: Sequence[Trajectory],
    groups: Tensor,
    parameters: CalibAdv | None = None,
) -> Calibration:
    """:func:`reshape` with scores, ratios and statistics."""
    parameters = parameters or CalibAdv()
    turns = turns_of(trajectories, mask)
    rollouts = [Searches.of(t, parameters) for t in trajectories]
    return calibrate(advantages, mask, turns, groups, rollouts, parameters)


def calibrate_advantages(
    advantages: Tensor,
    mask: Tensor,
    groups: Tensor,
    rewards: Tensor,
    documents: Sequence[Sequence[Sequence[Hashable]]],
    *,
    well_formed: Sequence[bool] | Tensor | None = None,
    thoughts: Sequence[Sequence[str]] | None = None,
    valid: Sequence[bool] | Tensor | None = None,
    **settings: Any,
) -> Tensor:
    """Calibrated advantages from plain tensors and lists. In a loop of your own::

        advantages = calibrate_advantages(advantages, mask, groups, rewards, documents, preset="released")

    Args:
        advantages: (B, T), or (B,) for one value a rollout.
        mask: (B, T) bool or 0/1, 1 for every token that the policy sampled; each run of ones is a turn, the last one
            of a row is the answer.
        groups: (B,) integer; equal numbers are rollouts of one prompt. Whole groups must be at hand.
        rewards: (B,).
        documents: for each rollout, for each turn but the last, the ids of the documents shown after it.
        well_formed: (B,) whether the format is valid and there was a search; None: wherever there was a search.
        thoughts: like ``documents``, the thought of each turn, for the preset ``released``; None: no thoughts are
            compared.
        valid: (B,), False for failed rollouts; None: all are valid.
        settings: fields of :class:`CalibAdv` (λ is ``lambda_``).

    Returns:
        (B, T).

    Raises:
        ValueError: documents or thoughts don't have one list for each turn but the last; or an unknown setting.
    """
    parameters = CalibAdv(**settings)
    mask = mask.bool()
    turns = turns_in_mask(mask)
    if advantages.dim() == 1:
        advantages = torch.where(mask, advantages[:, None], 0.0)
    rollouts: list[Searches] = []
    for i, searches in enumerate((turns.amax(-1) if turns.numel() else turns.sum(-1)).clamp(min=0).tolist()):
        thought = [""] * searches if thoughts is None else list(thoughts[i])
        for name, given in (("documents", documents[i]), ("thoughts", thought)):
            if len(given) != searches:
                raise ValueError(
                    f"{name}[{i}] has {len(given)} lists, but rollout {i} has {searches} turns before its last one; "
                    "give each of them one, empty where there is nothing"
                )
        rollouts.append(
            Searches(
                documents=[list(d) for d in documents[i]],
                thoughts=thought,
                reward=float(rewards[i]),
                well_formed=searches > 0 if well_formed is None else bool(well_formed[i]) and searches > 0,
                valid=valid is None or bool(valid[i]),
            )
        )
    return calibrate(advantages, mask, turns, groups, rollouts, parameters).advantages
