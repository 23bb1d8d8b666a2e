"""``python -m benchmarks.diagnosis [RECIPE] [key=value …]``: what the statistics cost, as a share of a step without.

One run trains its steps by turns with all statistics and without any, so that both sides see the same machine, the same
policy and rollouts of the same lengths. Without them, a step labels no tokens, collects no ratios and looks at no
rollout; loss, updates and saved files are the same. CPU time of the process; the first two steps are left out. The
interval is a bootstrap over pairs of neighbouring steps.

A clock around the statistics themselves gives the second figure, which says the same with less noise.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from sleuth.assembly import assemble
from sleuth.diagnostics.drift import Drift
from sleuth.recipes.loader import load_recipe
from sleuth.training import trl
from sleuth.training.build import build_trainer
from sleuth.training.progress import Progress
from sleuth.training.run_folder import RunFolder

WARM_UP = 2
"""Steps at the start that are left out: first passes compile and allocate."""


class Switch:
    """The statistics of the trainer, on and off by turns, with a clock around them."""

    def __init__(self) -> None:
        self.on = True
        self.seconds = 0.0

    def of(self, function: Any, otherwise: Any) -> Any:
        def switched(*args: Any, **kwargs: Any) -> Any:
            if not self.on:
                return otherwise(*args, **kwargs)
            started = time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds += time.process_time() - started

        return switched


def _no_labels(trajectories: Any, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
    nothing = torch.zeros(len(trajectories), columns, dtype=torch.int8)
    return nothing, nothing


def measure(recipe_name: str, settings: list[str]) -> tuple[list[float], list[float], list[float]]:
    """CPU seconds of the steps with statistics, of those without, and inside of the statistics."""
    recipe = load_recipe(
        recipe_name, ["trainer.steps=42", "trainer.eval_every=0", "trainer.save_rollouts_every=0", *settings]
    )
    switch = Switch()
    with tempfile.TemporaryDirectory() as folder:
        run = RunFolder(Path(folder))
        run.checkpoints.mkdir()
        parts = assemble(recipe, run.path)
        trainer = build_trainer(recipe, parts, run, Progress(recipe, quiet=True))
        took: list[float] = []
        inside: list[float] = []
        started = time.process_time()

        def log(record: dict[str, Any]) -> None:
            nonlocal started
            now = time.process_time()
            took.append(now - started)
            inside.append(switch.seconds)
            switch.on, switch.seconds = not switch.on, 0.0
            started = time.process_time()

        run.log = log  # type: ignore[method-assign]
        with (
            mock.patch.object(Drift, "add", switch.of(Drift.add, lambda *args, **kwargs: None)),
            mock.patch.object(Drift, "flush", switch.of(Drift.flush, lambda self: {})),
            mock.patch.object(trl, "behaviour", switch.of(trl.behaviour, lambda trajectories: {})),
            mock.patch.object(trl, "token_labels", switch.of(trl.token_labels, _no_labels)),
        ):
            trainer.train()
    return took[WARM_UP::2], took[WARM_UP + 1 :: 2], inside[WARM_UP::2]


def main() -> None:
    name, *settings = sys.argv[1:] or ["laptop"]
    on, off, inside = (np.array(seconds) for seconds in measure(name, settings))
    pairs = min(len(on), len(off))
    on, off, inside = on[:pairs], off[:pairs], inside[:pairs]
    draws = np.random.default_rng(0).integers(0, pairs, (10_000, pairs))
    ratios = on[draws].sum(-1) / off[draws].sum(-1)
    low, high = np.quantile(ratios, [0.025, 0.975])
    print("| recipe | pairs of steps | CPU s without | with / without | 95 % | inside the statistics / without |")
    print("|---|--:|--:|--:|---|--:|")
    print(
        f"| {name} | {pairs} | {off.mean():.3f} | {on.sum() / off.sum():.4f} | [{low:.4f}, {high:.4f}] | "
        f"{inside.sum() / off.sum():.2%} |"
    )


if __name__ == "__main__":
    main()
