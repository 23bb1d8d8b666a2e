"""Runs small enough for a test: a world of a few names, a tiny policy with random weights."""

import pytest

from sleuth.recipes.loader import load_recipe

SMALL = [
    "model=tiny-untrained",
    "world.train={worlds: 4, questions: 40}",
    "world.dev={worlds: 1, questions: 8}",
    "world.test={worlds: 1, questions: 12}",
    "limits.max_turns=3",
    "limits.max_turn_tokens=12",
    "limits.max_tokens=96",
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
        # A reward that random weights get a little of, so that gradients flow.
        return load_recipe("laptop", [*SMALL, "reward={em: 1.0, token_cost: 0.01}", *settings])

    return make
