"""Whole runs: the folder they leave, and that a broken one goes on to the same numbers."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from sleuth.errors import RunFailed, UserError
from sleuth.rollouts import read_rollouts
from sleuth.training.run import train
from sleuth.training.run_folder import RunFolder
from sleuth.types import SpanKind

from .conftest import SMALL

SAME = ("reward", "em", "loss", "entropy", "grad_norm", "ratio/mean", "policy_tokens", "searches")


def _numbers(path):
    return [{k: r[k] for k in ("step", *SAME) if k in r} for r in RunFolder(path).read_metrics()]


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """A whole run, made once."""
    from sleuth.recipes.loader import load_recipe

    path = tmp_path_factory.mktemp("unbroken") / "run"
    recipe = load_recipe("laptop", [*SMALL, "trainer.save_every=2"])
    return path, train(recipe, path, quiet=True)


def test_the_run_folder_holds_what_the_readme_says(unbroken):
    path, summary = unbroken
    run = RunFolder(path)
    assert [r["step"] for r in run.read_metrics()] == [1, 2, 3, 4]
    assert json.loads(run.summary.read_text()) == summary
    for key in ("em_before", "em_after", "em_before_interval", "em_after_interval", "questions", "steps", "seconds"):
        assert key in summary
    assert summary["questions"] == 12
    kept = path / summary["checkpoint"]
    assert (kept / "model.safetensors").is_file()
    assert (kept / "tokenizer.json").is_file()
    environment = json.loads(run.environment.read_text())
    assert {"versions", "seed", "corpus_hash", "prompt_hash"} <= environment.keys()


def test_the_kept_checkpoint_has_a_card_that_says_how_it_scored(unbroken):
    path, summary = unbroken
    card = (path / summary["checkpoint"] / "README.md").read_text()
    assert "Test questions after training, sampled" in card
    assert "grpo" in card
    assert "ot comparable" not in card


def test_training_on_development_rows_is_said_in_table_and_card(small, tmp_path):
    summary = train(small("data.comparable=false", "trainer.steps=1"), tmp_path / "run", quiet=True)
    assert summary["comparable"] is False
    card = (tmp_path / "run" / summary["checkpoint"] / "README.md").read_text()
    assert "Not comparable with published figures" in card


def test_the_loss_moves(unbroken):
    records = RunFolder(unbroken[0]).read_metrics()
    assert any(r["loss"] != 0 for r in records)
    assert any(r["ratio/mean"] != 1 for r in records)


def test_rollouts_are_written_with_ids_masks_and_rewards(unbroken):
    path, _ = unbroken
    trajectories = list(read_rollouts(path / "rollouts" / "step-000003.jsonl.zst"))
    assert len(trajectories) == 12
    assert all(t.step == 3 for t in trajectories)
    assert len({t.group for t in trajectories}) == 3
    for t in trajectories:
        assert t.spans[0].kind is SpanKind.PROMPT
        for span in t.policy_spans:
            assert len(span.logprobs) == len(span.ids)


def test_the_recipe_in_the_run_folder_runs_to_the_same_numbers(unbroken, tmp_path):
    from sleuth.recipes.loader import load_recipe

    path, _ = unbroken
    again = tmp_path / "again"
    train(load_recipe(path / "recipe.yaml", []), again, quiet=True)
    assert _numbers(again) == _numbers(path)


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_run_resumes_to_the_numbers_of_the_unbroken_one(unbroken, tmp_path, how):
    """V4, through the real command line."""
    path = tmp_path / "run"
    command = [sys.executable, "-m", "sleuth.cli", "train"]
    settings = [*SMALL, "trainer.save_every=2"]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([*command, "laptop", *settings, "-o", str(path)], env=env, stderr=subprocess.PIPE)
    deadline = time.time() + 240
    while len(RunFolder(path).read_metrics()) < 3 - (how is signal.SIGINT) and process.poll() is None:
        assert time.time() < deadline
        time.sleep(0.02)
    process.send_signal(how)
    _, stderr = process.communicate(timeout=240)
    if how is signal.SIGINT and process.returncode != 0:
        assert process.returncode == 130
        assert b"--resume" in stderr
        assert b"Traceback" not in stderr
    resumed = subprocess.run([*command, str(path), "--resume"], env=env, capture_output=True, text=True)
    assert resumed.returncode == 0, resumed.stderr
    whole, broken = _numbers(unbroken[0]), _numbers(path)
    assert [r["step"] for r in broken] == [1, 2, 3, 4]
    for a, b in zip(whole, broken, strict=True):
        assert b == pytest.approx(a, rel=1e-4, abs=1e-6)


def test_a_folder_that_holds_a_run_is_not_overwritten(unbroken, small):
    with pytest.raises(UserError, match="--resume"):
        train(small(), unbroken[0], quiet=True)


def test_nothing_to_resume_is_said(small, tmp_path):
    with pytest.raises(UserError, match="no run"):
        train(small(), tmp_path / "none", resume=True, quiet=True)


def test_other_data_on_resume_is_refused(unbroken, small):
    """V5"""
    with pytest.raises(UserError, match=r"world\.seed"):
        train(small("trainer.save_every=2", "world.seed=99"), unbroken[0], resume=True, quiet=True)


def test_a_finished_run_is_left_as_it_is(unbroken, small):
    path, summary = unbroken
    before = (path / "summary.json").read_bytes()
    assert train(small("trainer.save_every=2"), path, resume=True, quiet=True) == summary
    assert (path / "summary.json").read_bytes() == before


@pytest.mark.parametrize("name", ["foo", "wandb"])
def test_a_tracker_that_is_not_there_is_refused_before_anything_begins(small, tmp_path, name):
    with pytest.raises(UserError, match=name):
        train(small(f"trainer.track=[{name}]"), tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


DYING = """
from sleuth.types import SearchResult
class Dying:
    def __init__(self, searches):
        self.left = searches
    def search(self, requests, k):
        self.left -= 1
        return [SearchResult() if self.left >= 0 else SearchResult(error="connection refused") for _ in requests]
def make(corpus=None, searches=0):
    return Dying(searches)
"""


def test_a_dead_retriever_is_found_before_anything_is_run(small, tmp_path, monkeypatch):
    (tmp_path / "dead.py").write_text(DYING)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="connection refused"):
        train(small("retriever.kind=dead:make", "data.test_limit=2"), tmp_path / "run", quiet=True)


def test_a_retriever_that_dies_stops_the_run_with_a_line_that_says_so(small, tmp_path, monkeypatch):
    (tmp_path / "dying.py").write_text(DYING)
    monkeypatch.chdir(tmp_path)
    settings = ("retriever.kind=dying:make", "retriever.settings.searches=1", "data.test_limit=2")
    with pytest.raises(RunFailed, match="connection refused"):
        train(small(*settings), tmp_path / "run", quiet=True)
