import math
import sys

import pytest
from pydantic import ValidationError

from sleuth.errors import UserError
from sleuth.rewards.reward import Reward, RewardSettings, score
from sleuth.types import Span, SpanKind, Status, Trajectory


def rollout(answer="Paris", *, status=Status.ANSWERED, golds=("Paris",), searches=2, format_valid=True):
    spans = [
        Span(SpanKind.PROMPT, [1, 2], text="Question: <answer>Paris</answer>"),
        Span(SpanKind.POLICY, [3, 4, 5], text="<search>capital</search>"),
        Span(SpanKind.OBSERVATION, [6], text="<information><answer>Paris</answer></information>"),
        Span(SpanKind.POLICY, [7, 8], text="<answer>…</answer>"),
    ]
    counts = {"searches": searches}
    return Trajectory(
        "r", "q", "?", list(golds), spans, answer=answer, status=status, format_valid=format_valid, counts=counts
    )


def reward_of(trajectory, settings=None):
    Reward(settings)([trajectory])
    return trajectory.reward


@pytest.fixture
def own_module(tmp_path, monkeypatch):
    """Writes a user's module into the working directory and gives the name of its function."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "own_reward", raising=False)

    def write(source):
        (tmp_path / "own_reward.py").write_text(source)
        return "own_reward:f"

    yield write
    sys.modules.pop("own_reward", None)


def test_default_is_exact_match():
    assert reward_of(rollout("the Paris!")) == 1.0
    assert reward_of(rollout("Paris, France")) == 0.0


def test_components_are_kept_unweighted():
    trajectory = rollout("Paris, France")
    Reward()([trajectory])
    assert trajectory.rewards == {
        "em": 0.0,
        "f1": pytest.approx(2 / 3),
        "cover_em": 1.0,
        "format": 1.0,
        "searches": 2.0,
        "policy_tokens": 5.0,
    }


def test_reward_is_the_weighted_sum_minus_costs():
    settings = RewardSettings(em=0, f1=3, cover_em=0.5, format=0.2, search_cost=0.1, token_cost=0.01)
    assert reward_of(rollout("Paris, France"), settings) == pytest.approx(3 * 2 / 3 + 0.5 + 0.2 - 0.2 - 0.05)


def test_grader_is_a_setting():
    assert reward_of(rollout("-5", golds=["5"])) == 1.0
    assert reward_of(rollout("-5", golds=["5"]), RewardSettings(grader="robust")) == 0.0


@pytest.mark.parametrize("status", [Status.NO_ANSWER, Status.TRUNCATED])
def test_no_answer_is_wrong_whatever_the_spans_say(status):
    assert reward_of(rollout(None, status=status)) == 0.0


@pytest.mark.parametrize("status", [Status.RETRIEVER_FAILED, Status.ABORTED])
def test_failed_rollout_gets_no_reward(status):
    trajectory = rollout(status=status)
    trajectory.reward, trajectory.rewards = 1.0, {"em": 1.0}
    assert reward_of(trajectory) is None
    assert trajectory.rewards == {}


def test_valid_format_is_a_component_and_never_rescales_the_outcome():
    assert reward_of(rollout(format_valid=False)) == 1.0
    assert reward_of(rollout(format_valid=False), RewardSettings(format=0.2)) == 1.0
    assert reward_of(rollout(format_valid=True), RewardSettings(format=0.2)) == 1.2


def test_text_of_spans_is_never_read():
    one, other = rollout("Rome"), rollout("Rome")
    for span in other.spans:
        span.text = "<answer>Paris</answer>"
    assert score(one, "squad") == score(other, "squad")


def test_equal_rollouts_get_exactly_equal_rewards():
    settings = RewardSettings(em=0.1, f1=0.7, format=0.3, search_cost=0.1)
    assert len({reward_of(rollout("Paris, France"), settings) for _ in range(8)}) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"emm": 1.0},
        {"grader": "exact"},
        {"search_cost": -0.1},
        {"f1": math.nan},
        {"em": 0},
        {"function": "m:f", "f1": 1.0},
    ],
    ids=str,
)
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(ValidationError):
        RewardSettings(**wrong)


def test_own_function_may_return_a_number(own_module):
    name = own_module("def f(t):\n    return 1 / t.policy_tokens\n")
    trajectory = rollout("Rome")
    assert reward_of(trajectory, name) == 0.2
    assert trajectory.rewards["em"] == 0.0


def test_own_function_may_return_components(own_module):
    name = own_module('def f(t):\n    return {"reward": 0.5, "brevity": 1}\n')
    trajectory = rollout()
    assert reward_of(trajectory, RewardSettings(function=name)) == 0.5
    assert trajectory.rewards["brevity"] == 1.0
    assert trajectory.rewards["em"] == 1.0
    assert "reward" not in trajectory.rewards


def test_own_function_is_not_asked_about_failed_rollouts(own_module):
    name = own_module("def f(t):\n    raise AssertionError\n")
    assert reward_of(rollout(status=Status.RETRIEVER_FAILED), name) is None


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("raise KeyError('x')", r"raised KeyError: 'x' \(.*own_reward\.py:2\)"),
        ("return None", "reward is None; return a number"),
        ("return '1.0'", "reward is '1.0'; return a number"),
        ("return float('nan')", "reward is nan; return a finite number"),
        ("return {'em': 1.0}", 'without "reward"'),
        ("return {'reward': 1.0, 'x': float('inf')}", "x is inf"),
    ],
)
def test_broken_own_function_is_named_with_the_rollout(own_module, body, message):
    name = own_module(f"def f(t):\n    {body}\n")
    with pytest.raises(UserError, match=f"reward own_reward:f, rollout r.*{message}"):
        reward_of(rollout(), name)


def test_own_name_that_is_no_function_is_refused(own_module):
    with pytest.raises(UserError, match="not callable"):
        Reward(own_module("f = 1\n"))
