import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sleuth.errors import UserError
from sleuth.objectives.advantages import grpo
from sleuth.objectives.aggregation import StepTotals
from sleuth.objectives.parameters import SSPO
from sleuth.objectives.sspo import reshape, step_weights, weigh, weigh_steps
from sleuth.objectives.surrogates import ppo_clip
from sleuth.objectives.tokens import Tokens
from sleuth.types import Action, ActionType, Problem, Span, SpanKind, Status, Trajectory

NAN = float("nan")
DTYPES = [(torch.float64, 1e-6), (torch.float32, 1e-5)]

# The worked example: three steps, two observations. Log-probs of policy tokens only.
LENGTHS = (3, 2, 2, 1, 2)  # policy, observation, policy, observation, policy
POLICY = [[-1.0, -0.5, -0.2], [-0.7, -0.3], [-0.1, -0.4]]
TEACHER = [[-0.6, -0.5, -0.1], [-0.9, -0.2], [-1.6, -0.9]]
REWARDS = [1.2, 0.2, 0.2, 0.0]


def _rollout(name="r", reward=0.2, policy=POLICY, teacher=TEACHER, status=Status.ANSWERED, between=2):
    """Spans of the worked example; ``between`` observation tokens after every turn but the last."""
    spans = [Span(SpanKind.PROMPT, [1, 2])]
    for i, values in enumerate(policy):
        if i:
            spans.append(Span(SpanKind.OBSERVATION, [7] * between))
        scores = None if teacher is None else list(teacher[i])
        spans.append(Span(SpanKind.POLICY, [5] * len(values), old_logprobs=list(values), teacher_logprobs=scores))
    return Trajectory(name, "q", "?", ["a"], spans, reward=reward, status=status)


def _batch(trajectories, advantages, dtype=torch.float64):
    width = max(len(t.completion_ids) for t in trajectories)
    rows = [t.completion_mask + [0] * (width - len(t.completion_mask)) for t in trajectories]
    mask = torch.tensor(rows, dtype=torch.bool)
    return torch.tensor(advantages, dtype=dtype)[:, None] * mask, mask


def _worked_batch(dtype, ddof=0):
    rollouts = [_rollout(str(i), reward) for i, reward in enumerate(REWARDS)]
    rewards = torch.tensor(REWARDS, dtype=dtype)
    a = grpo(rewards, torch.zeros(4), torch.ones(4, dtype=torch.bool), ddof=ddof, eps=0)
    advantages, mask = _batch(rollouts, a.tolist(), dtype)
    return rollouts, advantages, mask


@pytest.mark.parametrize(("dtype", "rel"), DTYPES)
def test_worked_example_by_step(dtype, rel):
    rollouts, advantages, mask = _worked_batch(dtype)
    assert advantages[:, 0].tolist() == pytest.approx([1.705606, -0.426401, -0.426401, -0.852803], abs=1e-6)
    found = weigh(advantages, mask, rollouts, parameters=SSPO())
    assert found.gains[1][mask[1]].tolist() == pytest.approx([0.5] * 3 + [-0.1] * 2 + [-2.0] * 2, rel=rel)
    exact = [math.exp(-0.5)] * 3 + [math.exp(0.1)] * 2 + [1.2] * 2
    assert found.weights[1][mask[1]].tolist() == pytest.approx(exact, rel=rel)
    out = reshape(advantages, mask, rollouts)
    a = -0.2 / math.sqrt(0.22)  # mean 0.4, squares 0.64 + 0.04 + 0.04 + 0.16 over 4
    assert out[1][mask[1]].tolist() == pytest.approx([a * w for w in exact], rel=rel)
    printed = [-0.258626] * 3 + [0.0] * 2 + [-0.471246] * 2 + [0.0] * 2 + [-0.511682] * 2
    assert out[1].tolist() == pytest.approx(printed, abs=1e-6)
    assert float(out[1].sum() / mask[1].sum()) == pytest.approx(-0.391676, abs=1e-6)
    assert torch.equal(out[0], advantages[0])  # the correct rollout


def test_worked_example_with_the_sample_deviation():
    rollouts, advantages, mask = _worked_batch(torch.float64, ddof=1)
    assert advantages[:, 0].tolist() == pytest.approx([1.477098, -0.369274, -0.369274, -0.738549], abs=1e-6)
    assert reshape(advantages, mask, rollouts)[1, 0] == pytest.approx(-0.369274 * 0.606531, abs=1e-6)


@pytest.mark.parametrize(("dtype", "rel"), DTYPES)
def test_worked_example_by_token(dtype, rel):
    rollouts, advantages, mask = _worked_batch(dtype)
    parameters = SSPO(granularity="token")
    weights = weigh(advantages, mask, rollouts, parameters=parameters).weights[1][mask[1]]
    exact = [math.exp(-0.4), 1, math.exp(-0.1), 1.2, math.exp(-0.1), 1.2, 1.2]
    assert weights.tolist() == pytest.approx(exact, rel=rel)
    out = reshape(advantages, mask, rollouts, parameters=parameters)
    assert float(out[1].sum() / mask[1].sum()) == pytest.approx(-0.431274, abs=1e-6)


def test_worked_example_of_the_gain_as_the_advantage():
    rollouts, advantages, mask = _worked_batch(torch.float64)
    found = weigh(advantages, mask, rollouts, parameters=SSPO(gain_as="advantage"))
    assert found.advantages[1][mask[1]].tolist() == pytest.approx([0.4, 0, 0.1, -0.2, 0.1, -1.5, -0.5], abs=1e-6)
    assert torch.equal(found.advantages[0], advantages[0])  # the correct rollout
    assert "weight" not in found.statistics()


@pytest.mark.parametrize("problem", [Problem.MALFORMED_CALL, Problem.NO_ACTION])
def test_a_last_turn_whose_call_is_invalid_is_the_last_step(problem):
    """It is scored and weighed as any other, and nothing stands behind it."""
    rollout = _rollout(teacher=[POLICY[0], POLICY[1], TEACHER[2]])
    rollout.policy_spans[-1].action = Action(ActionType.INVALID, problem=problem)
    advantages, mask = _batch([rollout], [-1.0])
    found = weigh(advantages, mask, [rollout], parameters=SSPO())
    assert found.weights[0][mask[0]].tolist() == pytest.approx([1.0] * 5 + [1.2] * 2)
    told = found.statistics()
    assert (told["steps"], told["amplified"], told["final_amplified"]) == (3, pytest.approx(1 / 3), 1)


def test_steps_are_counted_once_in_the_histogram():
    rollouts, advantages, mask = _worked_batch(torch.float64)
    told = weigh(advantages[1:2], mask[1:2], rollouts[1:2], parameters=SSPO()).statistics()
    assert told["steps"] == 3
    gains = {name: share for name, share in told.items() if name.startswith("gains/") and share}
    # 0.5, -0.1 (by rounding just below it) and -2
    assert gains == pytest.approx({"gains/0.1_to_1": 1 / 3, "gains/-1_to_-0.1": 1 / 3, "gains/-5_to_-1": 1 / 3})
    assert told["amplified"] == pytest.approx(2 / 3)
    assert told["final_amplified"] == 1


@pytest.mark.parametrize(("ratio", "loss"), [(1.3, -0.612620), (0.7, -0.376997)])
def test_clip_of_a_weighed_advantage(ratio, loss):
    # min(r A, clip(r) A) with A = -0.471246: the printed numbers are the objective, the surrogate is its negative
    logp = torch.tensor([[math.log(ratio)]], dtype=torch.float64)
    advantages = torch.tensor([[-0.471246]], dtype=torch.float64)
    tokens = Tokens.build(logp, torch.zeros_like(logp), advantages, torch.ones(1, 1))
    assert -float(ppo_clip(tokens)[0]) == pytest.approx(loss, abs=1e-6)


@pytest.mark.parametrize(
    ("advantage", "gain", "weight"),
    [
        (-1.0, 0.1, math.exp(-0.1)),  # penalty reduced
        (-1.0, -0.1, math.exp(0.1)),  # penalty amplified
        (1.0, 0.1, math.exp(0.1)),  # wrong but well-formed: reward amplified
        (1.0, -0.1, math.exp(-0.1)),  # and dampened
        (0.0, -3.0, 1.0),
        (-1.0, 800.0, 0.0),  # no floor
        (-1.0, -800.0, 1.2),  # cap, without overflow
    ],
)
def test_sign_of_advantage_and_gain(advantage, gain, weight):
    rollout = _rollout(policy=[[-900.0]], teacher=[[-900.0 + gain]])
    advantages, mask = _batch([rollout], [advantage])
    out = reshape(advantages, mask, [rollout])
    assert out.item() == pytest.approx(advantage * weight)


def test_cap_of_zero_only_ever_reduces():
    rollouts, advantages, mask = _worked_batch(torch.float64)
    weights = weigh(advantages, mask, rollouts, parameters=SSPO(eps=0.0)).weights
    assert weights[1][mask[1]].tolist() == pytest.approx([math.exp(-0.5)] * 3 + [1.0] * 4)


def test_reward_decides_who_is_weighed():
    rewards = [1.0, 0.999, 0.0, None, NAN]
    rollouts = [_rollout(str(i), reward) for i, reward in enumerate(rewards)]
    advantages, mask = _batch(rollouts, [-1.0] * 5)
    assert (
        weigh(advantages, mask, rollouts, parameters=SSPO()).weighed.any(-1).tolist()
        == [False, True, True] + [False] * 2
    )
    half = SSPO(correct_reward=0.5)
    assert weigh(advantages, mask, rollouts, parameters=half).weighed.any(-1).tolist() == [
        False,
        False,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize("status", [Status.RETRIEVER_FAILED, Status.ABORTED])
def test_failed_rollouts_keep_what_they_have(status):
    rollouts = [_rollout("a", 0.0, status=status), _rollout("b", 0.0)]
    advantages, mask = _batch(rollouts, [-1.0, -1.0])
    out = reshape(advantages, mask, rollouts)
    assert torch.equal(out[0], advantages[0])
    assert not torch.equal(out[1], advantages[1])


def test_rollouts_without_a_teacher_keep_weight_one_and_are_counted():
    rollouts = [_rollout("a", 0.0, teacher=None), _rollout("b", 0.0)]
    advantages, mask = _batch(rollouts, [-1.0, -1.0])
    found = weigh(advantages, mask, rollouts, parameters=SSPO())
    assert found.unscored == 1
    assert found.statistics()["unscored"] == 1
    assert torch.equal(found.weights[0], torch.ones_like(found.weights[0]))
    assert not found.weighed[0].any()


def test_no_teacher_at_all_is_said_and_not_passed_off_as_grpo():
    rollouts = [_rollout("good", 1.0, teacher=None), _rollout("bad", 0.0, teacher=None)]
    advantages, mask = _batch(rollouts, [1.0, -1.0])
    with pytest.raises(UserError, match=r"'bad'.*teacher_logprobs") as error:
        reshape(advantages, mask, rollouts)
    assert "\n" not in str(error.value)
    # A trainer whose teacher had to leave out every rollout of a batch goes on.
    nowhere = torch.full(mask.shape, NAN, dtype=torch.float64)
    assert torch.equal(reshape(advantages, mask, rollouts, teacher_logp=nowhere), advantages)


def test_all_correct_needs_no_teacher():
    rollouts = [_rollout(str(i), 1.0, teacher=None) for i in range(2)]
    advantages, mask = _batch(rollouts, [0.0, 0.0])
    assert torch.equal(reshape(advantages, mask, rollouts), advantages)


def test_sampler_log_probs_stand_in_with_a_warning():
    rollout = _rollout()
    for span in rollout.policy_spans:
        span.logprobs, span.old_logprobs = span.old_logprobs, None
    advantages, mask = _batch([rollout], [-1.0])
    with pytest.warns(UserWarning, match="sampler"):
        out = reshape(advantages, mask, [rollout])
    assert torch.equal(out, reshape(advantages, mask, [_rollout()]))


def test_tensors_of_a_trainer_win_over_the_spans():
    rollout = _rollout()
    advantages, mask = _batch([rollout], [-1.0])
    same = torch.zeros_like(advantages)
    assert torch.equal(reshape(advantages, mask, [rollout], old_logp=same, teacher_logp=same), advantages)


@pytest.mark.parametrize("bad", [NAN, float("inf"), float("-inf")])
def test_a_token_with_a_broken_log_prob_adds_nothing_to_its_step(bad):
    teacher = [[bad, -0.5, -0.1], *TEACHER[1:]]
    rollout = _rollout(teacher=teacher)
    advantages, mask = _batch([rollout], [-1.0])
    found = weigh(advantages, mask, [rollout], parameters=SSPO())
    assert found.gains[0, :3].tolist() == pytest.approx([0.1] * 3)
    by_token = weigh(advantages, mask, [rollout], parameters=SSPO(granularity="token")).weights
    assert by_token[0, 0] == 1


def test_policy_tokens_outside_of_the_mask_add_nothing():
    rollout = _rollout()
    advantages, mask = _batch([rollout], [-1.0])
    mask[0, 0] = False
    found = weigh(advantages, mask, [rollout], parameters=SSPO())
    assert found.gains[0, 1] == pytest.approx(0.1)
    assert found.weights[0, 0] == 1


def test_no_gradient_reaches_either_side():
    advantages = torch.tensor([-1.0], dtype=torch.float64)
    logp, teacher = (torch.randn(1, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    weights = step_weights(advantages, logp, teacher, torch.ones(1, 4), torch.tensor([True]))
    assert not weights.requires_grad


def test_half_precision_is_subtracted_in_full_precision():
    advantages = torch.tensor([-1.0])
    logp = torch.full((1, 3), -1.0, dtype=torch.bfloat16)
    weights = step_weights(advantages, logp, logp + 0.5, torch.ones(1, 3), torch.tensor([True]))
    assert weights.dtype == torch.float32
    assert weights[0, 0] == pytest.approx(math.exp(-1.5))


def test_one_line_in_a_loop_of_your_own():
    """Steps are the runs of ones in the mask; the spans' arithmetic and the tensors' agree."""
    rollout = _rollout()
    advantages, mask = _batch([rollout], [-0.426401])
    flat = lambda steps: [*steps[0], NAN, NAN, *steps[1], NAN, NAN, *steps[2]]  # noqa: E731
    logp, teacher = (torch.tensor([flat(s)], dtype=torch.float64) for s in (POLICY, TEACHER))
    weights = step_weights(torch.tensor([-0.426401]).double(), logp, teacher, mask, torch.tensor([True]))
    assert torch.equal(advantages * weights, reshape(advantages, mask, [rollout]))


def test_a_rollout_without_tokens_is_no_crash():
    empty = Trajectory("e", "q", "?", ["a"], [Span(SpanKind.PROMPT, [1])], reward=0.0, status=Status.TRUNCATED)
    rollouts = [_rollout(), empty]
    advantages, mask = _batch(rollouts, [-1.0, -1.0])
    found = weigh(advantages, mask, rollouts, parameters=SSPO())
    assert found.unscored == 0
    assert not found.weighed[1].any()


def test_statistics_count_weighed_tokens():
    rollouts, advantages, mask = _worked_batch(torch.float32)
    stats = weigh(advantages[1:2], mask[1:2], rollouts[1:2], parameters=SSPO()).statistics()
    assert stats["capped"] == pytest.approx(2 / 7)
    assert stats["exempt"] == 0
    assert stats["weight"] == pytest.approx((3 * 0.606531 + 2 * 1.105171 + 2 * 1.2) / 7, rel=1e-5)
    assert stats["gain/q50"] == pytest.approx(-0.1)
    assert stats["gain/q05"] == pytest.approx(-2)
    assert stats["gain/q95"] == pytest.approx(0.5)


@st.composite
def _tensors(draw):
    rows, length = draw(st.integers(1, 5)), draw(st.integers(1, 12))
    g = torch.Generator().manual_seed(draw(st.integers(0, 2**32 - 1)))
    dtype = draw(st.sampled_from([torch.float32, torch.float64]))
    rand = lambda: torch.randn(rows, length, generator=g, dtype=dtype)  # noqa: E731
    mask = torch.rand(rows, length, generator=g) < 0.7
    scale = draw(st.sampled_from([0.01, 1.0, 100.0]))
    incorrect = torch.rand(rows, generator=g) < 0.7
    return {
        "advantages": torch.randn(rows, generator=g, dtype=dtype)[:, None].expand(rows, length),
        "logp": rand() * scale,
        "teacher_logp": rand() * scale,
        "mask": mask,
        "incorrect": incorrect,
    }


GRANULARITY = st.sampled_from(["step", "token"])


@given(_tensors(), GRANULARITY)
def test_equal_log_probs_are_grpo_bit_for_bit(batch, granularity):
    batch["teacher_logp"] = batch["logp"]
    weights = step_weights(**batch, granularity=granularity)
    assert torch.equal(weights, torch.ones_like(weights))
    # … and so are loss and gradient, whatever the policy has become since
    rng = torch.Generator().manual_seed(0)
    logp = (batch["logp"] + torch.randn(batch["logp"].shape, generator=rng).to(weights.dtype)).requires_grad_()
    results = []
    for advantages in (batch["advantages"], batch["advantages"] * weights):
        loss = ppo_clip(Tokens.build(logp, batch["logp"], advantages, batch["mask"]))[0].sum()
        loss = loss / max(StepTotals.of(batch["mask"]).tokens, 1)
        results.append((loss, *torch.autograd.grad(loss, logp)))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@given(_tensors(), GRANULARITY, st.floats(0, 3))
def test_weights_are_bounded_and_no_sign_flips(batch, granularity, eps):
    found = weigh_steps(**batch, granularity=granularity, eps=eps)
    assert (found.weights >= 0).all()
    assert (found.weights <= (1 + eps) * (1 + 1e-6)).all()
    assert (found.weights[~found.weighed] == 1).all()
    out = batch["advantages"] * found.weights
    assert (out * batch["advantages"] >= 0).all()


@given(_tensors(), GRANULARITY, st.sampled_from([0.0, 1.0, float("-inf"), NAN]))
def test_masked_places_change_nothing(batch, granularity, junk):
    clean = step_weights(**batch, granularity=granularity)
    dirty = dict(batch)
    for name in ("advantages", "logp", "teacher_logp"):
        dirty[name] = torch.where(batch["mask"], batch[name], torch.tensor(junk, dtype=batch[name].dtype))
    assert torch.equal(clean, step_weights(**dirty, granularity=granularity))


@given(_tensors(), GRANULARITY, st.randoms())
def test_rows_are_on_their_own(batch, granularity, rng):
    """Any order and any split of the batch gives the same weights."""
    whole = step_weights(**batch, granularity=granularity)
    order = list(range(len(whole)))
    rng.shuffle(order)
    for row in order:
        alone = step_weights(**{name: value[row : row + 1] for name, value in batch.items()}, granularity=granularity)
        torch.testing.assert_close(alone[0], whole[row], rtol=0, atol=0)
