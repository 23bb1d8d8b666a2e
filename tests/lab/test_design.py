"""Which runs a comparison has, and the recipe of each."""

import pytest

from sleuth.errors import UserError
from sleuth.lab.arms import choose_arms
from sleuth.lab.design import CELL_DEFAULTS, Cell, Design, parse_seeds
from sleuth.recipes.loader import load_recipe


def design(*settings, objectives=None):
    recipe = load_recipe("lab-isdd", [*CELL_DEFAULTS, *settings])
    return Design.of(recipe, choose_arms(objectives, recipe.comparison.arms), [s.partition("=")[0] for s in settings])


def test_the_shipped_lab_can_be_trained_in_every_regime():
    lab = design()
    lab.check()
    assert set(lab.regimes) == {"stable", "edge", "stress"}
    assert lab.tuned == "stable"
    assert {"grpo", "llds", "calibadv", "signbalance", "gspo", "dapo", "dr_grpo", "dual_clip"} <= {
        arm.name for arm in lab.arms
    }
    assert len(lab.arms) == 15


def test_what_the_user_sets_beside_the_recipe_wins_over_its_regimes():
    lab = design("trainer.steps=4", objectives="llds")
    recipes = [lab.recipe_of(cell) for cell in lab.cells(["stress", "edge"], [0])]
    assert {r.trainer.steps for r in recipes} == {4}
    assert {r.trainer.lr for r in recipes} == {3e-4, 1.2e-3, 1.5e-3}


def test_seeds_of_all_arms_come_before_the_next_seed_and_tuned_grpo_is_added():
    cells = design(objectives="llds").cells(["stress"], [0, 1])
    assert [(c.regime, c.arm.name, c.seed) for c in cells] == [
        ("stress", "grpo", 0),
        ("stress", "llds", 0),
        ("stress", "grpo", 1),
        ("stress", "llds", 1),
        ("stable", "grpo", 0),
        ("stable", "grpo", 1),
    ]


def test_tuned_grpo_is_not_run_twice():
    cells = design(objectives="llds").cells(["stable"], [0])
    assert [(c.regime, c.arm.name) for c in cells] == [("stable", "grpo"), ("stable", "llds")]


def test_a_cell_has_the_regimes_settings_then_the_arms_own():
    lab = design(objectives="llds,search_sapo[gamma=2,trainer.lr=1e-5]")
    llds, sapo = (lab.recipe_of(Cell("stress", arm, 3)) for arm in lab.arms[1:])
    assert (llds.objective, llds.trainer.lr, llds.seed) == ("llds", 1.5e-3, 3)
    assert llds.trainer.steps == lab.regimes["stress"]["trainer.steps"]
    assert (sapo.objective, sapo.trainer.lr, sapo.parameters) == ("search_sapo", 1e-5, {"search_sapo": {"gamma": 2}})
    assert llds.comparison is None
    assert not llds.evaluation.enabled


def test_the_recipes_own_clip_holds_where_no_part_sets_another():
    lab = design("grpo.clip_high=0.3", "grpo.eps=1e-4", objectives="llds,gspo,dr_grpo[aggregation.max_length=9]")
    lab.check()
    of = {arm.name: lab.recipe_of(Cell("stress", arm, 0)).parameters for arm in lab.arms}
    assert of["grpo"] == of["llds"] == {"grpo": {"clip_high": 0.3, "eps": 1e-4}}
    assert of["gspo"] == {"grpo": {"eps": 1e-4}}
    assert of["dr_grpo[aggregation.max_length=9]"] == {"grpo": {"clip_high": 0.3}, "aggregation": {"max_length": 9}}


def test_a_recipe_without_regimes_is_compared_as_it_is():
    recipe = load_recipe("laptop")
    lab = Design.of(recipe, choose_arms("llds", {}))
    assert (list(lab.regimes), lab.tuned) == (["recipe"], "recipe")
    assert lab.recipe_of(Cell("recipe", lab.arms[0], 0)).trainer == recipe.trainer


def test_wrong_arms_and_settings_are_refused_before_anything_runs():
    with pytest.raises(UserError, match=r"stable, serch_sapo: .*did you mean search_sapo"):
        design(objectives="serch_sapo").check()
    with pytest.raises(UserError, match=r"stable, llds\[trainer.lrr=1\]: .*trainer.lr"):
        design(objectives="llds[trainer.lrr=1]").check()
    with pytest.raises(UserError, match=r"search_sapo.*updates"):
        design("trainer.updates_per_batch=1", objectives="search_sapo").check()
    with pytest.raises(UserError, match="did you mean stress"):
        design().choose_regimes("stres")
    with pytest.raises(UserError, match="tuned='low' is none of the regimes"):
        load_recipe("laptop", ["comparison={tuned: low, regimes: {high: {trainer.lr: 1}}}"])


def test_a_comparison_takes_in_new_arms_and_regimes_only():
    old = design(objectives="llds")
    both = old.joined(design(objectives="gspo"))
    assert [arm.name for arm in both.arms] == ["grpo", "llds", "gspo"]
    with pytest.raises(UserError, match="another trainer"):
        old.joined(design("trainer.prompts=4", objectives="llds"))
    with pytest.raises(UserError, match="regime stress has other settings"):
        old.joined(design("comparison.regimes={stress: {trainer.lr: 1}}", objectives="llds"))
    other = design(objectives="llds")
    other = Design(other.recipe, other.regimes, choose_arms("llds", {"llds": "llds[weight=1]"}), other.tuned)
    with pytest.raises(UserError, match="arm llds stands for"):
        old.joined(other)


@pytest.mark.parametrize(
    ("text", "seeds"), [("3", [0, 1, 2]), ("5-7", [5, 6, 7]), ("1,4,1", [1, 4]), ("7,", [7]), ("0-1,9", [0, 1, 9])]
)
def test_seeds(text, seeds):
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "0", "a", "3-1", "1-x"])
def test_wrong_seeds(text):
    with pytest.raises(UserError, match="--seeds"):
        parse_seeds(text)
