"""How far a policy has moved from the one that made its batch, and where: statistics of the probability ratio.

The mean of a ratio says almost nothing of a run that is about to collapse; its tails do. And a tail says little without
its place: ratios that fall on the tokens of good rollouts and ratios that rise on those of bad ones are two diseases.
Hence quantiles, extremes and shares, split by the sign of the advantage and within that by kind of token and by turn.
Names are those of :mod:`sleuth.diagnostics.names`.

**The first update of a batch is left out of every ratio.** No weight has moved since the rollout, so its ratios are 1
whatever the policy does. With them a run of two updates a batch would have half of its tokens at 1 and one of ten a
tenth: quantiles and shares would depend on that setting more than on the drift. What they do show is rounding, which is
``ratio/noise``: drift below it can't be seen. A run with one update a batch has no ratios. Entropies, likelihoods and
advantage masses are of all updates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sleuth.diagnostics.names import KINDS, LAST_TURN, SIGNS, TURNS
from sleuth.diagnostics.saved_batch import SavedBatch, policy_spans
from sleuth.diagnostics.token_labels import token_labels
from sleuth.objectives.advantages import grpo
from sleuth.objectives.tokens import LOG_RATIO_CLAMP, Tokens
from sleuth.types import Trajectory

Array = npt.NDArray[np.float64]
Segments = npt.NDArray[np.integer]
"""The number of each value's segment, from 0; -1 for values that are in none."""

QUANTILES = {"q01": 0.01, "q05": 0.05, "q50": 0.5, "q95": 0.95, "q99": 0.99}
SEQUENCE_LIMIT = 0.9
"""``sequence/<sign>/below_0.9``. ISDD asks whether the product of a rollout's ratios is small, which shrinks with
length for any update; its length-th root does not. 0.9 a token is a likelihood 1/20 after 28 tokens."""


@dataclass(frozen=True, slots=True)
class _Part:
    """What one micro-batch adds; one value a token or a rollout that counts."""

    moved: bool | None
    log_ratio: Array
    old_logp: Array
    advantages: Array
    entropy: Array | None
    clipped: npt.NDArray[np.bool_] | None
    kinds: Segments
    turns: Segments
    rollout_signs: Segments
    sequence_log_ratio: Array
    sequence_signs: Segments


class Drift:
    """Collects the micro-batches of one step and sums them up."""

    def __init__(self) -> None:
        self._parts: list[_Part] = []

    def add(
        self,
        tokens: Tokens,
        clipped: Tensor | None,
        kinds: Tensor,
        turns: Tensor,
        *,
        entropy: Tensor | None = None,
        moved: bool | None = True,
    ) -> None:
        """Take one micro-batch as the loss saw it. Tokens that the loss dropped are in nothing.

        Args:
            clipped: (B, T) bool, tokens whose gradient the clip has cut off, or None where that is not known.
            kinds, turns: (B, T) of :func:`~sleuth.diagnostics.token_labels.token_labels`.
            entropy: (B, T) in nats, or None.
            moved: whether a weight has moved since the rollout; None: the ratios are not known.
        """
        at = tokens.mask.flatten().nonzero()[:, 0]
        floats = [tokens.logp.detach(), tokens.old_logp, tokens.advantages]
        integers = [kinds, turns]
        if entropy is not None:
            floats.append(entropy.detach())
        if clipped is not None:
            integers.append(clipped)
        # One transfer for each type, since a device is waited for at each.
        values = torch.stack([x.reshape(-1)[at].double() for x in floats]).cpu().numpy()
        rows = at // tokens.mask.size(1)
        labels = torch.stack([rows, *(x.reshape(-1)[at].long() for x in integers)]).cpu().numpy()
        row_signs = _signs(tokens.rollout_advantages.detach().cpu().numpy())
        log_ratio = values[0] - values[1]
        lengths = np.bincount(labels[0], minlength=len(row_signs))
        used = lengths > 0
        sums = np.bincount(labels[0], weights=log_ratio, minlength=len(row_signs))
        self._parts.append(
            _Part(
                moved=moved,
                log_ratio=log_ratio,
                old_logp=values[1],
                advantages=values[2],
                entropy=None if entropy is None else values[3],
                clipped=None if clipped is None else labels[3].astype(bool),
                kinds=labels[1],
                turns=labels[2],
                rollout_signs=row_signs[labels[0]],
                sequence_log_ratio=sums[used] / lengths[used],
                sequence_signs=row_signs[used],
            )
        )

    def absorb(self, other: Drift) -> None:
        """Take over what another process collected of the same step."""
        self._parts += other._parts

    def flush(self) -> dict[str, float]:
        """The statistics of everything added since the last call, and forget it. A split without tokens is absent."""
        parts, self._parts = self._parts, []
        return (
            _of_all(parts) | _of_moved([p for p in parts if p.moved]) | _noise([p for p in parts if p.moved is False])
        )


def drift_of(trajectories: Sequence[Trajectory], advantages: Tensor | None = None) -> dict[str, float]:
    """The statistics of saved rollouts, without a trainer. What can't be known from them is absent.

    Ratios need ``old_logprobs`` and ``new_logprobs``. The sampler's ``logprobs`` stand in for likelihoods alone: what
    two engines make of the same weights differs, and would look like drift. Rollouts whose ``update`` is 1 are left out
    of the ratios as in training; of those without ``update`` nobody can tell, and they are in. Failed rollouts are in
    nothing. Entropies and clip shares are not in a rollouts file.

    Args:
        trajectories: the rollouts of one step; of several, all are taken together.
        advantages: (B,), or (B, T) with column t as ``completion_ids[t]``. None: GRPO's, from the rewards of each
            ``(step, group)``; a rollout without a finite reward then has advantage 0.
    """
    if not trajectories:
        return {}
    batch = SavedBatch.of(trajectories)
    if advantages is None:
        valid = batch.valid & batch.rewards.isfinite()
        advantages = grpo(torch.where(valid, batch.rewards, 0.0), batch.groups, valid)
    known = torch.zeros_like(batch.mask)
    first = torch.tensor([t.update == 1 for t in trajectories])[:, None]
    scored = torch.zeros_like(batch.mask)
    for row, trajectory in enumerate(trajectories):
        for _, span, start, end in policy_spans(trajectory):
            known[row, start:end] = span.old_logprobs is not None and span.new_logprobs is not None
            scored[row, start:end] = span.old_logprobs is not None or span.logprobs is not None
    kinds, turns = token_labels(trajectories, batch.mask.size(1))
    drift = Drift()
    for moved, mask in ((True, known & ~first), (False, known & first), (None, scored & ~known)):
        drift.add(Tokens.build(batch.new, batch.old, advantages, batch.mask & mask), None, kinds, turns, moved=moved)
    return drift.flush()


def _of_all(parts: Sequence[_Part]) -> dict[str, float]:
    """Entropies, likelihoods and advantage masses."""
    out: dict[str, float] = {}
    advantages = _joined([p.advantages for p in parts])
    if not len(advantages):
        return out
    with_entropy = [p for p in parts if p.entropy is not None]
    entropies = _joined([p.entropy for p in with_entropy if p.entropy is not None])
    if len(entropies):
        out["entropy"] = entropies.mean().item()
        means = _means(entropies, np.concatenate([p.kinds for p in with_entropy]), len(KINDS))
        out |= {f"entropy/{kind}": mean for kind, mean in zip(KINDS, means, strict=True) if not np.isnan(mean)}
    means = _means(_joined([p.old_logp for p in parts]), np.concatenate([p.rollout_signs for p in parts]), len(SIGNS))
    out |= {f"likelihood/{sign}": mean for sign, mean in zip(SIGNS, means, strict=True) if not np.isnan(mean)}
    out["advantage/pos_mass"] = float(advantages.clip(min=0).mean())
    out["advantage/neg_mass"] = float((-advantages).clip(min=0).mean())
    return out


def _noise(parts: Sequence[_Part]) -> dict[str, float]:
    log_ratio = _joined([p.log_ratio for p in parts])
    return {"ratio/noise": float(np.sqrt(np.mean(log_ratio**2)))} if len(log_ratio) else {}


def _of_moved(parts: Sequence[_Part]) -> dict[str, float]:
    """Statistics of ratios, by token and by rollout."""
    log_ratio = _joined([p.log_ratio for p in parts])
    if not len(log_ratio):
        return {}
    order = np.argsort(log_ratio)  # once: what is taken out of sorted values is sorted
    log_ratio = log_ratio[order]
    ratio = _exp(log_ratio)
    flags = [p.clipped for p in parts if p.clipped is not None]
    clipped = np.concatenate(flags)[order] if len(flags) == len(parts) else None
    signs = _signs(np.concatenate([p.advantages for p in parts])[order])
    kinds = np.concatenate([p.kinds for p in parts])[order]
    turns = np.concatenate([p.turns for p in parts])[order].clip(1, LAST_TURN) - 1
    out = {"ratio/ess": float(ratio.sum() ** 2 / (len(ratio) * (ratio**2).sum()))}
    for names, segments in (
        (["ratio"], np.zeros(len(ratio), np.int64)),
        ([f"ratio/{sign}" for sign in SIGNS], signs),
        ([f"ratio/{sign}/{kind}" for sign in SIGNS for kind in KINDS], _within(signs, kinds, len(KINDS))),
        ([f"ratio/{sign}/{turn}" for sign in SIGNS for turn in TURNS], _within(signs, turns, len(TURNS))),
    ):
        out |= _ratios(names, log_ratio, ratio, clipped, segments)
    return out | _sequences(
        _joined([p.sequence_log_ratio for p in parts]), np.concatenate([p.sequence_signs for p in parts])
    )


def _ratios(
    names: Sequence[str], log_ratio: Array, ratio: Array, clipped: npt.NDArray[np.bool_] | None, segments: Segments
) -> dict[str, float]:
    """Every statistic of every segment that has a token; values ascending."""
    split = _Split.of(segments, len(names))
    r, d = ratio[split.order], log_ratio[split.order]
    mean_log = split.mean(d)
    stats: dict[str, Array] = {
        "mean": split.mean(r),
        "mean_log": mean_log,
        "exp_mean_log": _exp(mean_log),
        **{stat: split.quantile(r, q) for stat, q in QUANTILES.items()},
        "min": r[split.starts],
        "max": r[split.starts + split.counts - 1],
        "below_0.5": split.mean(r < 0.5),
        "below_0.8": split.mean(r < 0.8),
        "above_2": split.mean(r > 2),
    }
    if clipped is not None:
        stats["clipped"] = split.mean(clipped[split.order])
    out: dict[str, float] = {}
    for i, segment in enumerate(split.numbers.tolist()):
        out[f"{names[segment]}/tokens"] = int(split.counts[i])
        out |= {f"{names[segment]}/{stat}": values[i].item() for stat, values in stats.items()}
    return out


def _sequences(log_ratio: Array, signs: Segments) -> dict[str, float]:
    """Of the rollouts' mean log-ratios (n,) and their signs (n,)."""
    order = np.argsort(log_ratio)
    split = _Split.of(signs[order], len(SIGNS))
    r = _exp(log_ratio[order])[split.order]
    if not len(r):
        return {}
    stats = {
        "mean": split.mean(r),
        "min": r[split.starts],
        "q05": split.quantile(r, 0.05),
        f"below_{SEQUENCE_LIMIT}": split.mean(r < SEQUENCE_LIMIT),
    }
    return {
        f"sequence/{SIGNS[segment]}/{stat}": values[i].item()
        for i, segment in enumerate(split.numbers.tolist())
        for stat, values in stats.items()
    }


@dataclass(frozen=True, slots=True)
class _Split:
    """Values brought into segments; empty segments are left out.

    Attributes:
        order: which values, segment by segment, in their old order within each.
        numbers, starts, counts: of each segment: its number, its first place in the new order, how many it has.
    """

    order: Segments
    numbers: Segments
    starts: Segments
    counts: Segments

    @classmethod
    def of(cls, segments: Segments, n: int) -> _Split:
        counts = np.bincount(segments[segments >= 0], minlength=n)
        # Small integers are sorted in linear time. Those of no segment come first and are cut off.
        order = np.argsort(segments.astype(np.int8), kind="stable")[len(segments) - counts.sum() :]
        numbers = counts.nonzero()[0]
        return cls(order, numbers, (counts.cumsum() - counts)[numbers], counts[numbers])

    def mean(self, values: npt.NDArray) -> Array:
        """Mean of each segment, of values in the new order."""
        if not len(values):
            return np.zeros(0)
        return np.add.reduceat(values.astype(np.float64), self.starts) / self.counts

    def quantile(self, values: Array, q: float) -> Array:
        """Quantile of each segment, linear between neighbours; values in the new order, ascending in each segment."""
        place = q * (self.counts - 1)
        below = np.floor(place).astype(np.int64)
        above = np.minimum(below + 1, self.counts - 1)
        weight = place - below
        return values[self.starts + below] * (1 - weight) + values[self.starts + above] * weight


def _within(outer: Segments, inner: Segments, n: int) -> Segments:
    """Segments of segments: ``outer · n + inner``, -1 where one of them is."""
    return np.where((outer >= 0) & (inner >= 0), outer * n + inner, -1)


def _signs(advantages: npt.NDArray) -> Segments:
    """The sign's number in :data:`~sleuth.diagnostics.names.SIGNS`; -1 for 0."""
    return np.where(advantages > 0, 0, np.where(advantages < 0, 1, -1))


def _means(values: Array, segments: Segments, n: int) -> list[float]:
    """Mean of each segment, NaN for an empty one."""
    inside = segments >= 0
    counts = np.bincount(segments[inside], minlength=n)
    sums = np.bincount(segments[inside], weights=values[inside], minlength=n)
    return [s / c if c else float("nan") for s, c in zip(sums.tolist(), counts.tolist(), strict=True)]


def _joined(arrays: Sequence[Array]) -> Array:
    return np.concatenate(arrays) if arrays else np.zeros(0)


def _exp(log_ratio: Array) -> Array:
    return np.exp(log_ratio.clip(-LOG_RATIO_CLAMP, LOG_RATIO_CLAMP))
