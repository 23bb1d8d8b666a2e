"""The distillation loss: worked numbers, gradients, and that chunks and padding change nothing."""

import math
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sleuth.objectives.distillation import ELEMENTS, distil, divergence, divergence_terms, keep_top

P = torch.tensor([0.7, 0.2, 0.05, 0.05], dtype=torch.float64)
Q = torch.tensor([0.4, 0.4, 0.1, 0.1], dtype=torch.float64)
UNIFORM = torch.full((4,), 0.25, dtype=torch.float64)
Q2 = torch.tensor([0.3, 0.2, 0.25, 0.25], dtype=torch.float64)


def logits(*distributions):
    return torch.stack([d.log() for d in distributions]).requires_grad_()


def same(h):
    """A head that takes logits for hidden states."""
    return h


def distilled(student, teacher, **options):
    return distil(student, teacher, same, same, torch.zeros(len(student), dtype=torch.long), **options)


def test_the_terms_of_the_first_worked_position():
    terms = divergence_terms(Q.log(), P.log())
    assert terms.tolist() == pytest.approx([0.391731, -0.138629, -0.034657, -0.034657], abs=1e-6)


@pytest.mark.parametrize(
    ("kind", "clip", "value"),
    [
        ("forward_kl", None, 0.183787),
        ("forward_kl", 0.05, -0.157944),
        ("reverse_kl", None, 0.192042),
        ("jsd", None, 0.046201),
    ],
)
def test_divergences_of_the_first_worked_position(kind, clip, value):
    assert divergence(Q.log(), P.log(), kind, clip).item() == pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize(("clip", "value"), [(None, 0.010205), (0.05, 0.004420)])
def test_the_second_worked_position(clip, value):
    assert divergence(Q2.log(), UNIFORM.log(), clip=clip).item() == pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize(("clip", "value"), [(None, 0.096996), (0.05, -0.076762)])
def test_the_mean_over_both_worked_positions(clip, value):
    result = distilled(logits(Q, Q2), logits(P, UNIFORM), clip=clip)
    assert result.loss.mean().item() == pytest.approx(value, abs=1e-6)
    assert result.kl.mean().item() == pytest.approx(0.096996, abs=1e-6)


@pytest.mark.parametrize(("clip", "gradient"), [(None, [-0.3, 0.2, 0.05, 0.05]), (0.05, [0.12, -0.08, -0.02, -0.02])])
def test_the_bound_turns_the_gradient_around(clip, gradient):
    student = logits(Q)
    distilled(student, logits(P), clip=clip).loss.sum().backward()
    assert student.grad[0].tolist() == pytest.approx(gradient, abs=1e-6)


@pytest.mark.parametrize("clip", [None, 0.05])
@pytest.mark.parametrize("kind", ["forward_kl", "reverse_kl", "jsd"])
def test_gradients_are_those_of_finite_differences(kind, clip):
    student = torch.tensor([[0.3, -0.2, 0.9, 0.1]], dtype=torch.float64, requires_grad=True)

    def loss(x):
        return divergence(x.log_softmax(-1), P.log()[None], kind, clip).sum()

    assert torch.autograd.gradcheck(loss, (student,))


@pytest.mark.parametrize(("rest", "value"), [("truncate", 0.253102), ("renormalise", 0.163441), ("tail", 0.183787)])
def test_the_teachers_top_two(rest, value):
    assert divergence(*keep_top(Q.log(), P.log(), 2, rest)).item() == pytest.approx(value, abs=1e-6)
    assert distilled(logits(Q), logits(P), top_k=2, rest=rest).loss.item() == pytest.approx(value, abs=1e-6)


def test_a_top_k_of_the_whole_vocabulary_is_exact():
    assert keep_top(Q.log(), P.log(), 4)[0] is not None
    assert divergence(*keep_top(Q.log(), P.log(), 9)).item() == pytest.approx(0.183787, abs=1e-6)


@given(st.integers(0, 10_000), st.integers(1, 8))
@settings(max_examples=40, deadline=None)
def test_the_tail_bucket_never_says_more_than_the_whole_vocabulary(seed, k):
    generator = torch.Generator().manual_seed(seed)
    p, q = (torch.randn(8, generator=generator, dtype=torch.float64).mul(3).log_softmax(-1) for _ in range(2))
    exact, bucket = divergence(q, p), divergence(*keep_top(q, p, k, "tail"))
    assert -1e-12 <= bucket <= exact + 1e-12


@given(st.integers(0, 10_000), st.sampled_from(["forward_kl", "reverse_kl", "jsd"]))
@settings(max_examples=40, deadline=None)
def test_an_exact_divergence_is_never_negative_and_a_bound_never_raises_it(seed, kind):
    generator = torch.Generator().manual_seed(seed)
    p, q = (torch.randn(16, generator=generator, dtype=torch.float64).mul(4).log_softmax(-1) for _ in range(2))
    exact = divergence(q, p, kind)
    assert exact >= -1e-12
    assert divergence(q, p, kind, clip=0.05) <= exact


def test_equal_distributions_have_a_loss_of_exactly_zero():
    h = torch.randn(5, 32)
    result = distilled(h.clone().requires_grad_(), h)
    assert result.loss.tolist() == [0.0] * 5
    assert result.gain.tolist() == [0.0] * 5


def test_no_gradient_reaches_the_teacher():
    student, teacher = torch.randn(3, 8, requires_grad=True), torch.randn(3, 8, requires_grad=True)
    weight = torch.randn(8, 8, requires_grad=True)
    result = distil(student, teacher, same, lambda h: h @ weight, torch.zeros(3, dtype=torch.long))
    result.loss.sum().backward()
    assert teacher.grad is None
    assert weight.grad is None
    assert student.grad.abs().sum() > 0


@pytest.mark.parametrize("options", [{}, {"clip": 0.05}, {"top_k": 5}, {"temperature": 1.7}, {"kind": "jsd"}])
def test_chunks_change_nothing(options):
    torch.manual_seed(0)
    h, g, w, v = torch.randn(13, 6), torch.randn(13, 7), torch.randn(6, 50), torch.randn(7, 50)
    tokens = torch.randint(50, (13,))
    losses, gradients = [], []
    for elements in (50 * 4, 50 * 100):
        student, weight = h.clone().requires_grad_(), w.clone().requires_grad_()
        result = distil(
            student, g, lambda x, weight=weight: x @ weight, lambda x: x @ v, tokens, elements=elements, **options
        )
        result.loss.mean().backward()
        losses.append(result)
        gradients.append((student.grad, weight.grad))
    for name in ("loss", "kl", "clipped", "gain"):
        torch.testing.assert_close(getattr(losses[0], name), getattr(losses[1], name))
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b)


def test_no_chunk_is_larger_than_asked_for():
    sizes = []

    def head(h):
        sizes.append(len(h))
        return h @ torch.ones(4, 100)

    distil(torch.randn(50, 4), torch.randn(50, 4), head, head, torch.zeros(50, dtype=torch.long), elements=700)
    assert max(sizes) == 7


@pytest.mark.parametrize("vocabulary", [32_000, 49_152, 128_256, 151_936, 262_144])
def test_a_chunks_logits_are_a_block_that_the_allocator_gives_back(vocabulary):
    """glibc maps blocks from 32 MiB on, whatever it was asked for before; smaller ones can end up in its heap."""
    assert (ELEMENTS // vocabulary) * vocabulary * 4 > 32 << 20


def test_a_token_that_neither_can_say_adds_nothing():
    p, q = (torch.cat([x.log(), torch.tensor([-math.inf])]) for x in (P, Q))
    student = q.clone().requires_grad_()
    value = divergence(student.log_softmax(-1), p.log_softmax(-1))
    value.backward()
    assert value.item() == pytest.approx(0.183787, abs=1e-6)
    assert torch.isfinite(student.grad).all()


def test_a_token_that_only_the_student_can_say_costs_nothing_and_the_reverse_is_infinite():
    p = torch.tensor([1.0, 0.0]).log()
    q = torch.tensor([0.5, 0.5]).log()
    assert divergence(q, p).item() == pytest.approx(math.log(2))
    assert divergence(p, q).item() == math.inf


def test_the_clipped_mass_is_the_teachers_probability_of_cut_terms():
    assert distilled(logits(Q), logits(P), clip=0.05).clipped.item() == pytest.approx(0.7)
    assert distilled(logits(Q), logits(P)).clipped.item() == 0.0


def test_the_gain_is_that_of_the_token_that_stands_there():
    result = distil(logits(Q), logits(P), same, same, torch.tensor([1]))
    assert result.gain.item() == pytest.approx(math.log(0.2 / 0.4), abs=1e-6)


def test_nothing_to_distil_is_no_error():
    result = distil(torch.zeros(0, 4), torch.zeros(0, 4), same, same, torch.zeros(0, dtype=torch.long))
    assert result.loss.shape == (0,)


def test_other_lengths_or_vocabularies_are_refused():
    with pytest.raises(ValueError, match="positions"):
        distil(torch.zeros(2, 4), torch.zeros(3, 4), same, same, torch.zeros(2, dtype=torch.long))
    with pytest.raises(ValueError, match="tokens"):
        distil(torch.zeros(2, 4), torch.zeros(2, 5), same, same, torch.zeros(2, dtype=torch.long))


def test_it_needs_no_trainer():
    """verl's environment has no TRL; there this file's tests run too."""
    code = (
        "import sys; from sleuth.objectives.distillation import distil; "
        "assert not {'trl', 'transformers', 'accelerate', 'peft'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
