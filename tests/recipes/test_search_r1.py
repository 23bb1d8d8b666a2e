"""Search-R1's scripts as recipes."""

import re

import pytest

from sleuth.cli import run
from sleuth.errors import UserError
from sleuth.recipes.loader import load_recipe
from sleuth.recipes.search_r1 import absent_files, migrate, read_script

SCRIPT = r"""
export CUDA_VISIBLE_DEVICES=0,1
export DATA_DIR='data/nq_search'
export BASE_MODEL='Qwen/Qwen2.5-3B'   # another: meta-llama/Llama-3.2-3B
PYTHONUNBUFFERED=1 python3 -m verl.trainer.main_ppo \
    data.train_files=$DATA_DIR/train.parquet \
    data.val_files=${DATA_DIR}/test.parquet \
    data.train_data_num=null \
    data.train_batch_size=512 \
    data.max_prompt_length=4096 \
    data.max_response_length=500 \
    data.max_obs_length=450 \
    algorithm.adv_estimator=grpo \
    actor_rollout_ref.model.path=$BASE_MODEL \
    actor_rollout_ref.actor.optim.lr=1e-6 \
    actor_rollout_ref.actor.optim.lr_warmup_steps_ratio=0.285 \
    actor_rollout_ref.actor.use_kl_loss=true \
    actor_rollout_ref.actor.kl_loss_coef=0.002 \
    actor_rollout_ref.actor.ppo_mini_batch_size=256 \
    actor_rollout_ref.rollout.n_agent=5 \
    actor_rollout_ref.actor.state_masking=true \
    some.thing=3 \
    trainer.total_training_steps=1000 \
    max_turns=4 \
    retriever.url="http://127.0.0.1:8000/retrieve" \
    retriever.topk=3 \
    2>&1 | tee run.log
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train_grpo.sh"
    path.write_text(SCRIPT)
    return path


def test_settings_mean_the_same(script, tmp_path, capsys):
    assert run(["migrate", str(script), "-o", str(tmp_path / "r.yaml")]) == 0
    recipe = load_recipe(str(tmp_path / "r.yaml"))
    t = recipe.trainer
    assert (t.prompts, t.group, t.updates_per_batch, t.steps, t.warmup_steps) == (512, 5, 10, 1000, 285)
    assert (t.lr, t.kl_coefficient) == (1e-6, 0.002)
    assert recipe.model == "Qwen/Qwen2.5-3B"
    assert recipe.data.train == "data/nq_search/train.parquet"
    assert recipe.data.test == "data/nq_search/test.parquet"
    limits = recipe.limits
    assert (limits.max_turns, limits.max_searches, limits.k) == (5, 4, 3)
    assert (limits.max_tokens, limits.max_turn_tokens, limits.max_observation_tokens) == (4096, 500, 450)
    assert recipe.retriever.settings["url"] == "http://127.0.0.1:8000/retrieve"
    said = capsys.readouterr().out
    assert "not the same: some.thing=3: no counterpart" in said
    assert "left out: actor_rollout_ref.actor.state_masking" in said
    assert "not the same: data.max_prompt_length=4096: there the whole context" in said
    assert "not the same: (not in the script) dtype: verl holds float32" in said
    assert "to be set: data.train: no file data/nq_search/train.parquet here" in said


def test_question_sets_that_are_here_need_not_be_set(tmp_path):
    (tmp_path / "train.parquet").touch()
    migrated = migrate({"data.train_files": "train.parquet", "data.val_files": ["train.parquet", "x/test.parquet"]})
    assert absent_files(migrated, tmp_path) == [("data.test", "x/test.parquet")]


def test_a_critic_has_no_counterpart_and_that_is_said():
    migrated = migrate({"algorithm.adv_estimator": "gae", "actor_rollout_ref.rollout.n_agent": 1})
    assert migrated.recipe["objective"] == "grpo"
    of_script = [setting for setting, _ in migrated.missing if not setting.startswith("(not in")]
    assert of_script == ["n_agent=1", "algorithm.adv_estimator=gae"]
    assert {"trainer.steps", "data.train", "data.test", "model", "retriever.corpus"} == set(migrated.unset)


def test_a_script_that_is_not_there_is_named_without_numbers(tmp_path):
    with pytest.raises(UserError, match=r"can't be read \(no such file or directory\)"):
        read_script(tmp_path / "none.sh")


def test_another_script_is_refused(tmp_path):
    (tmp_path / "x.sh").write_text("echo hello\n")
    with pytest.raises(UserError, match="main_ppo"):
        read_script(tmp_path / "x.sh")


@pytest.mark.parametrize(
    "setting",
    [
        {"data.train_batch_size": "51x"},
        {"actor_rollout_ref.actor.ppo_mini_batch_size": 0},
        {"actor_rollout_ref.rollout.n_agent": 0},
        {"trainer.total_training_steps": 10, "actor_rollout_ref.actor.optim.lr_warmup_steps_ratio": "abc"},
        {"max_turns": "two"},
        {"actor_rollout_ref.actor.optim.lr": "fast"},
        {"trainer.save_freq": "often"},
    ],
)
def test_a_value_that_is_no_number_is_one_line(setting):
    *_, (key, value) = setting.items()
    with pytest.raises(UserError, match=f"{re.escape(key)}={value}: not a .*number.*; mend the script"):
        migrate(setting)


def test_a_variable_that_the_script_does_not_set_is_named(tmp_path):
    file = tmp_path / "train.sh"
    file.write_text("python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=$BASE_MODEL max_turns=2\n")
    assert ("actor_rollout_ref.model.path=$BASE_MODEL", "the script doesn't set $BASE_MODEL; write its value") in (
        migrate(read_script(file)).missing
    )
