"""Settings as users give them: composed by Hydra, validated by verl, and by us."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("verl", reason="verl is not in this environment")

from verl.utils.config import omega_conf_to_dataclass

from sleuth.errors import UserError
from sleuth.training.verl.agent_settings import search_settings
from sleuth.training.verl.check import check, composed
from sleuth.training.verl.settings import ObjectiveSettings

SCRIPT = Path(__file__).parents[3] / "examples" / "verl" / "qwen2.5-3b-8gpus.sh"
LOSS = "actor_rollout_ref.actor.policy_loss"
OURS = f"{LOSS}._target_=sleuth.training.verl.settings.SearchPolicyLossConfig"
SEARCH = "actor_rollout_ref.rollout.custom.search"
SYNC = ["trainer.v1.trainer_mode=search_sync", "algorithm.adv_estimator=search_objective"]
MINIMAL = [
    "algorithm.adv_estimator=grpo",  # verl's default has a critic, and a critic a model
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2",
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=2",
    "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=2",
    "actor_rollout_ref.rollout.name=vllm",
    "actor_rollout_ref.rollout.n=4",
    "data.train_batch_size=8",
    "actor_rollout_ref.actor.ppo_mini_batch_size=4",
]


@pytest.fixture
def corpus(tmp_path):
    file = tmp_path / "corpus.jsonl"
    file.write_text('{"id": "1", "contents": "\\"Paris\\"\\nParis is the capital of France."}\n')
    return [f"+{SEARCH}.retriever.kind=bm25", f"+{SEARCH}.retriever.corpus={file}"]


def script_settings(tmp_path, *more):
    """What the script hands to verl, by a ``python`` that writes down its arguments."""
    python = tmp_path / "python"
    python.write_text(f'#!/usr/bin/env bash\nprintf "%s\\n" "$@" > {tmp_path}/arguments-$2\n')
    python.chmod(0o755)
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "TRAIN": "train.parquet",
        "DEV": "dev.parquet",
        "RETRIEVER": "http://127.0.0.1:8000",
    }
    done = subprocess.run(["bash", str(SCRIPT), *more], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    checked, run = (
        (tmp_path / f"arguments-{module}").read_text().splitlines()
        for module in ("sleuth.training.verl", "verl.trainer.main_ppo")
    )
    assert checked[2:4] == ["check", run[2]]
    return run[2:]


def test_verl_validates_the_script_for_eight_gpus(tmp_path):
    config = composed(script_settings(tmp_path))
    assert (config.trainer.n_gpus_per_node, config.actor_rollout_ref.model.path) == (8, "Qwen/Qwen2.5-3B-Instruct")
    actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    objective = ObjectiveSettings.of(actor, whole=True).resolve()
    assert objective.name == "calibadv+search_sapo+reference_kl"
    assert [term.weight for term in objective.terms] == [0.1, 0.001]
    search = search_settings(config.actor_rollout_ref.rollout)
    assert (search.limits.max_turns, search.limits.max_tokens, search.limits.max_context) == (4, 4096, 5120)
    assert search.retriever.settings == {"url": "http://127.0.0.1:8000"}


def test_a_setting_behind_the_script_wins(tmp_path):
    assert composed(script_settings(tmp_path, "trainer.total_training_steps=7")).trainer.total_training_steps == 7


def test_parameters_reach_the_dataclass_that_workers_see(corpus):
    config = composed([*MINIMAL, OURS, f"{LOSS}.loss_mode=search_sapo", f"+{LOSS}.parameters.search_sapo.gamma=0.3"])
    actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    assert ObjectiveSettings.of(actor).resolve().terms[0].weight == 0.3


def test_a_name_of_the_registry_needs_no_more_than_its_name():
    config = composed([*MINIMAL, f"{LOSS}.loss_mode=search_sapo"])
    actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    assert ObjectiveSettings.of(actor).resolve().name == "search_sapo"


def test_the_check_names_what_it_has_checked(corpus):
    lines = list(check([*MINIMAL, *SYNC, OURS, f"{LOSS}.loss_mode=search_sapo", *corpus]))
    assert lines[2] == "verl's settings are valid"
    assert lines[3] == "trainer search_sync: objective search_sapo, token_mean"
    assert lines[-1].startswith("retriever: bm25 answers, corpus ")


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["algorithm.adv_estimater=grpo"], "verl refuses these settings"),
        (["actor_rollout_ref.actor.ppo_mini_batch_size=16"], "train_batch_size"),
        ([f"+{LOSS}.parameters.search_sapo.gamma=0.3"], "unexpected keyword"),
        ([*SYNC], "none of Sleuth's"),
        ([SYNC[0], f"{LOSS}.loss_mode=search_sapo"], "set algorithm.adv_estimator=search_objective"),
        ([SYNC[1]], "needs trainer.v1.trainer_mode=search_sync"),
        ([*SYNC, f"{LOSS}.loss_mode=search_sapo", "data.train_batch_size=4"], "every ratio is 1"),
        ([f"{LOSS}.loss_mode=search_sapo", "data.train_batch_size=4"], "every ratio is 1"),
        ([*SYNC, OURS, f"{LOSS}.loss_mode=search_objective", f"+{LOSS}.objective=sspo"], "teacher.anchors=FILE"),
        (
            [*SYNC, f"{LOSS}.loss_mode=search_dapo", OURS, f"+{LOSS}.parameters.dapo.zero_variance=copy"],
            "zero_variance=copy is not there",
        ),
        ([*SYNC, f"{LOSS}.loss_mode=search_ppo_clip", "algorithm.use_kl_in_reward=true"], "use_kl_in_reward"),
        (
            [*SYNC, f"{LOSS}.loss_mode=search_ppo_clip", "+algorithm.parameters.signbalance.c=2"],
            "are not read by",
        ),
        (["algorithm.adv_estimator=search_signbalance", "+algorithm.parameters.grpo2.c=2"], "grpo2"),
        ([f"+{SEARCH}.limits.max_tokens=100000"], "set data.max_response_length"),
        ([f"+{SEARCH}.limits.max_turn=3"], "max_turns"),
        ([f"+{SEARCH}.retriever.settings.url=http://127.0.0.1:9"], "no search engine answers there"),
    ],
)
def test_what_is_wrong_is_said_before_the_run(overrides, said):
    with pytest.raises(UserError, match=said):
        list(check([*MINIMAL, *overrides]))


@pytest.mark.slow
def test_the_command_line_ends_with_2_and_one_line():
    done = subprocess.run(
        [sys.executable, "-m", "sleuth.training.verl", "check", *MINIMAL, *SYNC], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("sleuth: ")
    assert "Traceback" not in done.stderr
