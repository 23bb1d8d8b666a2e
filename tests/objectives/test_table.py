"""Names, settings and what is said about wrong ones."""

import subprocess
import sys

import pytest
import torch

from sleuth.errors import UserError
from sleuth.objectives import TABLE, build, names, resolve
from sleuth.objectives.credit import assign_credit
from sleuth.types import Action, ActionType, Document, Span, SpanKind, Status, Trajectory


@pytest.mark.parametrize(
    ("name", "parameters", "aggregation", "says"),
    [
        ("search_sapi", None, None, "did you mean search_sapo"),
        ("grop", None, None, "did you mean grpo"),
        ("grpo", {"grpo": {"clip": 0.1}}, None, "clip_low"),
        ("grpo", {"grpo": {"clip_low": "x"}}, None, "grpo.clip_low"),
        ("grpo", {"dapo": {}}, None, "dapo"),
        ("sapo", None, None, "search_sapo .* soft_sapo"),
        ("grpo+sapo", None, None, "search_sapo"),
        ("search_e1", None, None, "schedule"),
        ("rloo+signbalance", None, None, "rloo and signbalance both set the advantage"),
        ("grpo+signbalance", None, None, "grpo and signbalance both set the advantage"),
        ("gspo+llds+cispo", None, None, "gspo and cispo both set the surrogate"),
        ("llds+llds", None, None, "twice"),
        ("dr_grpo+dapo", None, None, "dr_grpo implies .* dapo token_mean; choose with aggregation="),
        ("search_sapo", {"search_sapo": {"beta": 1}}, None, "search_sapo.beta is no parameter.* gamma"),
        ("search_sapo", {"search_sapo": {"tau": -1}}, None, "search_sapo.tau"),
        ("search_sapo", {"search_sapo": {"preset": "code"}}, None, "search_sapo.preset='code'"),
        ("search_sapo", {"llds": {}}, None, "'llds'"),
        ("rloo", {"grpo": {"std": "population"}}, None, "grpo.std has no effect, since rloo sets the advantage"),
        ("grpo+gspo", {"grpo": {"clip_low": 0.1}}, None, "grpo.clip_low has no effect, since gspo sets the surrogate"),
        ("rloo", {"rloo": {"x": 1}}, None, "rloo has: none"),
        ("calibadv", {"calibadv": {"lamda": 1}}, None, "calibadv has: .*lambda,"),
        ("dr_grpo", None, None, "aggregation.max_length"),
        ("grpo", None, "sum_over_max_length", "needs aggregation.max_length"),
        ("grpo", {"aggregation": {"max_length": 0}}, "sum_over_max_length", "at least 1"),
        ("grpo", {"aggregation": {"max_length": 9}}, None, "max_length has no effect with token_mean"),
        ("grpo", {"aggregation": {"length": 9}}, None, "aggregation.length is no parameter"),
        ("grpo", None, "mean", "token_mean"),
        ("", None, None, "not known"),
    ],
)
def test_a_wrong_name_or_setting_says_what_to_write(name, parameters, aggregation, says):
    with pytest.raises(UserError, match=says) as error:
        resolve(name, parameters, aggregation)
    assert "\n" not in str(error.value)


def test_two_reference_kls_are_refused():
    with pytest.raises(UserError, match=r"reference_kl and trainer.kl_coefficient"):
        resolve("reference_kl", kl_coefficient=0.1)


def test_every_name_resolves_alone_and_is_complete():
    for name in names():
        needs = {"aggregation": {"max_length": 8}} if TABLE[name].aggregation == "sum_over_max_length" else {}
        assert resolve(name, needs).name == name
        entry = TABLE[name]
        assert all([entry.summary, entry.paper, entry.formula])
        assert all(field.description for field in entry.parameters.model_fields.values())


def test_the_table_is_read_without_torch():
    code = "import sys; from sleuth.objectives import SCHEDULES, TABLE; print(len(TABLE), 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(len(TABLE)), "False"]


def test_every_public_name_is_there():
    import sleuth.objectives

    for name in sleuth.objectives.__all__:
        assert getattr(sleuth.objectives, name) is not None
    assert set(sleuth.objectives.__all__) == set(sleuth.objectives._HOMES)
    with pytest.raises(AttributeError, match="conditional_kls"):
        _ = sleuth.objectives.conditional_kls


def test_the_table_and_the_makers_agree():
    makers = {
        "advantage": build.ADVANTAGES,
        "reshape": build.RESHAPES,
        "surrogate": build.SURROGATES,
        "term": build.TERMS,
    }
    for slot, table in makers.items():
        assert set(table) == {entry.name for entry in TABLE.values() if entry.slot == slot}


def test_parts_combine():
    objective = resolve(
        "signbalance + gspo + search_sapo + entropy", {"search_sapo": {"gamma": 0.3}}, "token_mean", 0.01
    )
    assert [(t.name, t.weight) for t in objective.terms] == [
        ("search_sapo", 0.3),
        ("entropy", 0.001),
        ("reference_kl", 0.01),
    ]
    assert objective.needs_drift == ("search_sapo",)


def test_plain_grpos_settings_hold_beside_a_term():
    objective = resolve("search_sapo", {"grpo": {"clip_low": 0.1, "std": "population"}})
    assert objective.surrogate.keywords["clip_low"] == 0.1


@pytest.mark.parametrize(
    ("name", "aggregation", "expected"),
    [
        ("grpo", None, "token_mean"),
        ("gspo", None, "token_mean"),
        ("dapo", None, "token_mean"),
        ("cispo", None, "token_mean"),
        ("dapo", "seq_mean_token_mean", "seq_mean_token_mean"),
        ("dr_grpo+dapo", "token_mean", "token_mean"),
    ],
)
def test_an_explicit_aggregation_wins_over_an_implied_one(name, aggregation, expected):
    assert resolve(name, aggregation=aggregation).aggregation.name == expected


def test_dr_grpo_implies_a_constant_length():
    aggregation = resolve("dr_grpo", {"aggregation": {"max_length": 512}}).aggregation
    assert (aggregation.name, aggregation.max_length) == ("sum_over_max_length", 512)


@pytest.mark.parametrize("name", ["search_sapo", "llds", "dapo+llds"])
def test_parts_that_work_on_drift_refuse_an_on_policy_set_up(name):
    with pytest.raises(UserError, match=r"trainer.updates_per_batch=1"):
        resolve(name).check_training(1)
    resolve(name).check_training(2)


@pytest.mark.parametrize("name", ["grpo", "gspo", "cispo", "signbalance", "calibadv", "sspo"])
def test_other_parts_do_not(name):
    resolve(name).check_training(1)


def test_reshapes_apply_from_left_to_right():
    objective = resolve("sspo+calibadv", {"calibadv": {"lambda": 0.5}, "sspo": {"eps": 0.1}})
    assert [reshape.name for reshape in objective.reshapes] == ["sspo", "calibadv"]
    assert objective.reshapes[1].apply.keywords["parameters"].lambda_ == 0.5


def test_a_reshape_gives_every_token_its_own_advantage():
    """Two groups; in the first, the wrong rollout found what the right one found, so its search is not punished."""
    rewards = [1.0, 0.0, 1.0, 0.0]
    found = ["d1", "d1", "d2", "d9"]
    trajectories = [_searched(i, r, d) for i, (r, d) in enumerate(zip(rewards, found, strict=True))]
    objective = resolve("dr_grpo+calibadv", aggregation="token_mean")
    groups = torch.tensor([0, 0, 1, 1])
    mask = torch.tensor([[1, 0, 1]] * 4)
    valid = torch.ones(4, dtype=torch.bool)
    reshaped = assign_credit(objective, torch.tensor(rewards), groups, valid, mask, trajectories).tokens
    assert reshaped[:, 0].tolist() == [0.5, 0.0, 0.5, -0.5]
    assert reshaped[:, 2].tolist() == [0.5, -0.5, 0.5, -0.5]


def _searched(row, reward, document):
    return Trajectory(
        id=str(row),
        group="",
        question="",
        golden_answers=[],
        spans=[
            Span(SpanKind.PROMPT, [1]),
            Span(SpanKind.POLICY, [2], action=Action(ActionType.SEARCH, query="q")),
            Span(SpanKind.OBSERVATION, [3], documents=[Document(document, "")]),
            Span(SpanKind.POLICY, [4], action=Action(ActionType.ANSWER, text="x")),
        ],
        status=Status.ANSWERED,
        format_valid=True,
        reward=reward,
    )
