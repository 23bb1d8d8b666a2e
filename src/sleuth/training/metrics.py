"""What is logged of a step: from its trajectories, and from the log-ratios that the loss saw."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sleuth.types import Status, Trajectory


def rollout_metrics(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Means over a batch's rollouts; failed ones are counted and left out of everything else.

    Names: ``reward``, every reward component, ``format``, ``searches``, ``turns``, ``policy_tokens``, ``tokens``
    (prompt and environment included), ``share/<status>`` and ``events/<count>`` (per rollout).
    """
    n = len(trajectories)
    metrics = {f"share/{status.value}": sum(t.status is status for t in trajectories) / max(n, 1) for status in Status}
    sound = [t for t in trajectories if not t.failed]
    if not sound:
        return metrics
    m = len(sound)
    metrics["reward"] = sum(t.reward or 0.0 for t in sound) / m
    for name in sorted({key for t in sound for key in t.rewards}):
        metrics[name] = sum(t.rewards.get(name, 0.0) for t in sound) / m
    metrics["format"] = sum(t.format_valid for t in sound) / m
    metrics["searches"] = sum(t.counts.get("searches", 0) for t in sound) / m
    metrics["turns"] = sum(len(t.policy_spans) for t in sound) / m
    metrics["policy_tokens"] = sum(t.policy_tokens for t in sound) / m
    metrics["tokens"] = sum(len(s.ids) for t in sound for s in t.spans) / m
    for name in sorted({key for t in sound for key in t.counts} - {"searches"}):
        metrics[f"events/{name}"] = sum(t.counts.get(name, 0) for t in sound) / m
    return metrics


class RatioStatistics:
    """Collects the log-ratios of a step's updates and sums them up, split by the sign of the advantage.

    The mean of a ratio says almost nothing of a run that is about to collapse; its tails do. Hence quantiles, extremes
    and shares. Updates before any weight has moved since the rollout have ratio 1 by construction and are included.
    """

    def __init__(self) -> None:
        self._parts: list[tuple[Tensor, Tensor, Tensor]] = []

    def add(self, log_ratio: Tensor, advantages: Tensor, clipped: Tensor, mask: Tensor) -> None:
        """One micro-batch; all (B, T)."""
        self._parts.append((log_ratio.detach()[mask].float(), advantages[mask].float(), clipped[mask]))

    def flush(self) -> dict[str, float]:
        """``ratio/mean``, ``ratio/clipped`` (share), and for positive and negative advantages ``ratio/pos/…``,
        ``ratio/neg/…``: ``mean``, ``q01``, ``q99``, ``min``, ``max``, ``below_0.5``, ``below_0.8``, ``above_2``."""
        parts, self._parts = self._parts, []
        if not any(len(log_ratios) for log_ratios, _, _ in parts):
            return {}
        log_ratios, advantages, clipped = (torch.cat(column) for column in zip(*parts, strict=True))
        ratios = log_ratios.clamp(-20, 20).exp()
        out = {"ratio/mean": ratios.mean().item(), "ratio/clipped": clipped.float().mean().item()}
        for sign, rows in (("pos", advantages > 0), ("neg", advantages < 0)):
            r = ratios[rows]
            if not len(r):
                continue
            ordered = r.sort().values
            out |= {
                f"ratio/{sign}/mean": r.mean().item(),
                f"ratio/{sign}/q01": ordered[int(0.01 * (len(r) - 1))].item(),
                f"ratio/{sign}/q99": ordered[int(0.99 * (len(r) - 1))].item(),
                f"ratio/{sign}/min": ordered[0].item(),
                f"ratio/{sign}/max": ordered[-1].item(),
                f"ratio/{sign}/below_0.5": (r < 0.5).float().mean().item(),
                f"ratio/{sign}/below_0.8": (r < 0.8).float().mean().item(),
                f"ratio/{sign}/above_2": (r > 2).float().mean().item(),
            }
        return out
