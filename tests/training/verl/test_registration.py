"""The plug-in in verl's registries: there, under its own names, and loud where it can't be."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("verl", reason="verl is not in this environment")

from verl.experimental.agent_loop.agent_loop import _agent_loop_registry
from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY, POLICY_LOSS_REGISTRY
from verl.trainer.ppo.v1.trainer_base import get_trainer_cls

from sleuth.errors import UserError
from sleuth.objectives.table import TABLE
from sleuth.training.verl.check import check
from sleuth.training.verl.registration import ESTIMATORS, LOSSES, register


def test_importing_verl_is_enough():
    assert {"search_signbalance", "search_grpo", "search_rloo"} <= set(ADV_ESTIMATOR_REGISTRY)
    assert {"search_sapo", "search_llds", "search_gspo", "search_objective"} <= set(POLICY_LOSS_REGISTRY)
    assert get_trainer_cls("search_sync").__name__ == "SearchSyncTrainer"
    assert _agent_loop_registry["search_tags"]["_target_"] == "sleuth.training.verl.agent_loop.SearchTagsLoop"


def test_every_advantage_and_loss_of_the_table_has_a_name_that_begins_with_search():
    slots = {"advantage": ESTIMATORS, "surrogate": LOSSES, "term": LOSSES}
    for name, entry in TABLE.items():
        if entry.slot in slots and name not in ("reference_kl", "entropy"):
            assert name in slots[entry.slot].values()
    assert all(name.startswith("search_") for name in (*ESTIMATORS, *LOSSES))


def test_registering_again_changes_nothing():
    before = dict(ADV_ESTIMATOR_REGISTRY), dict(POLICY_LOSS_REGISTRY)
    register()
    assert before == (ADV_ESTIMATOR_REGISTRY, POLICY_LOSS_REGISTRY)


@pytest.mark.parametrize("registry", [ADV_ESTIMATOR_REGISTRY, POLICY_LOSS_REGISTRY], ids=["advantage", "loss"])
def test_a_name_that_somebody_else_has_is_refused_and_left_alone(registry, monkeypatch):
    name = "search_grpo" if registry is ADV_ESTIMATOR_REGISTRY else "search_sapo"

    def theirs():
        pass

    monkeypatch.setitem(registry, name, theirs)
    with pytest.raises(UserError, match=f"{name} is already"):
        register()
    assert registry[name] is theirs
    with pytest.raises(UserError, match="not Sleuth's"):
        list(check([]))


def test_verls_own_sapo_is_left_alone():
    assert POLICY_LOSS_REGISTRY["sapo"].__module__.startswith("verl.")


def test_the_check_says_what_is_there():
    lines = list(check([]))
    assert "sleuth.training.verl.plugin" in lines[0]
    assert "search_sapo" in lines[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"VERL_USE_EXTERNAL_PLUGINS": "none"}, "keeps the plug-in out"),
        ({"VERL_USE_EXTERNAL_MODULES": "taken"}, "search_grpo is already"),
    ],
)
def test_a_plugin_that_verl_did_not_load_is_reported(tmp_path, environment, said):
    (tmp_path / "taken.py").write_text(
        "from verl.trainer.ppo.core_algos import register_adv_est\n"
        "@register_adv_est('search_grpo')\ndef theirs(**others): ...\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "sleuth.training.verl", "check"],
        env={**os.environ, "PYTHONPATH": str(tmp_path), **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
