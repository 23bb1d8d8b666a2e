from dataclasses import replace

import pytest
import torch
from batches import batch, from_ratios, step

from sleuth.objectives import resolve
from sleuth.objectives.aggregation import StepTotals
from sleuth.objectives.lost_likelihood import lost_likelihood
from sleuth.objectives.tokens import Tokens, turn_numbers

# One good rollout: a turn that fell as a whole (0.2 - 0.5), a gap of the environment, a turn that rose (0.4 - 0.1).
LOG_RATIO = [[0.2, -0.5, 9.0, 0.4, -0.1]]
MASK = torch.tensor([[1, 1, 0, 1, 1]])


def _tokens(advantage=1.0, dtype=torch.float64, **extra):
    d = torch.tensor(LOG_RATIO, dtype=dtype)
    logp = torch.full_like(d, -1.0).requires_grad_()
    return Tokens.build(logp, logp.detach() - d, torch.tensor([advantage], dtype=dtype), MASK, **extra)


@pytest.mark.parametrize(("dtype", "rel"), [(torch.float64, 1e-6), (torch.float32, 1e-5)])
@pytest.mark.parametrize(
    ("gate", "expected"),
    [
        ("token", [0, 0.5, 0, 0, 0.1]),
        ("action", [0, 0.5, 0, 0, 0]),  # the second turn rose as a whole
        ("response", [0, 0, 0, 0, 0]),  # 0.2 - 0.5 + 0.4 - 0.1 = 0: did not fall
    ],
)
def test_gates(gate, expected, dtype, rel):
    if gate == "response":
        # Exactly zero is a matter of rounding; a little higher is not.
        tokens = _tokens(dtype=dtype)
        risen = replace(tokens, old_logp=tokens.old_logp - 0.001 * tokens.mask)
        assert not lost_likelihood(risen, gate=gate).any()
        fallen = replace(tokens, old_logp=tokens.old_logp + 0.001 * tokens.mask)
        assert lost_likelihood(fallen, gate=gate)[0, 1].item() == pytest.approx(0.501, rel=rel)
        return
    assert lost_likelihood(_tokens(dtype=dtype), gate=gate)[0].tolist() == pytest.approx(expected, rel=rel)


def test_rollouts_with_zero_advantage_are_protected_and_bad_ones_are_not():
    assert lost_likelihood(_tokens(0.0), gate="token").sum().item() == pytest.approx(0.6)
    assert not lost_likelihood(_tokens(-0.1), gate="token").any()


def test_where_nothing_moved_there_is_no_gradient():
    logp, old = from_ratios([[1.0] * 4])
    for gate in ("token", "response", "action"):
        _, grad = step(resolve("llds", {"llds": {"gate": gate}}), logp, old, torch.zeros(1), torch.ones(1, 4))
        assert not grad.any()


def test_presets_differ_in_the_normaliser():
    logp, old = from_ratios([[0.5, 0.5], [1.0, 1.0]])
    a = torch.tensor([0.0, -1.0])
    mask = torch.ones(2, 2)
    log2 = 0.6931471805599453
    plain = step(resolve("grpo"), logp, old, a, mask)[0].item()
    paper = step(resolve("llds"), logp, old, a, mask)[0].item() - plain
    released = step(resolve("llds", {"llds": {"preset": "released"}}), logp, old, a, mask)[0].item() - plain
    assert paper == pytest.approx(0.2 * 2 * log2 / 2)
    assert released == pytest.approx(0.2 * 2 * log2 / 4)


@pytest.mark.parametrize(("searches", "share"), [(0, 0.0), (1, 0.5), (2, 1.0), (5, 1.0)])
def test_ma_holds_answers_up_only_after_searching(searches, share):
    answer = torch.tensor([[0, 1, 0, 0, 0]])
    tokens = _tokens(answer=answer, searches=torch.tensor([searches]))
    assert lost_likelihood(tokens, gate="token", ma=True)[0].tolist() == pytest.approx([0, 0.5 * share, 0, 0, 0.1])


def test_ma_without_answer_tokens_is_an_error():
    with pytest.raises(ValueError, match="answer"):
        lost_likelihood(_tokens(), ma=True)
    assert resolve("llds", {"llds": {"ma": True}}).needs_answers


def test_the_token_gate_is_search_sapo_with_another_weight_and_normaliser():
    logp, old, a, mask = batch()
    theirs = step(resolve("llds", {"llds": {"gate": "token", "weight": 0.1}}), logp, old, a, mask)[1]
    ours = step(resolve("search_sapo", {"search_sapo": {"normalizer": "protected_tokens"}}), logp, old, a, mask)[1]
    torch.testing.assert_close(ours, theirs)


def test_turns_are_runs_of_the_mask():
    assert turn_numbers(torch.tensor([[0, 1, 1, 0, 1], [1, 0, 0, 1, 1]])).tolist() == [[0, 1, 1, 0, 2], [1, 0, 0, 2, 2]]


def test_totals_of_parts_add_up():
    _, _, a, mask = batch()
    assert StepTotals.of(mask[:2], a[:2]) + StepTotals.of(mask[2:], a[2:]) == StepTotals.of(mask, a)


def test_a_dropped_token_does_not_cut_its_turn_in_two():
    d = torch.tensor([[0.3, 0.0, -0.2]])
    logp = torch.full_like(d, -1.0)
    old = logp - d
    logp[0, 1] = float("nan")
    tokens = Tokens.build(logp, old, torch.ones(1), torch.ones(1, 3))
    assert tokens.turns.tolist() == [[1, 1, 1]]
    assert not lost_likelihood(tokens).any()  # 0.3 - 0.2: the turn rose
