"""How arms are written."""

import pytest

from sleuth.errors import UserError
from sleuth.lab.arms import choose_arms, parse_arm, split_outside_brackets


def test_an_arm_is_an_objective_with_settings_in_brackets():
    arm = parse_arm("search_sapo[preset=released,gamma=1]")
    assert (arm.name, arm.objective) == ("search_sapo[preset=released,gamma=1]", "search_sapo")
    assert arm.settings == {"search_sapo.preset": "released", "search_sapo.gamma": 1}
    assert arm.folder == "search_sapo-preset-released-gamma-1"
    assert arm.as_settings() == [
        'objective="search_sapo"',
        'search_sapo.preset="released"',
        "search_sapo.gamma=1",
    ]


def test_keys_with_a_dot_and_the_aggregation_stay_as_written():
    arm = parse_arm("dr_grpo[aggregation.max_length=256, trainer.lr=1e-4]", "mine")
    assert arm.name == "mine"
    assert arm.settings == {"aggregation.max_length": 256, "trainer.lr": 1e-4}
    assert parse_arm("grpo[model=tiny]").settings == {"model": "tiny"}
    assert parse_arm("gspo[aggregation=seq_mean_token_mean]").settings == {"aggregation": "seq_mean_token_mean"}


def test_a_parameter_of_several_parts_needs_the_part():
    with pytest.raises(UserError, match="preset belongs to several parts"):
        parse_arm("search_sapo+llds[preset=paper]")
    arm = parse_arm("search_sapo+llds[llds.preset=paper,gamma=2]")
    assert arm.settings == {"llds.preset": "paper", "search_sapo.gamma": 2}


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("search_sapo[gama=1]", "gama is no parameter of it; known: .*search_sapo.gamma"),
        ("search_sapo[gamma]", "'gamma' is no setting"),
        ("search_sapo[gamma=1", "in brackets"),
        ("[gamma=1]", "write NAME"),
        ("grpo[seed=1]", "seed is not an arm's to set"),
    ],
)
def test_what_can_not_be_read_is_refused(written, why):
    with pytest.raises(UserError, match=why):
        parse_arm(written)


def test_commas_inside_brackets_do_not_part_arms():
    assert split_outside_brackets("a, b[c=1,d={e: [1, 2]}],,f") == ["a", "b[c=1,d={e: [1, 2]}]", "f"]


def test_plain_grpo_is_always_there():
    assert [arm.name for arm in choose_arms("llds", {})] == ["grpo", "llds"]
    assert [arm.name for arm in choose_arms("llds,grpo", {})] == ["llds", "grpo"]


def test_arms_come_from_the_recipe_and_from_files(tmp_path):
    file = tmp_path / "more.yaml"
    file.write_text("strong: search_sapo[gamma=2]\n")
    arms = choose_arms(f"weak,{file}", {"weak": "search_sapo[gamma=0.1]", "other": "llds"})
    assert [(a.name, dict(a.settings)) for a in arms] == [
        ("grpo", {}),
        ("weak", {"search_sapo.gamma": 0.1}),
        ("strong", {"search_sapo.gamma": 2}),
    ]
    assert [a.name for a in choose_arms(None, {"weak": "llds"})] == ["grpo", "weak"]


def test_arms_that_would_share_a_folder_are_refused():
    with pytest.raises(UserError, match="called the same"):
        choose_arms("search_sapo[gamma=1],search_sapo[gamma= 1]", {})


def test_without_arms_there_is_nothing_to_compare():
    with pytest.raises(UserError, match="--objectives"):
        choose_arms(None, {})
