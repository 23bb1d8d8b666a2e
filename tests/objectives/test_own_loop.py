"""The functions of plain tensors against the objectives of the same name."""

import subprocess
import sys

import pytest
import torch
from batches import batch, step

from sleuth.objectives import conditional_kl, llds, resolve, signbalance_advantages
from sleuth.objectives.surrogates import ppo_clip
from sleuth.objectives.tokens import Tokens


def _own(term, logp, old, a, mask):
    """(loss, gradient) of a loop's own clipped loss with one line added."""
    leaf = logp.detach().clone().requires_grad_()
    loss = ppo_clip(Tokens.build(leaf, old, a, mask))[0].sum() / mask.sum()
    loss = loss + term(leaf, old, a, mask)
    return loss.detach(), torch.autograd.grad(loss, leaf)[0]


@pytest.mark.parametrize("preset", ["paper", "released"])
@pytest.mark.parametrize("arm", ["full", "ratio", "advantage", "unconditional"])
def test_conditional_kl_is_search_sapo(preset, arm):
    values = batch()
    own = _own(lambda *x: conditional_kl(*x, gamma=0.3, tau=0.9, preset=preset, arm=arm), *values)
    settings = {"gamma": 0.3, "tau": 0.9, "preset": preset, "arm": arm}
    torch.testing.assert_close(own, step(resolve("search_sapo", {"search_sapo": settings}), *values))


@pytest.mark.parametrize("preset", ["paper", "released"])
@pytest.mark.parametrize("gate", ["token", "response", "action"])
def test_llds_is_llds(preset, gate):
    values = batch()
    own = _own(lambda *x: llds(*x, weight=0.3, preset=preset, gate=gate), *values)
    settings = {"weight": 0.3, "preset": preset, "gate": gate}
    torch.testing.assert_close(own, step(resolve("llds", {"llds": settings}), *values))


def test_llds_with_answers_is_the_variant_ma():
    values = batch()
    extra = {"answer": torch.rand(6, 9) < 0.3, "searches": torch.tensor([0, 1, 2, 3, 0, 1])}
    own = _own(lambda *x: llds(*x, **extra), *values)
    torch.testing.assert_close(own, step(resolve("llds", {"llds": {"ma": True}}), *values, **extra))
    with pytest.raises(ValueError, match="searches"):
        llds(*values, answer=extra["answer"])


@pytest.mark.parametrize("term", [conditional_kl, llds])
def test_accumulation_with_the_steps_count_is_the_whole_step(term):
    logp, old, a, mask = batch()
    count = mask.sum()
    whole = term(logp, old, a, mask, normalizer=count)
    parts = [term(logp[s], old[s], a[s], mask[s], normalizer=count) for s in (slice(0, 2), slice(2, 6))]
    torch.testing.assert_close(sum(parts), whole)


@pytest.mark.parametrize("term", [conditional_kl, llds])
def test_in_an_engine_that_averages_passes_the_count_is_divided_by_them(term):
    logp, old, a, mask = batch()
    count = mask.sum()
    whole = term(logp, old, a, mask, normalizer=count)
    parts = [term(logp[s], old[s], a[s], mask[s], normalizer=count / 2) for s in (slice(0, 2), slice(2, 6))]
    torch.testing.assert_close(torch.stack(parts).mean(), whole)


@pytest.mark.parametrize("term", [conditional_kl, llds])
def test_without_a_good_rollout_the_line_adds_zero(term):
    logp, old, a, mask = batch()
    value = term(logp, old, torch.full_like(a, -1.0), mask)
    assert value == 0
    assert not torch.autograd.grad(value, logp)[0].any()
    assert term(logp, old, a, torch.zeros_like(mask), preset="released") == 0


def test_signbalance_takes_rewards_and_groups_alone():
    rewards, groups = torch.tensor([1.0, 0, 0, 1, 1, 0]), torch.tensor([0, 0, 0, 1, 1, 1])
    assert signbalance_advantages(rewards, groups).tolist() == [1, -0.5, -0.5, 1, 1, -2]
    lengths = torch.tensor([4, 8, 8, 1, 1, 1])
    assert signbalance_advantages(rewards, groups, weights=lengths).tolist() == [1, -0.25, -0.25, 1, 1, -2]


ALONE = """
import sys
import torch
import torch.distributed
before = set(sys.modules)
from sleuth.objectives import conditional_kl, llds, signbalance_advantages, step_weights
from sleuth.objectives.aggregation import StepTotals
from sleuth.objectives.surrogates import ppo_clip
from sleuth.objectives.tokens import Tokens
logp = torch.full((2, 3), -1.0, requires_grad=True)
old, a, mask = torch.full((2, 3), -0.5), torch.tensor([1.0, -1.0]), torch.ones(2, 3)
loss = ppo_clip(Tokens.build(logp, old, a, mask))[0].sum() / StepTotals.of(mask).tokens
loss = loss + conditional_kl(logp, old, a, mask) + llds(logp, old, a, mask)
loss.backward()
signbalance_advantages(torch.tensor([1.0, 0.0]), torch.tensor([0, 0]))
step_weights(a, old, old + 0.1, mask, torch.tensor([False, True]))
ours = {name.split(".")[0] for name in set(sys.modules) - before}
print(sorted(ours - set(sys.stdlib_module_names)))
"""


def test_the_lines_need_torch_and_nothing_else():
    """In a process of their own: the terms, the surrogates, and what they are made of."""
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, check=True)
    assert done.stdout == "['sleuth']\n"


@pytest.mark.parametrize("line", [conditional_kl, llds])
def test_a_preset_that_does_not_exist_is_refused(line):
    x = torch.zeros(1, 2)
    with pytest.raises(ValueError, match="write 'paper' or 'released'"):
        line(x, x, torch.ones(1), torch.ones(1, 2), preset="papers")
