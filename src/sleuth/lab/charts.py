"""Two pictures of a comparison, as SVG: rewards by batch, and the share of runs that have not collapsed.

A column a regime, a row an arm; behind each arm stands plain GRPO of the same regime, so that every panel can be read
by itself.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sleuth.errors import UserError
from sleuth.lab.analysis import Line
from sleuth.lab.comparison import Comparison
from sleuth.lab.onset import Reward
from sleuth.lab.results import Result
from sleuth.lab.settings import BASELINE

ARM, GRPO = "#0b63a5", "#8a8a8a"
_SMOOTH = 5
"""Batches averaged in a curve of rewards."""


def check_charts() -> None:
    """Refuse to start what could not be finished.

    Raises:
        UserError: the libraries of the extra ``lab`` are not installed.
    """
    missing = [
        name for name in ("matplotlib", "scipy", "statsmodels", "lifelines") if not importlib.util.find_spec(name)
    ]
    if missing:
        raise UserError(f"sleuth compare needs {', '.join(missing)}; pip install 'sleuth[lab]'")


def draw(comparison: Comparison, folder: Path) -> list[Path]:
    """Write ``rewards.svg`` and ``survival.svg``."""
    return [
        _grid(comparison, folder / "rewards.svg", _rewards, "reward", f"batch (curves: mean of {_SMOOTH} batches)"),
        _grid(comparison, folder / "survival.svg", _survival, "not collapsed", "batch"),
    ]


def _grid(
    comparison: Comparison, file: Path, panel: Callable[[Any, Comparison, Line, Line | None], None], y: str, x: str
) -> Path:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    regimes = [r for r in comparison.regimes if any(line.n for line in comparison.lines if line.regime == r)]
    lines = {(line.regime, line.arm): line for line in comparison.lines}
    arms = [arm for arm in comparison.arms if any(lines[regime, arm].n for regime in regimes)]
    rows, columns = max(len(arms), 1), max(len(regimes), 1)
    # A fixed salt and no date: the same comparison gives the same bytes.
    with plt.rc_context({"svg.hashsalt": "sleuth", "svg.fonttype": "none", "font.size": 8, "axes.linewidth": 0.6}):
        figure, axes = plt.subplots(
            rows,
            columns,
            figsize=(0.8 + 2.9 * columns, 0.8 + 1.15 * rows),
            sharex="col",
            sharey=True,
            squeeze=False,
            layout="constrained",
        )
        for row, arm in enumerate(arms):
            for column, regime in enumerate(regimes):
                axis = axes[row][column]
                axis.set_ylim(0, 1.05)
                axis.spines[["top", "right"]].set_visible(False)
                line = lines[regime, arm]
                if line.n:
                    panel(axis, comparison, line, lines.get((regime, BASELINE)))
                axis.text(0.02, 0.06, f"n = {line.n}", transform=axis.transAxes, color="#555555")
                if row == 0:
                    axis.set_title(regime)
                if column == 0:
                    axis.set_ylabel(arm, rotation=0, ha="right", va="center")
        figure.supxlabel(x)
        figure.suptitle(f"{comparison.recipe}: {y}; grey: plain GRPO in the same regime")
        figure.savefig(file, format="svg", metadata={"Date": None, "Title": f"{comparison.recipe}: {y}"})
        plt.close(figure)
    return file


def _rewards(axis: Any, comparison: Comparison, line: Line, grpo: Line | None) -> None:
    for arm, colour in ((BASELINE, GRPO), (line.arm, ARM))[line.arm == BASELINE :]:
        runs = [r for r in comparison.results if r.done and (r.regime, r.arm) == (line.regime, arm)]
        for run in runs:
            batches, values = _smooth(run.rewards)
            axis.plot(batches, values, color=colour, linewidth=0.8, alpha=0.75)
            if arm == line.arm:
                _mark(axis, run, batches, values)


def _mark(axis: Any, run: Result, batches: Sequence[int], values: Sequence[float]) -> None:
    """A cross where the run collapses."""
    if run.onset is not None and run.onset in batches:
        axis.plot(
            [run.onset], [values[batches.index(run.onset)]], "x", color="#b3261e", markersize=4, markeredgewidth=1
        )


def _survival(axis: Any, comparison: Comparison, line: Line, grpo: Line | None) -> None:
    for of, colour in ((grpo, GRPO), (line, ARM))[line.arm == BASELINE :]:
        if of is None or of.survival is None:
            continue
        curve = of.survival
        axis.step(curve.batches, curve.share, where="post", color=colour, linewidth=1.2)
        if of is line:
            low = [share if bound is None else bound for bound, share in zip(curve.low, curve.share, strict=True)]
            high = [share if bound is None else bound for bound, share in zip(curve.high, curve.share, strict=True)]
            axis.fill_between(curve.batches, low, high, step="post", color=colour, alpha=0.15, linewidth=0)


def _smooth(rewards: Sequence[Reward]) -> tuple[list[int], list[float]]:
    """Centred means; at the ends of fewer batches."""
    known = [(batch, reward) for batch, reward in enumerate(rewards, 1) if reward is not None]
    half = _SMOOTH // 2
    means = []
    for at in range(len(known)):
        near = [reward for _, reward in known[max(at - half, 0) : at + half + 1]]
        means.append(sum(near) / len(near))
    return [batch for batch, _ in known], means
