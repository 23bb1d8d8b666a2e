"""Search Agent Policy Optimization's term against numbers worked by hand."""

import pytest
import torch
from batches import batch, from_ratios, step

from sleuth.objectives import resolve
from sleuth.objectives.aggregation import StepTotals
from sleuth.objectives.tokens import Tokens

DTYPES = pytest.mark.parametrize(("dtype", "rel"), [(torch.float64, 1e-6), (torch.float32, 1e-5)])


def _search_sapo(aggregation=None, **settings):
    return resolve("search_sapo", {"search_sapo": settings}, aggregation)


@DTYPES
def test_released_on_policy_a_good_token_is_pulled_by_both_parts(dtype, rel):
    """r = 1, A = (+1, -1), 2 × 4 tokens: -1/8 of the surrogate and -0.1/4 of the penalty, +1/8 for the other row."""
    logp, old = from_ratios([[1.0] * 4] * 2, dtype)
    a = torch.tensor([1.0, -1.0], dtype=dtype)
    loss, grad = step(_search_sapo(preset="released"), logp, old, a, torch.ones(2, 4))
    assert loss.item() == pytest.approx(0, abs=1e-7)
    assert grad[0].tolist() == pytest.approx([-0.150] * 4, rel=rel)
    assert grad[1].tolist() == pytest.approx([0.125] * 4, rel=rel)
    _, penalty = step(_search_sapo(preset="released", gamma=0.1), logp, old, a * 0, torch.ones(2, 4))
    assert penalty.flatten().tolist() == pytest.approx([-0.1 / 8] * 8, rel=rel)


@DTYPES
def test_released_protects_rollouts_without_advantage(dtype, rel):
    """A = 0, log r = -0.5, 8 tokens: loss 0.1 · 0.5, gradient -0.1 / 8."""
    logp = torch.full((2, 4), -1.0, dtype=dtype)
    loss, grad = step(_search_sapo(preset="released"), logp, logp + 0.5, torch.zeros(2, dtype=dtype), torch.ones(2, 4))
    assert loss.item() == pytest.approx(0.05, rel=rel)
    assert grad.flatten().tolist() == pytest.approx([-0.0125] * 8, rel=rel)


def test_the_paper_leaves_both_of_these_alone():
    logp = torch.full((2, 4), -1.0, dtype=torch.float64)
    loss, grad = step(_search_sapo(), logp, logp + 0.5, torch.zeros(2, dtype=torch.float64), torch.ones(2, 4))
    assert loss == 0
    assert not grad.any()
    on_policy = step(_search_sapo(), logp, logp.clone(), torch.tensor([1.0, -1.0]), torch.ones(2, 4))[1]
    assert on_policy[0].tolist() == pytest.approx([-0.125] * 4)  # the boundary r = tau is open


@DTYPES
def test_the_pull_does_not_fade_as_the_ratio_falls(dtype, rel):
    """d loss / d logp = -(A r + gamma) a token: the floor equals the surrogate at r = gamma, is 10x that at 0.01."""
    logp, old = from_ratios([[0.1, 0.01, 0.5, 1.1]], dtype)
    _, grad = step(_search_sapo(), logp, old, torch.ones(1, dtype=dtype), torch.ones(1, 4))
    assert (-4 * grad[0]).tolist() == pytest.approx([0.2, 0.11, 0.6, 1.1], rel=rel)


def test_a_bad_rollout_and_a_risen_token_are_left_to_the_surrogate():
    logp, old = from_ratios([[0.5, 1.1], [0.5, 1.1]])
    a = torch.tensor([1.0, -1.0])
    ours = step(_search_sapo(), logp, old, a, torch.ones(2, 2))[1]
    plain = step(resolve("grpo"), logp, old, a, torch.ones(2, 2))[1]
    assert (ours - plain).flatten().tolist() == pytest.approx([-0.1 / 4, 0, 0, 0])


@pytest.mark.parametrize(
    ("arm", "touched"),
    [
        ("full", [[1, 0], [0, 0]]),
        ("ratio", [[1, 0], [1, 0]]),
        ("advantage", [[1, 1], [0, 0]]),
        ("unconditional", [[1, 1], [1, 1]]),
    ],
)
@pytest.mark.parametrize("preset", ["paper", "released"])
def test_ablation_arms_drop_one_condition_or_both(arm, touched, preset):
    logp, old = from_ratios([[0.5, 1.1], [0.5, 1.1]])
    a = torch.tensor([1.0, -1.0])
    ours = step(_search_sapo(arm=arm, preset=preset), logp, old, a, torch.ones(2, 2))[1]
    extra = ours - step(resolve("grpo"), logp, old, a, torch.ones(2, 2))[1]
    count = 2 if preset == "released" and arm in ("full", "advantage") else 4
    assert (extra * -count / 0.1).tolist() == [pytest.approx(row, abs=1e-9) for row in touched]


def test_a_lower_threshold_leaves_a_margin_and_a_higher_one_also_rewards():
    logp, old = from_ratios([[0.9, 0.7, 1.1]])
    touched = {}
    for tau in (0.8, 1.0, 1.2):
        plain = step(resolve("grpo"), logp, old, torch.ones(1), torch.ones(1, 3))[1]
        extra = step(_search_sapo(tau=tau), logp, old, torch.ones(1), torch.ones(1, 3))[1] - plain
        touched[tau] = (extra[0] != 0).tolist()
    assert touched == {0.8: [False, True, False], 1.0: [True, True, False], 1.2: [True, True, True]}


def test_an_explicit_setting_wins_over_the_preset():
    logp = torch.full((1, 4), -1.0)
    zero = torch.zeros(1)
    assert step(_search_sapo(preset="released", condition="positive"), logp, logp + 1, zero, torch.ones(1, 4))[0] == 0
    assert step(_search_sapo(condition="nonnegative"), logp, logp + 1, zero, torch.ones(1, 4))[0] > 0


def test_the_released_penalty_is_divided_by_protected_tokens_of_the_whole_step():
    """Whole and split into single rollouts: the same; a micro-batch without a protected rollout is finite."""
    logp, old, a, mask = batch(rows=5)
    objective = _search_sapo(preset="released", gamma=1.0)
    whole, grad = step(objective, logp, old, a, mask)
    totals = StepTotals.of(mask, a)
    assert totals.nonnegative_tokens == mask[a >= 0].sum()
    leaf = logp.detach().clone().requires_grad_()
    parts = [
        objective.token_loss(Tokens.build(leaf[i : i + 1], old[i : i + 1], a[i : i + 1], mask[i : i + 1]), totals).loss
        for i in range(5)
    ]
    split = torch.stack([part.sum() for part in parts])
    assert torch.isfinite(split).all()
    assert split.sum().item() == pytest.approx(whole.item(), rel=1e-9)
    torch.testing.assert_close(torch.autograd.grad(split.sum(), leaf)[0], grad, rtol=1e-9, atol=1e-12)


def test_protected_tokens_are_those_of_the_condition_in_force():
    """Rows with A = 1 and A = 0: under the paper's condition only the first counts, and only it is penalised."""
    logp = torch.full((2, 4), -1.0)
    a = torch.tensor([1.0, 0.0])
    for condition, count in (("positive", 4), ("nonnegative", 8)):
        objective = _search_sapo(gamma=1.0, normalizer="protected_tokens", condition=condition)
        tokens = Tokens.build(logp, logp + 0.5, a, torch.ones(2, 4))
        part = objective.token_loss(tokens, StepTotals.of(torch.ones(2, 4), a)).terms["search_sapo"]
        assert part[0].tolist() == pytest.approx([0.5 / count] * 4)
        assert part[1].tolist() == pytest.approx([0.5 / count if count == 8 else 0.0] * 4)


def test_paper_follows_the_aggregation():
    logp, old = from_ratios([[0.5] * 4, [0.5, 1, 1, 1]])
    mask = torch.tensor([[1, 1, 1, 1], [1, 0, 0, 0]])
    objective = _search_sapo("seq_mean_token_mean")
    tokens = Tokens.build(logp, old, torch.tensor([1.0, 1.0]), mask)
    part = objective.token_loss(tokens, StepTotals.of(mask, torch.ones(2))).terms["search_sapo"]
    half = 0.1 * 0.693147 / 2
    assert part.sum(-1).tolist() == pytest.approx([half, half], rel=1e-5)


def test_reshaped_advantages_do_not_move_the_gate():
    """A good rollout is told by its rewards, not by what a reshape made of single tokens."""
    logp, old = from_ratios([[0.5, 0.5]])
    reshaped = torch.tensor([[-1.0, 0.0]])
    tokens = Tokens.build(logp, old, reshaped, torch.ones(1, 2), rollout_advantages=torch.tensor([1.0]))
    part = _search_sapo().token_loss(tokens, StepTotals.of(torch.ones(1, 2))).terms["search_sapo"]
    assert part[0].tolist() == pytest.approx([0.1 * 0.693147 / 2] * 2, rel=1e-5)


def test_the_log_ratio_itself_is_never_clamped():
    logp = torch.full((1, 1), -1.0, dtype=torch.float64)
    loss, grad = step(_search_sapo(gamma=1.0), logp, logp + 500, torch.ones(1, dtype=torch.float64), torch.ones(1, 1))
    assert loss.item() == pytest.approx(500)
    assert grad.item() == pytest.approx(-1)


def test_counts_that_were_not_taken_are_an_error_not_a_wrong_number():
    logp, old, a, mask = batch()
    with pytest.raises(ValueError, match="advantages"):
        _search_sapo(preset="released").token_loss(Tokens.build(logp, old, a, mask), StepTotals.of(mask))
