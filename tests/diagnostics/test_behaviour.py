import random

import numpy as np
import pytest

from sleuth.diagnostics.behaviour import MIN_NGRAMS, behaviour, degenerate, repetition
from sleuth.diagnostics.names import is_known
from sleuth.types import STATUS_OF, EndReason, Span, SpanKind, Trajectory


def _trajectory(end=EndReason.ANSWER, reward=1.0, searches=1, turns=((3, 4, 5),), **counts):
    spans = [Span(SpanKind.PROMPT, [1, 2])]
    for ids in turns:
        spans += [Span(SpanKind.POLICY, list(ids), logprobs=[0.0] * len(ids)), Span(SpanKind.OBSERVATION, [7] * 60)]
    status = STATUS_OF[end]
    return Trajectory(
        "a", "g", "q", ["x"], spans, status=status, end=end, reward=reward, rewards={"em": reward or 0.0},
        counts={"searches": searches, **counts},
    )  # fmt: skip


def test_failed_rollouts_are_counted_and_left_out_of_the_means():
    batch = [_trajectory(reward=1.0), _trajectory(reward=0.0), _trajectory(EndReason.RETRIEVER_FAILED, None, 9)]
    metrics = behaviour(batch)
    assert metrics["reward"] == 0.5
    assert metrics["searches"] == 1
    assert metrics["share/retriever_failed"] == pytest.approx(1 / 3)


def test_truncated_is_not_the_same_as_wrong():
    metrics = behaviour([_trajectory(EndReason.MAX_TOKENS, 0.0), _trajectory()])
    assert metrics["share/truncated"] == 0.5
    assert metrics["share/answered"] == 0.5


def test_a_batch_of_failures_has_shares_and_nothing_else():
    metrics = behaviour([_trajectory(EndReason.ABORTED, None)])
    assert metrics["share/aborted"] == 1
    assert "reward" not in metrics


def test_rollouts_that_nobody_graded_have_no_reward():
    metrics = behaviour([_trajectory(reward=None), _trajectory(reward=None)])
    assert "reward" not in metrics
    assert metrics["format"] == 0


def test_no_rollouts_at_all_break_nothing():
    assert set(behaviour([]).values()) == {0.0}


def test_repeated_queries_have_a_name_of_their_own():
    metrics = behaviour([_trajectory(repeated_queries=2, invalid_actions=1), _trajectory()])
    assert metrics["repeated_queries"] == 1
    assert metrics["events/invalid_actions"] == 0.5
    assert "events/repeated_queries" not in metrics


def test_a_reward_component_can_not_take_the_name_of_a_count():
    trajectory = _trajectory(searches=3)
    trajectory.rewards["searches"] = -0.3
    assert behaviour([trajectory])["searches"] == 3


def test_every_name_is_in_the_catalogue():
    metrics = behaviour([_trajectory(repeated_queries=2, invalid_actions=1)])
    assert [name for name in metrics if not is_known(name)] == []


def test_a_turn_that_says_one_thing_over_and_over_is_degenerate():
    loop = [5, 6, 7] * 10
    plain = list(range(10, 40))
    batch = [_trajectory(turns=[plain, loop]), _trajectory(turns=[plain, plain]), _trajectory(turns=[loop[:12]])]
    # The second says the same in two turns, which is no loop; the third is too short to tell.
    assert degenerate(batch).tolist() == [True, False, False]
    assert behaviour(batch)["degenerate"] == pytest.approx(1 / 3)


def test_passages_and_prompts_that_repeat_themselves_are_not_the_policys():
    assert not degenerate([_trajectory(turns=[range(10, 40)])]).any()


def test_a_turn_counts_as_degenerate_from_half_of_its_ngrams_on():
    once = list(range(100, 100 + MIN_NGRAMS + 3))
    assert not degenerate([_trajectory(turns=[once])]).any()
    # The first 4-gram, then 2·MIN copies of it: all but one are repeats.
    assert degenerate([_trajectory(turns=[[9] * (MIN_NGRAMS + 3)])]).all()
    assert not degenerate([_trajectory(turns=[[9] * (MIN_NGRAMS + 2)])]).any()


def test_repetition_counts_what_a_set_of_ngrams_counts():
    rng = random.Random(0)
    spans = [Span(SpanKind.POLICY, [rng.randrange(3) for _ in range(rng.randrange(40))]) for _ in range(50)]
    repeated, ngrams = repetition(spans)
    for span, again, n in zip(spans, repeated, ngrams, strict=True):
        grams = [tuple(span.ids[i : i + 4]) for i in range(len(span.ids) - 3)]
        assert (again, n) == (len(grams) - len(set(grams)), len(grams))


def test_repetition_of_nothing_is_nothing():
    repeated, ngrams = repetition([Span(SpanKind.POLICY, []), Span(SpanKind.POLICY, [1, 2, 3])])
    assert repeated.tolist() == ngrams.tolist() == [0, 0]
    assert np.array_equal(degenerate([_trajectory(turns=[])]), [False])
