"""Rollouts of the laptop recipe against the simulated schedule, in one process with one thread; prints JSON.

The speed of a token is measured on the tiny policy at two batch sizes; the lengths are those of the rollouts. What is
compared is the schedule: turn by turn, with a batch that shrinks.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from sleuth.assembly import assemble
from sleuth.recipes.loader import load_recipe
from sleuth.samplers.transformers import TransformersSampler
from sleuth.sizing.devices import Device, Shares
from sleuth.sizing.lengths import MeasuredLengths
from sleuth.sizing.schedule import Cluster, Searches, Work, play
from sleuth.sizing.shapes import shape_of_config
from sleuth.training.build import build_trainer
from sleuth.training.progress import Progress
from sleuth.training.run_folder import RunFolder
from sleuth.types import SampleRequest, SamplingParams, StopRule

STEPS = 6
_NEVER = StopRule(lambda ids: False, frozenset(), frozenset())


def token_seconds(model: Any, batch: int, tokens: int = 24) -> float:
    """CPU seconds of one more token for each of ``batch`` rollouts."""
    sampler = TransformersSampler(model)
    best = float("inf")
    for turn in range(4):
        requests = [SampleRequest(f"{turn}-{n}", [1 + n % 50, 2, 3], tokens, _NEVER, n) for n in range(batch)]
        started = time.process_time()
        with torch.no_grad():
            sampler.sample(requests, SamplingParams())
        best = min(best, time.process_time() - started)
        sampler.clear()
    return best / tokens


def main() -> None:
    torch.set_num_threads(1)
    recipe = load_recipe("laptop", [f"trainer.steps={STEPS}", "trainer.eval_every=0", "world.train.questions=2000"])
    with tempfile.TemporaryDirectory() as folder:
        run = RunFolder(Path(folder))
        run.checkpoints.mkdir()
        parts = assemble(recipe, run.path)
        trainer = build_trainer(recipe, parts, run, Progress(recipe, quiet=True))
        seconds, batches = [], []
        answer = trainer._answer

        def timed(step: int, questions: Any) -> Any:
            started = time.process_time()
            trajectories = answer(step, questions)
            seconds.append(time.process_time() - started)
            batches.append(trajectories)
            return trajectories

        trainer._answer = timed  # type: ignore[method-assign]
        trainer.train()
        one, many = (token_seconds(trainer.model, n) for n in (1, 128))
        shape = shape_of_config(trainer.model.config.to_dict())
    a_row = (many - one) / 127
    device = Device("this CPU", 0, flops=shape.flops(1, 100) / a_row, bandwidth=1e30, link=1, network=1)
    shares = Shares(training=1, reading=1, decoding=1, decode_overhead=one - a_row)
    cluster = Cluster(1, device, shares, "trainer", sharded=False, cache=1e30)
    rows = []
    for measured, trajectories in list(zip(seconds, batches, strict=True))[1:]:  # the first one builds indexes
        lengths = _These.of(trajectories)
        times = play(shape, Work(recipe.trainer.prompts, recipe.trainer.group), lengths, Searches(0), cluster)
        rows.append({"measured": measured, "planned": times.rollout})
    print(json.dumps({"token_seconds": {"1": one, "128": many}, "steps": rows}))


class _These(MeasuredLengths):
    """Exactly these rollouts, in their order."""

    def draw(self, rollouts: int, rng: Any) -> Any:
        assert rollouts == len(self.rollouts)
        return self.rollouts


if __name__ == "__main__":
    main()
