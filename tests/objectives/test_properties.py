"""What must hold of every objective, whatever it is made of."""

import itertools

import pytest
import torch
from batches import batch, step
from hypothesis import given, settings
from hypothesis import strategies as st

from sleuth.objectives import TABLE, names, resolve
from sleuth.objectives.aggregation import AGGREGATIONS, StepTotals
from sleuth.objectives.tokens import Tokens

COMBINED = [
    "signbalance+gspo+search_sapo+reference_kl",
    "rloo+dual_clip+llds+entropy",
]
LOSSES = [name for name in names() if TABLE[name].slot in ("surrogate", "term")] + ["grpo", *COMBINED]
PRESETS = {
    "search_sapo released": ("search_sapo", {"search_sapo": {"preset": "released"}}),
    "llds response": ("llds", {"llds": {"gate": "response"}}),
    "llds released ma": ("llds", {"llds": {"preset": "released", "ma": True}}),
    "reference_kl k2": ("reference_kl", {"reference_kl": {"estimator": "k2"}}),
}
EVERY = [*LOSSES, *PRESETS]


def _objective(name, aggregation="token_mean"):
    parts, parameters = PRESETS.get(name, (name, {}))
    lengths = {"aggregation": {"max_length": 16}} if aggregation == "sum_over_max_length" else {}
    return resolve(parts, {**parameters, **lengths}, aggregation)


def _extra(rows, length):
    g = torch.Generator().manual_seed(rows * 100 + length)
    return {
        "entropy": torch.rand(rows, length, generator=g, dtype=torch.float64),
        "answer": torch.rand(rows, length, generator=g) < 0.3,
        "searches": torch.randint(0, 4, (rows,), generator=g),
    }


def _rows(extra, index):
    return {key: value[index] for key, value in extra.items()}


@pytest.mark.parametrize("name", EVERY)
@given(seed=st.integers(0, 10**6), junk=st.sampled_from([0.0, 1.0, float("-inf"), float("nan")]))
@settings(max_examples=15, deadline=None)
def test_masked_tokens_change_nothing(name, seed, junk):
    logp, old, a, mask = batch(seed)
    ref, extra = old + 0.1, _extra(*mask.shape)
    put = lambda x: torch.where(mask, x.detach(), torch.tensor(junk, dtype=x.dtype))  # noqa: E731
    clean = step(_objective(name), logp, old, a, mask, ref, **extra)
    dirty = step(
        _objective(name), put(logp), put(old), a, mask, put(ref), **{**extra, "entropy": put(extra["entropy"])}
    )
    assert torch.equal(clean[0], dirty[0])
    assert torch.equal(clean[1], dirty[1])


@pytest.mark.parametrize("name", EVERY)
@given(
    seed=st.integers(0, 10**6),
    aggregation=st.sampled_from(AGGREGATIONS),
    cuts=st.sets(st.integers(1, 6)),
    rng=st.randoms(use_true_random=False),
)
@settings(max_examples=15, deadline=None)
def test_splitting_and_reordering_a_step_changes_nothing(name, seed, aggregation, cuts, rng):
    logp, old, a, mask = batch(seed, rows=7)
    ref, extra = old + 0.1, _extra(*mask.shape)
    objective = _objective(name, aggregation)
    loss, grad = step(objective, logp, old, a, mask, ref, **extra)
    order = list(range(7))
    rng.shuffle(order)
    edges = [0, *sorted(cuts), 7]
    parts = [order[i:j] for i, j in itertools.pairwise(edges)]
    totals = sum((StepTotals.of(mask[p], a[p]) for p in parts), StepTotals(0, 0))
    leaf = logp.detach().clone().requires_grad_()
    total = sum(
        objective.token_loss(Tokens.build(leaf[p], old[p], a[p], mask[p], ref[p], **_rows(extra, p)), totals).loss.sum()
        for p in parts
    )
    torch.testing.assert_close(total.detach(), loss, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(torch.autograd.grad(total, leaf)[0], grad, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("shift", [500.0, -500.0])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_huge_log_ratios_give_finite_losses_and_gradients(name, shift, dtype):
    logp, old, a, mask = batch(dtype=dtype)
    extra = _extra(*mask.shape)
    loss, grad = step(_objective(name), logp, old + shift, a, mask, old + shift, **extra)
    assert torch.isfinite(loss)
    assert torch.isfinite(grad).all()


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("advantage", [0.0, -1.0])
def test_a_batch_without_a_good_rollout_is_finite(name, advantage):
    logp, old, a, mask = batch()
    extra = _extra(*mask.shape)
    for kept in (mask, torch.zeros_like(mask)):
        loss, grad = step(_objective(name), logp, old, torch.full_like(a, advantage), kept, old, **extra)
        assert torch.isfinite(loss)
        assert torch.isfinite(grad).all()


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("name", [name for name in EVERY if name != "cispo"])
def test_gradients_are_those_of_the_loss(name, aggregation):
    """All but ``cispo``, whose gradient is not that of its value by design."""
    logp, old, a, mask = batch(seed=3, rows=3, length=4)
    extra = _extra(*mask.shape)
    objective = _objective(name, aggregation)

    def loss(x, entropy):
        tokens = Tokens.build(x, old, a, mask, old - 0.2, **{**extra, "entropy": entropy})
        return objective.token_loss(tokens, StepTotals.of(mask, a)).loss.sum()

    assert torch.autograd.gradcheck(loss, (logp, extra["entropy"].requires_grad_()))


@pytest.mark.parametrize("name", EVERY)
def test_single_precision_agrees_with_double(name):
    logp, old, a, mask = batch()
    extra = _extra(*mask.shape)
    double = step(_objective(name), logp, old, a, mask, old + 0.1, **extra)
    single = step(
        _objective(name),
        logp.float(),
        old.float(),
        a.float(),
        mask,
        old.float() + 0.1,
        **{**extra, "entropy": extra["entropy"].float()},
    )
    assert single[1].dtype == torch.float32
    torch.testing.assert_close(single[0].double(), double[0], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(single[1].double(), double[1], rtol=1e-5, atol=1e-6)


def test_no_gradient_reaches_the_old_policy_or_the_reference():
    logp, old, a, mask = batch()
    tokens = Tokens.build(logp, old, a, mask, old + 0.1)
    objective = resolve("search_sapo+reference_kl")
    objective.token_loss(tokens, StepTotals.of(mask, a)).loss.sum().backward()
    assert logp.grad is not None
    assert old.grad is None
