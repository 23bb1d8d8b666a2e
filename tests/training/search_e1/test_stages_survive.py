"""Preemption and full disks in the stages of a round: what was finished stays, and ``--resume`` goes on from there."""

import gc
import importlib
import json
import shutil
import signal

import pytest

from sleuth.cli import run
from sleuth.training.run_folder import RunFolder

from ..disks import fill, small_disk
from .test_rounds import SMALL, assert_same, small, train

STAGES = [*SMALL, "search_e1.distill.save_every=0"]


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    path = tmp_path_factory.mktemp("unbroken") / "run"
    return path, train(small("search_e1.distill.save_every=0"), path, quiet=True)


@pytest.fixture
def sleuth(capsys):
    def command(*arguments):
        code = run([str(a) for a in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return command


def before_call(patch, module, name, number, happening):
    """Something happens right before the ``number``-th call of a function of the schedule."""
    target = importlib.import_module(f"sleuth.training.search_e1.{module}")
    real, calls = getattr(target, name), []

    def called(*args, **kwargs):
        calls.append(None)
        if len(calls) == number:
            happening()
        return real(*args, **kwargs)

    patch.setattr(target, name, called)


def goes_on(sleuth, path, unbroken):
    code, printed, said = sleuth("train", path, "--resume")
    assert code == 0, said
    assert_same(path, json.loads((path / "summary.json").read_text()), unbroken)
    assert not list(path.glob("rounds/*/distill/checkpoints"))
    return " ".join(printed.split())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "name", "number", "says"),
    [
        ("pool", "_refuse_failures", 1, "stopped with 16 of the pool's 48 rollouts; go on with"),
        ("pool", "write_rollouts", 3, "stopped with 48 of the pool's 48 rollouts; go on with"),
        ("stages", "mine", 1, "goes on in the stage that it was in"),
        ("distill", "distillation_loss", 2, "stopped after update 2 of"),
        ("stages", "save_model", 1, "goes on in the stage that it was in"),
        ("rounds", "gather_metrics", 1, "goes on in the stage that it was in"),
    ],
    ids=["pool", "last of the pool", "pairs", "distillation", "merge", "between stages"],
)
def test_sigterm_in_a_stage_keeps_what_is_done(unbroken, tmp_path, monkeypatch, sleuth, module, name, number, says):
    path = tmp_path / "run"
    with monkeypatch.context() as patch:
        before_call(patch, module, name, number, lambda: signal.raise_signal(signal.SIGTERM))
        code, _, said = sleuth("train", "laptop", *STAGES, "-o", path)
    assert code == 130, said
    assert "Traceback" not in said
    last = said.strip().splitlines()[-1]
    assert says in last
    assert f"`sleuth train {path} --resume`" in last
    if name == "_refuse_failures":
        assert (path / "rounds" / "1" / "pool" / "part-00000.jsonl.zst").is_file()
    if name == "distillation_loss":
        assert RunFolder(path / "rounds" / "1" / "distill").checkpoint_steps() == [2]
    goes_on(sleuth, path, unbroken)


@pytest.mark.slow
def test_the_second_signal_ends_a_stage_at_once(tmp_path, monkeypatch, sleuth):
    def twice():
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)

    path = tmp_path / "run"
    with monkeypatch.context() as patch:
        before_call(patch, "distill", "distillation_loss", 2, twice)
        code, _, said = sleuth("train", "laptop", *STAGES, "-o", path)
    assert code == 130
    assert "once more to stop at once" in " ".join(said.split())
    assert "goes on in the stage that it was in" in said
    assert RunFolder(path / "rounds" / "1" / "distill").checkpoint_steps() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "name", "number"),
    [
        ("pool", "write_rollouts", 2),
        ("stages", "write_pairs", 1),
        ("distill", "distillation_loss", 2),
        ("stages", "save_model", 1),
        ("rounds", "gather_metrics", 1),
    ],
    ids=["pool", "pairs", "distillation", "merge", "between stages"],
)
def test_a_full_disk_in_a_stage_keeps_what_is_done(unbroken, tmp_path, monkeypatch, sleuth, module, name, number):
    disk = tmp_path / "disk"
    with small_disk(disk, 100):
        path, filler = disk / "run", disk / "filler"
        with monkeypatch.context() as patch:
            before_call(patch, module, name, number, lambda: fill(filler))
            code, _, said = sleuth("train", "laptop", *SMALL, "-o", path)
        assert code == 1, said
        assert "Traceback" not in said
        (line,) = [line for line in said.splitlines() if line.startswith("sleuth: ")]
        assert "the disk is full" in line
        assert f"`sleuth train {path} --resume`" in line
        assert not [*path.rglob("checkpoint-*"), *path.rglob(".step-*"), *path.rglob(".*.jsonl*")]
        if name == "distillation_loss":
            assert RunFolder(path / "rounds" / "1" / "distill").checkpoint_steps() == [1]
        filler.unlink()
        goes_on(sleuth, path, unbroken)
        gc.collect()
        shutil.rmtree(path)


@pytest.mark.slow
def test_the_closing_lines_say_what_was_kept_and_count_apart(unbroken, tmp_path, monkeypatch, sleuth):
    path = tmp_path / "run"
    settings = ["trainer.keep=best", "trainer.eval_every=2", "search_e1.rounds=1", "evaluation.enabled=false"]
    stages = importlib.import_module("sleuth.training.search_e1.stages")
    real = stages.dev_scores
    monkeypatch.setattr(stages, "dev_scores", lambda *args: real(*args) | {"dev/em": -1.0})
    code, printed, said = sleuth("train", "laptop", *SMALL, *settings, "-o", path)
    assert code == 0, said
    summary = json.loads((path / "summary.json").read_text())
    (told,) = summary["rounds"]
    assert summary["checkpoint"] == told["rl"]["checkpoint"]
    printed = " ".join(printed.split())
    em = told["rl"]["dev_em"]
    assert (
        f"kept: round 1 before its distillation: dev EM {em:.3f}; the last policy (round 1, distilled) has -1.000 "
        "(trainer.keep=best)"
    ) in printed
    updates = told["distill"]["updates"]
    assert f"2 steps of reinforcement learning and {updates} updates of distillation in" in printed
    assert (summary["rl_steps"], summary["distillation_updates"]) == (2, updates)
    assert summary["steps"] == 2 + updates
