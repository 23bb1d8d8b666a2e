"""Why a rollout got its reward."""

import copy

from sleuth.report.explain import Rewarding, explain, problems
from sleuth.rewards.reward import Reward, RewardSettings
from sleuth.types import Action, ActionType, EndReason, Problem, Status, StopReason


def test_weighted_components_sum_up_to_the_reward(example):
    settings = RewardSettings(em=1.0, f1=0.5, search_cost=0.1)
    rollouts = copy.deepcopy(example)
    Reward(settings)(rollouts)
    for rollout in rollouts:
        components = explain(rollout, Rewarding.of(settings))["components"]
        assert abs(sum(value * weight for _, value, weight in components) - rollout.reward) < 1e-9


def test_answers_are_shown_as_the_grader_compares_them(example):
    rollout = copy.deepcopy(example[0])
    rollout.answer, rollout.golden_answers = "The  Paris!", ["paris", "Rome"]
    why = explain(rollout, Rewarding())
    assert why["answer"] == "paris"
    assert why["golden"] == [["paris", "paris", True], ["Rome", "rome", False]]


def test_a_users_own_reward_has_no_weights():
    assert Rewarding.of(RewardSettings(function="mine:reward")) == Rewarding("squad", None, "mine:reward")
    assert Rewarding.of("mine:reward").function == "mine:reward"


def test_every_format_problem_is_a_sentence_with_its_turn(example):
    rollout = copy.deepcopy(example[0])
    assert problems(rollout) == []
    first, last = rollout.policy_spans[0], rollout.policy_spans[-1]
    first.action = Action(ActionType.INVALID, problem=Problem.EMPTY_QUERY)
    last.stop = StopReason.LENGTH
    rollout.counts["malformed_tags"] = 2
    rollout.format_valid = False
    assert problems(rollout) == [
        "Turn 1: a search for nothing.",
        f"Turn {len(rollout.policy_spans)}: cut at its {len(last.ids)} tokens.",
        "2 × malformed tags.",
    ]


def test_an_invalid_format_without_a_reason_says_so(example):
    rollout = copy.deepcopy(example[0])
    rollout.format_valid = False
    assert "doesn't say why" in problems(rollout)[0]


def test_every_end_has_a_sentence(example):
    rollout = copy.deepcopy(example[0])
    for end in EndReason:
        rollout.end, rollout.status = end, Status.ANSWERED
        assert explain(rollout, Rewarding())["end"].endswith(".")
