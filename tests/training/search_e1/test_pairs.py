import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleuth.errors import UserError
from sleuth.training.search_e1.pairs import Attempt, Dropped, choose, mine
from sleuth.training.search_e1.settings import PairSettings
from sleuth.types import Action, ActionType, Span, SpanKind, Status, Trajectory

POOL = {
    "a": Attempt(True, 3, 420),
    "b": Attempt(True, 1, 260),
    "c": Attempt(False, 2, 300),
    "d": Attempt(False, 4, 610),
    "e": Attempt(True, 1, 240),
}


def chosen(names, **settings):
    result = choose([POOL[n] for n in names], PairSettings(**settings))
    return result if isinstance(result, Dropped) else (names[result[0]], names[result[1]])


@pytest.mark.parametrize(
    ("names", "pair"),
    [("abcde", ("e", "d")), ("abe", ("e", "a")), ("cd", Dropped.ALL_WRONG), ("be", Dropped.ALL_ALIKE)],
)
def test_the_worked_pools(names, pair):
    assert chosen(names) == pair


def test_one_right_and_the_rest_wrong_is_a_pair():
    assert chosen("acd") == ("a", "d")


def test_of_wrong_ones_the_furthest_in_searches_counts_and_then_the_longest():
    reference = Attempt(True, 2, 10)
    few, many, long = Attempt(False, 0, 5), Attempt(False, 3, 50), Attempt(False, 4, 7)
    assert choose([reference, few, many]) == (0, 1)
    assert choose([reference, few, long]) == (0, 2)
    assert choose([reference, few, many], PairSettings(contrast="longest")) == (0, 2)


def test_equals_go_to_the_first():
    right, wrong = Attempt(True, 1, 10), Attempt(False, 2, 20)
    assert choose([right, wrong, right, wrong]) == (0, 1)


@pytest.mark.parametrize(
    ("settings", "pair"),
    [
        ({"all_correct": "longest"}, ("e", "a")),
        ({"all_correct": "drop"}, Dropped.ALL_ALIKE),
        ({"reference": "tokens"}, ("e", "a")),
    ],
)
def test_switches_for_what_the_paper_leaves_open(settings, pair):
    assert chosen("abe", **settings) == pair


def test_the_longest_right_one_must_be_longer_than_the_reference():
    assert choose([Attempt(True, 1, 10), Attempt(True, 1, 10)], PairSettings(all_correct="longest")) == "all_alike"


def test_a_reference_without_a_search_can_be_kept_out():
    lucky, wrong = Attempt(True, 0, 5), Attempt(False, 2, 20)
    assert choose([lucky, wrong]) == (0, 1)
    assert choose([lucky, wrong], PairSettings(reference_without_search=False)) == Dropped.NO_SEARCH


def test_a_single_rollout_makes_no_pair():
    assert choose([Attempt(True, 1, 5)]) == Dropped.TOO_FEW
    assert choose([]) == Dropped.TOO_FEW


@given(st.lists(st.builds(Attempt, st.booleans(), st.integers(0, 5), st.integers(1, 50)), max_size=7))
def test_a_pair_is_a_right_one_with_fewest_searches_and_another(attempts):
    result = choose(attempts)
    if isinstance(result, Dropped):
        assert len(attempts) < 2 or not any(a.correct for a in attempts) or all(a.correct for a in attempts)
        return
    reference, student = result
    assert reference != student
    assert attempts[reference].correct
    assert attempts[reference].searches == min(a.searches for a in attempts if a.correct)
    if any(not a.correct for a in attempts):
        assert not attempts[student].correct


def rollout(question, k, em, searches, tokens, status=Status.ANSWERED):
    span = Span(SpanKind.POLICY, list(range(tokens)), action=Action(ActionType.ANSWER, text="x"))
    spans = [Span(SpanKind.PROMPT, [1]), span] if tokens else [Span(SpanKind.PROMPT, [1])]
    return Trajectory(
        f"{question}-{k}",
        question,
        "q?",
        ["x"],
        spans,
        status=status,
        counts={"searches": searches},
        rewards={"em": em},
    )


def test_a_pool_gives_at_most_one_pair_a_question_and_says_why_not():
    pool = [
        *(rollout("q1", k, em, s, t) for k, (em, s, t) in enumerate([(1.0, 3, 42), (1.0, 1, 26), (0.0, 4, 61)])),
        *(rollout("q2", k, 0.0, 1, 5) for k in range(3)),
        *(rollout("q3", k, 1.0, 1, 5) for k in range(3)),
        rollout("q4", 0, 1.0, 0, 4),
        rollout("q4", 1, 0.0, 2, 9, Status.RETRIEVER_FAILED),
        rollout("q4", 2, 0.0, 2, 0),
    ]
    mined = mine(pool)
    assert [(p.reference.id, p.student.id) for p in mined.pairs] == [("q1-1", "q1-2")]
    s = mined.statistics
    assert s["dropped"] == {"all_alike": 1, "all_wrong": 1, "too_few": 1}
    assert (s["questions"], s["pairs"], s["pairs_per_question"]) == (4, 1, 0.25)
    assert (s["reference_searches"], s["student_searches"]) == (1, 4)
    assert (s["reference_tokens"], s["student_tokens"]) == (26, 61)
    assert (s["share_student_wrong"], s["share_reference_without_search"]) == (1, 0)


def test_the_share_of_references_without_a_search_is_told():
    mined = mine([rollout("q1", 0, 1.0, 0, 4), rollout("q1", 1, 0.0, 2, 9)])
    assert mined.statistics["share_reference_without_search"] == 1


def test_rollouts_of_other_steps_are_other_questions():
    pool = [rollout("q1", 0, 1.0, 1, 4), dataclasses.replace(rollout("q1", 1, 0.0, 2, 9), step=7)]
    assert mine(pool).statistics["questions"] == 2


def test_another_measure_may_say_what_is_right():
    a, b = rollout("q1", 0, 0.0, 1, 4), rollout("q1", 1, 0.0, 2, 9)
    a.reward, b.reward = 0.9, 0.2
    (pair,) = mine([a, b], PairSettings(measure="reward", correct_at=0.5)).pairs
    assert (pair.reference.id, pair.student.id) == ("q1-0", "q1-1")
    with pytest.raises(UserError, match="nugget"):
        mine([a, b], PairSettings(measure="nugget"))


def test_an_empty_pool_has_no_pairs():
    assert mine([]).pairs == []
