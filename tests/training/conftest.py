"""Runs small enough for a test: a few worlds, the tiny policy."""

import pytest

from sleuth.recipes.loader import load_recipe

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
