import pytest
import torch

from sleuth.diagnostics.names import is_known
from sleuth.objectives import resolve
from sleuth.objectives.credit import assign_credit
from sleuth.types import Action, ActionType, Document, Span, SpanKind, Status, Trajectory

REWARDS = [1.0, 1.0, 1.0, 0.0, 0.0]  # a group without signal, one with, and a failed rollout in it
GROUPS = torch.tensor([0, 0, 1, 1, 1])
VALID = torch.tensor([True, True, True, True, False])


def searched(row, reward, documents=("a", "b"), *, teacher=None, status=Status.ANSWERED):
    """A search of two tokens and an answer of one."""
    spans = [
        Span(SpanKind.PROMPT, [1]),
        Span(SpanKind.POLICY, [2, 2], action=Action(ActionType.SEARCH, query="q"), old_logprobs=[-1.0, -1.0]),
        Span(SpanKind.OBSERVATION, [3], documents=[Document(d, "") for d in documents]),
        Span(SpanKind.POLICY, [4], action=Action(ActionType.ANSWER, text="x"), old_logprobs=[-1.0]),
    ]
    if teacher is not None:
        spans[1].teacher_logprobs, spans[3].teacher_logprobs = [teacher, teacher], [teacher]
    return Trajectory(str(row), "", "", [], spans, answer="x", status=status, format_valid=True, reward=reward)


def credit(objective, trajectories=None, **settings):
    if trajectories is None:
        status = [Status.ANSWERED if ok else Status.RETRIEVER_FAILED for ok in VALID]
        trajectories = [searched(i, r, status=s) for i, (r, s) in enumerate(zip(REWARDS, status, strict=True))]
    mask = torch.tensor([[1, 1, 0, 1]] * 5)
    return assign_credit(resolve(objective, **settings), torch.tensor(REWARDS), GROUPS, VALID, mask, trajectories)


def test_one_advantage_a_rollout_without_reshapes():
    found = credit("dr_grpo", aggregation="token_mean")
    assert found.rollouts.tolist() == [0, 0, 0.5, -0.5, 0]
    assert found.tokens.tolist() == [[x] * 4 for x in found.rollouts.tolist()]
    assert found.statistics == {
        "zero_variance_groups": 1,
        "masked_rollouts": 0,
        "replaced_rollouts": 0,
        "advantage/pos_mean": 0.5,
        "advantage/pos_max": 0.5,
        "advantage/neg_mean": 0.5,
        "advantage/neg_max": 0.5,
    }


def test_lengths_that_signbalance_balances_are_those_of_sound_rollouts():
    found = credit("signbalance", parameters={"signbalance": {"all_correct": "c"}})
    assert found.rollouts.tolist() == [1, 1, 1, -1, 0]
    # a copy of the tensors, in case somebody writes into them
    found.tokens[0, 0] = 5
    assert found.rollouts[0] == 1


@pytest.mark.parametrize(
    ("choice", "kept", "rows", "masked", "replaced"),
    [
        ("keep", [True, True, True, True, False], [0, 1, 2, 3, 4], 0, 0),
        ("mask", [False, False, True, True, False], [0, 1, 2, 3, 4], 2, 0),
        ("copy", [False, False, True, True, False], [0, 1, 2, 3, 4], 2, 0),  # no other group of two
    ],
)
def test_groups_without_signal(choice, kept, rows, masked, replaced):
    found = credit("dapo", parameters={"dapo": {"zero_variance": choice}})
    assert found.kept.tolist() == kept
    assert found.rows.tolist() == rows
    assert (found.statistics["masked_rollouts"], found.statistics["replaced_rollouts"]) == (masked, replaced)


def test_copies_take_the_places_of_groups_without_signal():
    objective = resolve("dapo", {"dapo": {"zero_variance": "copy"}})
    trajectories = [searched(i, r) for i, r in enumerate([1.0, 1.0, 1.0, 0.0])]
    rewards, groups = torch.tensor([1.0, 1.0, 1.0, 0.0]), torch.tensor([0, 0, 1, 1])
    valid, mask = torch.ones(4, dtype=torch.bool), torch.tensor([[1, 1, 0, 1]] * 4)
    found = assign_credit(objective, rewards, groups, valid, mask, trajectories)
    assert found.rows.tolist() == [2, 3, 2, 3]
    assert found.kept[found.rows].all()
    assert found.rollouts[found.rows].tolist() == pytest.approx([0.7071, -0.7071] * 2, rel=1e-4)
    assert found.statistics["replaced_rollouts"] == 2
    assert found.statistics["masked_rollouts"] == 0


def test_reshapes_tell_under_their_names():
    trajectories = [
        searched(0, 1.0),
        searched(1, 1.0),
        searched(2, 1.0, "ab"),
        searched(3, 0.0, "ax", teacher=-1.5),
        searched(4, 0.0, status=Status.RETRIEVER_FAILED),
    ]
    statistics = credit("sspo+calibadv", trajectories).statistics
    assert statistics["sspo/unscored"] == 0
    assert statistics["sspo/capped"] == 1  # both steps of the wrong rollout
    assert statistics["calibadv/softened"] == 1 / 4  # of the four searches of sound rollouts
    assert statistics["calibadv/penalty"] == 1 / 2  # the wrong one keeps half: one of its two documents is silver
    assert [name for name in statistics if not is_known(name)] == []
