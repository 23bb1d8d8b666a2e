import pytest
import torch
from batches import batch, step

from sleuth.objectives import resolve
from sleuth.objectives.aggregation import StepTotals
from sleuth.objectives.tokens import Tokens


def _loss_and_grad(logp, old, advantages, mask, objective=None, ref=None):
    return step(objective or resolve("grpo"), logp, old, advantages, mask, ref)


def test_on_policy_gradient_is_minus_advantage_over_tokens():
    # r = 1, advantages +1 and -1, 8 tokens: d loss / d logp = -A / 8
    logp = torch.full((2, 4), -1.0)
    loss, grad = _loss_and_grad(logp, logp.clone(), torch.tensor([1.0, -1.0]), torch.ones(2, 4))
    assert loss == pytest.approx(0)
    assert grad[0].tolist() == pytest.approx([-0.125] * 4)
    assert grad[1].tolist() == pytest.approx([0.125] * 4)


def test_clip_cuts_the_gradient_only_where_the_ratio_moved_with_the_advantage():
    log_ratio = torch.log(torch.tensor([[1.5, 0.5], [1.5, 0.5]]))
    logp = torch.full((2, 2), -1.0)
    _, grad = _loss_and_grad(logp, logp - log_ratio, torch.tensor([1.0, -1.0]), torch.ones(2, 2))
    assert grad[0, 0] == 0  # A > 0, r > 1.2
    assert grad[1, 1] == 0  # A < 0, r < 0.8
    assert grad[0, 1] == pytest.approx(-0.5 / 4)
    assert grad[1, 0] == pytest.approx(1.5 / 4)


@pytest.mark.parametrize("junk", [0.0, 1.0, float("-inf"), float("nan")])
def test_masked_tokens_change_nothing(junk):
    """M5: loss, gradient, KL, ratios and denominators."""
    logp, old, advantages, mask = batch()
    ref = old + 0.1
    objective = resolve("grpo", kl_coefficient=0.1)
    clean = _loss_and_grad(logp, old, advantages, mask, objective, ref)
    put = lambda x: torch.where(mask, x.detach(), torch.tensor(junk, dtype=x.dtype))  # noqa: E731
    dirty = _loss_and_grad(put(logp), put(old), advantages, mask, objective, put(ref))
    assert torch.equal(clean[0], dirty[0])
    assert torch.equal(clean[1], dirty[1])


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_a_token_with_a_broken_log_prob_is_dropped_and_counted(bad):
    """A5"""
    logp, old, advantages, mask = batch()
    broken = logp.detach().clone()
    broken[0, 0] = bad
    tokens = Tokens.build(broken, old, advantages, mask)
    assert tokens.dropped == 1
    loss, grad = _loss_and_grad(broken, old, advantages, mask)
    assert torch.isfinite(loss)
    assert torch.isfinite(grad).all()
    assert grad[0, 0] == 0


@pytest.mark.parametrize("aggregation", ["token_mean", "seq_mean_token_mean"])
def test_splitting_a_step_changes_neither_loss_nor_gradient(aggregation):
    logp, old, advantages, mask = batch(rows=7)
    objective = resolve("grpo", aggregation=aggregation)
    whole, grad = _loss_and_grad(logp, old, advantages, mask, objective)
    totals = StepTotals.of(mask)
    parts = [slice(0, 1), slice(1, 4), slice(4, 7)]
    assert sum((StepTotals.of(mask[s]) for s in parts), StepTotals(0, 0)) == totals
    leaf = logp.detach().clone().requires_grad_()
    loss = torch.zeros((), dtype=torch.float64)
    for s in parts:
        loss = loss + objective.token_loss(Tokens.build(leaf[s], old[s], advantages[s], mask[s]), totals).loss.sum()
    (split_grad,) = torch.autograd.grad(loss, leaf)
    torch.testing.assert_close(loss.detach(), whole, rtol=1e-6, atol=0)
    torch.testing.assert_close(split_grad, grad, rtol=1e-6, atol=1e-12)


def test_sequence_means_weigh_rollouts_alike():
    logp = torch.zeros(2, 4)
    mask = torch.tensor([[1, 1, 1, 1], [1, 0, 0, 0]])
    _, grad = _loss_and_grad(
        logp, logp.clone(), torch.tensor([1.0, 1.0]), mask, resolve("grpo", aggregation="seq_mean_token_mean")
    )
    assert grad.sum(-1).tolist() == pytest.approx([-0.5, -0.5])


@pytest.mark.parametrize("shift", [500.0, -500.0])
def test_huge_log_ratios_stay_finite(shift):
    logp, old, advantages, mask = batch()
    loss, grad = _loss_and_grad(logp, old + shift, advantages, mask, resolve("grpo", kl_coefficient=0.1), old + shift)
    assert torch.isfinite(loss)
    assert torch.isfinite(grad).all()


def test_gradient_is_that_of_the_loss():
    logp, old, advantages, mask = batch(rows=3, length=4)
    objective = resolve("grpo", kl_coefficient=0.05)

    def f(x):
        tokens = Tokens.build(x, old, advantages, mask, old - 0.2)
        return objective.token_loss(tokens, StepTotals.of(mask)).loss.sum()

    assert torch.autograd.gradcheck(f, (logp,))


def test_reference_kl_is_zero_at_the_reference_and_positive_elsewhere():
    logp, old, _, mask = batch()
    objective = resolve("grpo", kl_coefficient=1.0)
    none = torch.zeros(len(logp), dtype=torch.float64)
    at = objective.token_loss(Tokens.build(logp, old, none, mask, logp.detach()), StepTotals.of(mask)).kl
    off = objective.token_loss(Tokens.build(logp, old, none, mask, logp.detach() - 0.3), StepTotals.of(mask)).kl
    assert at.abs().max() == 0
    assert (off[mask] > 0).all()
