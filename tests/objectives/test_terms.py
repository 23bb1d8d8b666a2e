import pytest
import torch
from batches import batch, step

from sleuth.objectives import resolve
from sleuth.objectives.aggregation import StepTotals
from sleuth.objectives.terms import negative_entropy, reference_kl
from sleuth.objectives.tokens import Tokens

ONE = torch.ones(1, 1)


@pytest.mark.parametrize(
    ("estimator", "value", "slope"), [("k1", 0.5, 1.0), ("k2", 0.125, 0.5), ("k3", 0.106531, 0.393469)]
)
def test_estimators_of_a_token_half_a_nat_above_the_reference(estimator, value, slope):
    logp = torch.full((1, 1), -1.0, dtype=torch.float64, requires_grad=True)
    tokens = Tokens.build(logp, logp.detach(), torch.zeros(1), ONE, logp.detach() - 0.5)
    kl = reference_kl(tokens, estimator=estimator)
    assert kl.item() == pytest.approx(value, abs=1e-6)
    assert torch.autograd.grad(kl.sum(), logp)[0].item() == pytest.approx(slope, abs=1e-6)


@pytest.mark.parametrize("estimator", ["k2", "k3"])
@pytest.mark.parametrize("below", [1.0, 19.0, 24.0, 500.0])
def test_a_token_far_below_the_reference_is_never_pushed_further_down(estimator, below):
    logp = torch.full((1, 1), -501.0, requires_grad=True)
    tokens = Tokens.build(logp, logp.detach(), torch.zeros(1), ONE, logp.detach() + below)
    kl = reference_kl(tokens, estimator=estimator)
    (slope,) = torch.autograd.grad(kl.sum(), logp)
    assert torch.isfinite(kl).all()
    assert slope <= 0


@pytest.mark.parametrize("above", [1.0, 24.0, 500.0])
def test_a_token_far_above_the_reference_is_pulled_down(above):
    logp = torch.full((1, 1), -1.0, requires_grad=True)
    tokens = Tokens.build(logp, logp.detach(), torch.zeros(1), ONE, logp.detach() - above)
    (slope,) = torch.autograd.grad(reference_kl(tokens).sum(), logp)
    assert slope.item() == pytest.approx(1 - 2.718281828**-above)


def test_trainers_coefficient_is_short_for_the_k3_term():
    logp, old, a, mask = batch()
    ref = old - 0.3
    named = resolve("reference_kl", {"reference_kl": {"coefficient": 0.05}})
    short = resolve("grpo", kl_coefficient=0.05)
    assert named.kl_coefficient == short.kl_coefficient == 0.05
    assert torch.equal(step(named, logp, old, a, mask, ref)[1], step(short, logp, old, a, mask, ref)[1])


def test_entropy_bonus_is_a_mean_over_tokens_whatever_the_aggregation():
    mask = torch.tensor([[1, 1, 1], [1, 0, 0]])
    entropy = torch.tensor([[1.0, 2.0, 3.0], [4.0, float("nan"), 9.0]], requires_grad=True)
    logp = torch.zeros(2, 3)
    for aggregation in ("token_mean", "seq_mean_token_mean"):
        objective = resolve("entropy", {"entropy": {"coefficient": 0.1}}, aggregation)
        assert objective.needs_entropy
        tokens = Tokens.build(logp, logp, torch.zeros(2), mask, entropy=entropy)
        loss = objective.token_loss(tokens, StepTotals.of(mask)).loss.sum()
        assert loss.item() == pytest.approx(-0.1 * 10 / 4)
        (grad,) = torch.autograd.grad(loss, entropy)
        assert grad.tolist() == [pytest.approx([-0.025] * 3), pytest.approx([-0.025, 0, 0])]


def test_what_a_term_lacks_is_named():
    logp, old, a, mask = batch()
    tokens = Tokens.build(logp, old, a, mask)
    with pytest.raises(ValueError, match="ref_logp"):
        reference_kl(tokens)
    with pytest.raises(ValueError, match="entropy"):
        negative_entropy(tokens)
