"""Runs small enough for a test: a few worlds, the tiny policy."""

import pytest

from sleuth.assembly import assemble
from sleuth.recipes.loader import load_recipe
from sleuth.training.progress import Progress
from sleuth.training.run_folder import RunFolder

SMALL = [
    "world.train={worlds: 4, questions: 40}",
    "world.dev={worlds: 1, questions: 8}",
    "world.test={worlds: 1, questions: 12}",
    "trainer.prompts=3",
    "trainer.group=4",
    "trainer.updates_per_batch=2",
    "trainer.steps=4",
    "trainer.eval_every=2",
    "trainer.save_rollouts_every=1",
]
"""Settings of a run of a few seconds."""


@pytest.fixture
def small():
    """``small(*settings)``: the laptop recipe made small, with these settings on top."""

    def make(*settings):
        return load_recipe("laptop", [*SMALL, *settings])

    return make


@pytest.fixture
def built(small, tmp_path):
    """``built(*settings)`` → (trainer, parts), ready to train in a run folder of its own."""

    from sleuth.training.build import build_trainer  # TRL is not in every environment that has tests below

    def make(*settings):
        recipe = small(*settings)
        run = RunFolder(tmp_path / "run")
        run.path.mkdir(exist_ok=True)
        run.checkpoints.mkdir(exist_ok=True)
        parts = assemble(recipe, run.path)
        return build_trainer(recipe, parts, run, Progress(recipe, quiet=True)), parts

    return make
