import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from sleuth.diagnostics.gradient_differences import gradient_differences
from sleuth.diagnostics.replay import Replay, RolloutReplay, SpanReplay, UnfitRollout, replay
from sleuth.errors import UserError
from sleuth.objectives import names, resolve
from sleuth.rollouts import read_rollouts
from sleuth.types import Part, PartKind, Span, SpanKind, Status, Trajectory

EXAMPLE = Path(__file__).parents[2] / "examples" / "replay" / "rollouts.jsonl"


def rollout(name, reward, old, new=None, *, group="q", step=1, status=Status.ANSWERED, **fields):
    """One policy span for each list in ``old``, an observation of two tokens between them; ``fields`` go to spans."""
    spans = [Span(SpanKind.PROMPT, [1, 2, 3])]
    for i, values in enumerate(old):
        if i:
            spans.append(Span(SpanKind.OBSERVATION, [8, 9]))
        own = {key: lists[i] for key, lists in fields.items()}
        news = None if new is None else new[i]
        spans.append(Span(SpanKind.POLICY, [5] * len(values), old_logprobs=values, new_logprobs=news, **own))
    return Trajectory(name, group, "?", ["a"], spans, step=step, reward=reward, status=status)


def pair(**changes):
    """Two rollouts of three and one policy tokens, right and wrong."""
    return [rollout("a", 1.0, [[-1.0, -0.5], [-0.2]]), replace(rollout("b", 0.0, [[-0.7]]), **changes)]


def values(result: Replay, field: str) -> list[float]:
    return [x for r in result.rollouts for span in r.spans for x in getattr(span, field)]


def example():
    return list(read_rollouts(EXAMPLE))


def with_field(trajectories, field, value):
    for t in trajectories:
        for span in t.policy_spans:
            setattr(span, field, value(span))
    return trajectories


# Numbers worked by hand -----------------------------------------------------------------------------------------------


def test_grpo_on_policy_is_minus_the_advantage_over_the_tokens():
    result = replay(pair(), resolve("grpo", {"grpo": {"eps": 0.0}}))
    # Rewards 1 and 0: mean 0.5, sample deviation 1/√2, advantages ±1/√2; four tokens, each ratio is 1.
    a = 1 / math.sqrt(2)
    first, second = result.rollouts
    assert [span.span for span in first.spans] == [1, 3]
    assert first.spans[0].advantages == pytest.approx([a, a], rel=1e-12)
    assert first.spans[1].advantages == pytest.approx([a], rel=1e-12)
    assert second.spans[0].advantages == pytest.approx([-a], rel=1e-12)
    for field in ("loss", "grad"):
        assert values(result, field) == pytest.approx([-a / 4, -a / 4, -a / 4, a / 4], rel=1e-12)
    assert result.loss == pytest.approx(-a / 2, rel=1e-12)
    assert result.stats["new_source"] == "on_policy"


def test_a_moved_policy_is_clipped_where_the_advantage_pushes_further():
    up, down = math.log(1.5), math.log(0.5)
    batch = [
        rollout("a", 1.0, [[-2.0, -1.0]], [[-2.0 + up, -1.0 + down]]),
        rollout("b", 0.0, [[-2.0, -1.0]], [[-2.0 + up, -1.0 + down]]),
    ]
    result = replay(batch, resolve("grpo", {"grpo": {"eps": 0.0}}))
    a = 1 / math.sqrt(2)
    # Good rollout: 1.5 is clipped to 1.2, 0.5 stands. Bad one: 1.5 stands, 0.5 is clipped to 0.8.
    assert values(result, "loss") == pytest.approx([-1.2 * a / 4, -0.5 * a / 4, 1.5 * a / 4, 0.8 * a / 4], rel=1e-12)
    assert values(result, "grad") == pytest.approx([0.0, -0.5 * a / 4, 1.5 * a / 4, 0.0], rel=1e-12, abs=0)
    assert result.stats["ratio/clipped"] == 0.5
    assert result.stats["ratio/mean"] == pytest.approx(1.0)


def test_copies_of_mixed_groups_weigh_on_the_rollouts_that_they_are_copies_of():
    def group(name, rewards, step=1):
        return [
            rollout(f"{name}{i}", reward, [[-1.0, -0.5], [-0.3]], [[-1.1, -0.7], [-0.1 * i]], group=name, step=step)
            for i, reward in enumerate(rewards)
        ]

    batch = [*group("a", [1.0, 1.0]), *group("b", [1.0, 0.0]), *group("c", [0.0, 1.0])]
    copying = resolve("dapo", {"dapo": {"zero_variance": "copy"}})
    result = replay(batch, copying)
    assert (result.stats["replaced_rollouts"], result.stats["masked_rollouts"], result.stats["tokens"]) == (2, 0, 18)
    assert values(result, "loss")[:6] == values(result, "grad")[:6] == [0.0] * 6

    grads = values(result, "grad")
    masked = values(replay(batch, resolve("dapo")), "grad")  # over 12 tokens instead of 18
    weights = {round(g / m * 18 / 12, 9) for g, m in zip(grads[6:], masked[6:], strict=True) if m}
    assert weights == {1.0, 2.0}
    assert sum(values(result, "loss")) == pytest.approx(result.loss, rel=1e-12)
    assert values(replay(batch, copying), "grad") == grads


def test_sspo_weighs_wrong_rollouts_by_the_teacher_in_the_file():
    batch = [
        rollout("a", 1.0, [[-1.0], [-1.0]], teacher_logprobs=[[-9.0], [-9.0]]),
        rollout("b", 0.0, [[-1.0, -0.5], [-0.4]], teacher_logprobs=[[-0.8, -0.2], [-3.4]]),
    ]
    result = replay(batch, resolve("sspo", {"grpo": {"eps": 0.0}}))
    a = 1 / math.sqrt(2)
    # Wrong rollout: Δ is 0.5 in its first step, -3 in its second, where exp(3) meets the cap of 1.2.
    low = -a * math.exp(-0.5)
    assert values(result, "advantages") == pytest.approx([a, a, low, low, -1.2 * a], rel=1e-12)


def test_llds_with_ma_takes_answer_tokens_and_searches_from_the_rollout():
    parts = [[Part(PartKind.THINK, 0, 1), Part(PartKind.ANSWER, 1, 2)]]
    batch = [
        replace(rollout("a", 1.0, [[-1.0, -1.0]], [[-1.5, -1.5]], parts=parts), answer="x", counts={"searches": 1}),
        rollout("b", 0.0, [[-1.0]], [[-1.0]]),
    ]
    terms = [
        replay(batch, resolve("llds", {"llds": {"ma": ma, "weight": 1.0}})).stats["term/llds"] for ma in (False, True)
    ]
    # 0.5 nats lost at each of two protected tokens; one search of two halves the answer's.
    assert terms == pytest.approx([0.5, 0.375])


# Contracts ------------------------------------------------------------------------------------------------------------


def settings_of(name):
    """``gspo``'s own clip is so narrow that all of the example lies outside of it."""
    return {"dr_grpo": {"aggregation": {"max_length": 256}}, "gspo": {"gspo": {"clip_low": 0.5, "clip_high": 0.5}}}.get(
        name, {}
    )


REPLAYABLE = [name for name in names() if name != "entropy"]


@pytest.mark.parametrize("name", REPLAYABLE)
def test_losses_of_tokens_sum_to_the_loss_in_file_order_span_by_span(name):
    batch = example()
    with_field(batch, "teacher_logprobs", lambda span: [x + 0.1 for x in span.old_logprobs])
    with_field(batch, "ref_logprobs", lambda span: [x - 0.1 for x in span.old_logprobs])
    result = replay(batch, resolve(name, settings_of(name)))
    assert math.fsum(values(result, "loss")) == pytest.approx(result.loss, rel=1e-12, abs=1e-15)
    assert [r.id for r in result.rollouts] == [t.id for t in batch]
    for t, r in zip(batch, result.rollouts, strict=True):
        assert [span.span for span in r.spans] == [i for i, s in enumerate(t.spans) if s.kind is SpanKind.POLICY]
        for span in r.spans:
            n = len(t.spans[span.span].ids)
            assert len(span.advantages) == len(span.loss) == len(span.grad) == n
    assert any(values(result, "grad"))


@pytest.mark.parametrize("name", ["grpo", "calibadv+search_sapo", "soft_sapo+llds"])
def test_the_gradient_is_the_slope_of_the_loss(name):
    objective, h = resolve(name), 1e-6
    slopes = []
    for row, turn, token in [(0, 0, 2), (2, 1, 0), (6, 0, 5)]:
        losses = []
        for sign in (1, -1):
            batch = example()
            batch[row].policy_spans[turn].new_logprobs[token] += sign * h
            losses.append(replay(batch, objective).loss)
        grad = replay(example(), objective).rollouts[row].spans[turn].grad[token]
        slopes.append(grad)
        assert (losses[0] - losses[1]) / (2 * h) == pytest.approx(grad, rel=1e-4, abs=1e-8)
    assert any(slopes)


def test_the_order_of_the_file_changes_nothing_but_the_order():
    batch = example()
    whole = replay(batch, resolve("signbalance+calibadv"))
    turned = replay(batch[::-1], resolve("signbalance+calibadv"))
    assert turned.loss == pytest.approx(whole.loss, rel=1e-12)
    for a, b in zip(whole.rollouts, turned.rollouts[::-1], strict=True):
        assert a.id == b.id
        for x, y in zip(a.spans, b.spans, strict=True):
            assert x.grad == pytest.approx(y.grad, rel=1e-12, abs=1e-18)


def test_groups_of_two_steps_with_one_name_are_two_groups():
    old = [[-1.0]]
    batch = [
        rollout("a", 1.0, old),
        rollout("b", 1.0, old),
        rollout("a", 0.0, old, step=2),
        rollout("b", 0.0, old, step=2),
    ]
    result = replay(batch, resolve("grpo"))
    assert values(result, "advantages") == [0.0] * 4
    assert result.stats["groups"] == result.stats["zero_variance_groups"] == 2


def test_a_failed_rollout_has_no_part_in_anything():
    sound = replay(pair(), resolve("grpo"))
    broken = rollout("c", None, [[-1.0, -1.0]], status=Status.RETRIEVER_FAILED)
    broken.policy_spans[0].old_logprobs = None
    result = replay([*pair(), broken], resolve("grpo"))
    assert result.rollouts[:2] == sound.rollouts
    assert result.rollouts[2].spans == [SpanReplay(1, [0.0, 0.0], [0.0, 0.0], [0.0, 0.0])]
    assert (result.stats["failed_rollouts"], result.stats["tokens"]) == (1, 4)
    assert result.notes == ()


def test_one_sound_rollout_beside_failed_ones_gets_zero():
    result = replay(pair(status=Status.ABORTED, reward=None), resolve("grpo"))
    assert (result.loss, values(result, "grad")) == (0.0, [0.0] * 4)


def test_the_samplers_log_probs_stand_in_and_it_says_so():
    batch = with_field(pair(), "logprobs", lambda span: list(span.old_logprobs))
    assert replay(batch, resolve("grpo")).stats["old_source"] == "old_logprobs"
    batch[0].policy_spans[0].old_logprobs = None
    mixed = replay(batch, resolve("grpo"))
    assert mixed.stats["old_source"] == "mixed"
    assert "1 of 3 policy spans have no old_logprobs" in mixed.notes[0]
    with_field(batch, "old_logprobs", lambda span: None)
    result = replay(batch, resolve("grpo"))
    assert result.stats["old_source"] == "logprobs"
    assert result.loss == replay(pair(), resolve("grpo")).loss


def test_tokens_without_a_finite_log_prob_are_dropped_and_counted():
    batch = pair()
    batch[0].policy_spans[0].old_logprobs[0] = -math.inf
    result = replay(batch, resolve("grpo"))
    assert result.stats["dropped_tokens"] == 1
    assert result.rollouts[0].spans[0].grad[0] == 0.0
    assert math.isfinite(result.loss)
    assert "1 log-probs are NaN or infinite: their tokens count in nothing, as in training" in result.notes


def test_dapo_leaves_groups_without_signal_out_of_every_count():
    same = [rollout(name, 1.0, [[-1.0]], group="easy") for name in "cd"]
    result = replay([*pair(), *same], resolve("dapo"))
    assert result.loss == replay(pair(), resolve("dapo")).loss
    assert result.stats["masked_rollouts"] == 2


# What can't be replayed -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"group": "other"}, 'group: "q" of step 1 has this rollout alone'),
        ({"reward": None}, "reward: missing"),
        ({"reward": math.nan}, "reward: nan is no finite number"),
        ({"reward": math.inf}, "reward: inf is no finite number"),
    ],
)
def test_a_rollout_that_does_not_fit_is_named_by_row_and_field(changes, message):
    with pytest.raises(UnfitRollout) as caught:
        replay(pair(**changes), resolve("grpo"))
    assert str(caught.value).startswith(message)
    assert caught.value.row == (0 if "group" in changes else 1)


def test_a_span_without_any_log_probs_is_named():
    batch = pair()
    batch[0].spans[3].old_logprobs = None
    with pytest.raises(UnfitRollout, match=r"spans\[3\]\.old_logprobs: missing") as caught:
        replay(batch, resolve("grpo"))
    assert caught.value.row == 0


def test_what_an_objective_needs_beyond_that_is_asked_for():
    with pytest.raises(UnfitRollout, match=r"spans\[1\]\.ref_logprobs: missing"):
        replay(pair(), resolve("reference_kl"))
    with pytest.raises(UnfitRollout, match=r"spans\[1\]\.parts: no part is the answer"):
        replay(pair(answer="x"), resolve("llds", {"llds": {"ma": True}}))
    with pytest.raises(UserError, match="teacher_logprobs"):
        replay(pair(), resolve("sspo"))
    with pytest.raises(UserError, match="entropy needs the policy's whole distribution"):
        replay(pair(), resolve("entropy"))
    with pytest.raises(UserError, match="no rollouts"):
        replay([], resolve("grpo"))


# Differences ----------------------------------------------------------------------------------------------------------


def of_gradient(name, grad):
    zeros = [0.0] * len(grad)
    return Replay(name, 0.0, {}, [RolloutReplay("r", [SpanReplay(1, zeros, zeros, list(grad))])])


def test_differences_by_hand():
    a, b, c = (
        of_gradient("a", [3.0, 4.0, 0.0, 0.0]),
        of_gradient("b", [4.0, -3.0, 0.0, 0.0]),
        of_gradient("c", [0.0] * 4),
    )
    ab, ac, bc = gradient_differences([a, b, c])
    assert (ab.a, ab.b) == ("a", "b")
    assert (ab.cosine, ab.norm_ratio, ab.sign_differs) == (pytest.approx(0.0), pytest.approx(1.0), 0.5)
    assert (ac.cosine, ac.norm_ratio, ac.sign_differs) == (None, 0.0, 1.0)
    assert (bc.a, bc.b) == ("b", "c")
    with pytest.raises(ValueError, match="different rollouts"):
        gradient_differences([a, of_gradient("d", [1.0])])


def test_rloo_and_dr_grpo_differ_by_a_factor_alone():
    settings = {"aggregation": {"max_length": 256}}
    both = [replay(example(), resolve(name, settings, "sum_over_max_length")) for name in ("dr_grpo", "rloo")]
    (difference,) = gradient_differences(both)
    assert difference.cosine == pytest.approx(1.0)
    assert difference.norm_ratio == pytest.approx(4 / 3)
    assert difference.sign_differs == 0.0


def test_the_example_has_drifted_in_both_directions():
    ratios = [
        math.exp(n - o)
        for t in example()
        for span in t.policy_spans
        for n, o in zip(span.new_logprobs, span.old_logprobs, strict=True)
    ]
    assert torch.tensor(ratios).min() < 0.9
    assert torch.tensor(ratios).max() > 1.1
