import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sleuth.samplers.draw import draw, uniforms
from sleuth.types import SamplingParams

LOGITS = torch.tensor([[2.0, 0.0, -1.0, 1.0, float("-inf")]])
EDGES = LOGITS.double().softmax(-1).cumsum(-1)[0].tolist()


def token(u, **params):
    return draw(LOGITS, torch.tensor([u], dtype=torch.float64), SamplingParams(**params))[0].item()


def test_inverts_the_cumulative_distribution():
    assert token(0.0) == 0
    for i in range(3):
        assert token(EDGES[i] - 1e-6) == i
        assert token(EDGES[i] + 1e-6) == i + 1


def test_never_draws_what_has_no_probability():
    assert token(1 - 2**-53) == 3
    first = torch.tensor([[float("-inf"), 0.0]])
    assert draw(first, torch.zeros(1, dtype=torch.float64), SamplingParams())[0].item() == 1


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_without_probabilities_are_a_token_whose_log_prob_is_nan(broken, temperature):
    logits = torch.tensor([[0.0, broken, 1.0], [0.0, 1.0, 2.0]])
    tokens, logprobs = draw(logits, torch.full((2,), 0.5, dtype=torch.float64), SamplingParams(temperature))
    assert all(0 <= token < 3 for token in tokens.tolist())
    assert logprobs.isnan().tolist() == [True, False]


def test_frequencies_follow_the_softmax_at_the_temperature():
    n = 20_000
    tokens, _ = draw(LOGITS.expand(n, -1), uniforms([7], n)[0], SamplingParams(temperature=2.0))
    expected = (LOGITS[0] / 2).softmax(-1)
    observed = torch.bincount(tokens, minlength=5) / n
    assert (observed - expected).abs().max() < 4 * math.sqrt(0.25 / n)


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0, 2.0])
def test_logprobs_are_those_of_the_full_softmax(temperature):
    params = SamplingParams(temperature=temperature, top_k=2, top_p=0.9)
    tokens, logprobs = draw(LOGITS, torch.tensor([0.9], dtype=torch.float64), params)
    full = (LOGITS / (temperature or 1.0)).log_softmax(-1)
    assert logprobs.dtype == torch.float32
    assert logprobs.item() == pytest.approx(full[0, tokens.item()].item(), abs=1e-6)


def test_temperature_zero_takes_the_likeliest():
    assert token(0.999, temperature=0.0) == 0


def test_top_k_keeps_the_k_likeliest():
    assert {token(u / 100, top_k=2) for u in range(100)} == {0, 3}
    assert token(0.999, top_k=1) == 0
    assert {token(u / 1000, top_k=50) for u in range(1000)} == {0, 1, 2, 3}


def test_top_p_keeps_the_fewest_that_hold_the_mass():
    # Probabilities are about 0.63, 0.23, 0.09, 0.03: one token holds 0.6, it takes two for 0.7.
    assert {token(u / 100, top_p=0.6) for u in range(100)} == {0}
    assert {token(u / 100, top_p=0.7) for u in range(100)} == {0, 3}
    assert token(0.999, top_p=0.0) == 0
    # The mass is that of what top_k left.
    assert {token(u / 100, top_k=3, top_p=0.8) for u in range(100)} == {0, 3}


@given(st.lists(st.integers(0, 2**64), min_size=1, max_size=5), st.integers(1, 40), st.integers(1, 40))
def test_numbers_depend_on_their_seed_alone(seeds, short, more):
    together = uniforms(seeds, short + more)
    assert together.dtype == torch.float64
    assert ((together >= 0) & (together < 1)).all()
    for row, seed in zip(together, seeds, strict=True):
        assert torch.equal(uniforms([seed], short)[0], row[:short])


def test_seeds_give_different_numbers():
    assert len(set(uniforms(range(100), 1)[:, 0].tolist())) == 100


def test_half_precision_logits_are_drawn_in_full():
    tokens, logprobs = draw(LOGITS.bfloat16(), torch.tensor([0.5], dtype=torch.float64), SamplingParams())
    assert logprobs.item() == pytest.approx(LOGITS.log_softmax(-1)[0, tokens.item()].item(), abs=1e-6)
