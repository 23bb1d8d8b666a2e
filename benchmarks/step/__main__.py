"""``python -m benchmarks.step RECIPE [key=value …]``: the share of a step outside of forward, backward and optimiser.

Trains a few steps of a recipe with clocks around the three and prints one Markdown row. CPU time of the process, so
that other work on the machine changes little; the first step (compilation, first indexes) is left out.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from sleuth.assembly import assemble
from sleuth.recipes.loader import load_recipe
from sleuth.training.build import build_trainer
from sleuth.training.progress import Progress
from sleuth.training.run_folder import RunFolder


class Clocks:
    """CPU seconds by name, of what runs between ``start`` and ``stop``."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._started: dict[str, float] = {}

    def start(self, name: str) -> None:
        self._started[name] = time.process_time()

    def stop(self, name: str) -> None:
        self.seconds[name] += time.process_time() - self._started.pop(name)

    def around(self, name: str, function: Any) -> Any:
        def timed(*args: Any, **kwargs: Any) -> Any:
            self.start(name)
            try:
                return function(*args, **kwargs)
            finally:
                self.stop(name)

        return timed


def main() -> None:
    name, *settings = sys.argv[1:] or ["laptop"]
    recipe = load_recipe(name, ["trainer.steps=6", "trainer.eval_every=0", *settings])
    with tempfile.TemporaryDirectory() as folder:
        run = RunFolder(Path(folder))
        run.checkpoints.mkdir()
        parts = assemble(recipe, run.path)
        trainer = build_trainer(recipe, parts, run, Progress(recipe, quiet=True))
        clocks = Clocks()
        model = trainer.model
        model.register_forward_pre_hook(lambda *_: clocks.start("forward"))
        model.register_forward_hook(lambda *_: clocks.stop("forward"))
        trainer.accelerator.backward = clocks.around("backward", trainer.accelerator.backward)
        create = trainer.create_optimizer

        def with_clock(*args: Any, **kwargs: Any) -> Any:
            optimizer = create(*args, **kwargs)
            trainer.optimizer.step = clocks.around("optimizer", trainer.optimizer.step)
            return optimizer

        trainer.create_optimizer = with_clock
        ends: list[tuple[float, dict[str, float]]] = []
        log = run.log
        run.log = lambda record: (log(record), ends.append((time.process_time(), dict(clocks.seconds))))[0]
        trainer.train()
        (first, before), (last, after) = ends[0], ends[-1]
        steps = len(ends) - 1
        total = (last - first) / steps
        inside = {key: (after[key] - before[key]) / steps for key in ("forward", "backward", "optimizer")}
        outside = 1 - sum(inside.values()) / total
    print("| recipe | parameters | CPU s a step | forward | backward | optimiser | outside |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    shares = " | ".join(f"{value / total:.1%}" for value in inside.values())
    print(f"| {name} | {model.num_parameters():,} | {total:.2f} | {shares} | {outside:.1%} |")


if __name__ == "__main__":
    main()
