"""Stopped at an epoch's end and in the middle of one, a run goes on to the same rows, steps and losses."""

import pytest

from sleuth.recipes.loader import load_recipe
from sleuth.rollouts import read_rollouts
from sleuth.training.run import train
from sleuth.training.run_folder import RunFolder

from .conftest import SMALL

# Six questions, three a step: an epoch is two steps.
RECIPE = [
    *SMALL,
    "world.train={worlds: 1, questions: 6}",
    "trainer.steps=5",
    "trainer.save_every=1",
    "trainer.keep_last=9",
    "trainer.eval_every=0",
    "evaluation.enabled=false",
]
SAME = ("reward", "loss", "entropy", "grad_norm", "policy_tokens")


def rows(run):
    files = sorted((run / "rollouts").glob("step-*.jsonl*"))
    return [sorted(t.group for t in read_rollouts(file)) for file in files]


def numbers(run):
    return [{k: r[k] for k in ("step", *SAME)} for r in RunFolder(run).read_metrics()]


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    path = tmp_path_factory.mktemp("epochs") / "run"
    train(load_recipe("laptop", RECIPE), path, quiet=True)
    return path


def test_an_epoch_is_two_steps(unbroken):
    asked = [set(step) for step in rows(unbroken)]
    assert len(asked) == 5
    assert len(asked[0] | asked[1]) == len(asked[2] | asked[3]) == 6
    assert not asked[0] & asked[1]
    assert not asked[2] & asked[3]


@pytest.mark.parametrize("stop", [2, 3], ids=["an epoch's end", "within an epoch"])
def test_a_stopped_run_goes_on_to_the_same_rows_and_losses(unbroken, tmp_path, monkeypatch, stop):
    """V4"""
    path = tmp_path / "run"
    log = RunFolder.log

    def power_cut(self, record):
        if record["step"] > stop:
            raise OSError("power cut")
        log(self, record)

    monkeypatch.setattr(RunFolder, "log", power_cut)
    with pytest.raises(OSError, match="power cut"):
        train(load_recipe("laptop", RECIPE), path, quiet=True)
    assert [r["step"] for r in RunFolder(path).read_metrics()] == list(range(1, stop + 1))
    monkeypatch.setattr(RunFolder, "log", log)
    train(load_recipe("laptop", RECIPE), path, resume=True, quiet=True)
    assert rows(path) == rows(unbroken)
    whole, broken = numbers(unbroken), numbers(path)
    assert [r["step"] for r in broken] == [1, 2, 3, 4, 5]
    for a, b in zip(whole, broken, strict=True):
        assert b == pytest.approx(a, rel=1e-4, abs=1e-6)
