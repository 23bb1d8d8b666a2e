"""Runs that something befalls: kills, preemption, a full disk, weights that overflow, a retriever that dies."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest
from benchmarks.survival.kills import Lives, kill_and_resume, result, unbroken

from sleuth.errors import RunFailed, UserError
from sleuth.training.run import train
from sleuth.training.run_folder import RunFolder

from .conftest import SMALL
from .disks import fill, small_disk

ENV = {**os.environ, "OMP_NUM_THREADS": "1"}
TRAIN = ["-m", "sleuth.cli", "train"]
SETTINGS = [*SMALL, "trainer.save_every=1", "evaluation.greedy=false"]
LONG = [*SETTINGS, "trainer.steps=500", "trainer.eval_every=0", "evaluation.enabled=false"]
TORCHRUN = ["-m", "torch.distributed.run", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", "--nproc-per-node=2"]


def launch(*command):
    return subprocess.Popen([sys.executable, *map(str, command)], env=ENV, stderr=subprocess.PIPE, text=True)


def finish(*command):
    """(exit code, stderr)"""
    process = launch(*command)
    _, said = process.communicate()
    return process.returncode, said


def wait_for_step(run, step, process):
    while len(run.read_metrics()) < step:
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.05)


@pytest.mark.slow
def test_three_kills_at_random_moments_leave_the_unbroken_runs_bits(tmp_path):
    """Fifty are ``python -m benchmarks.survival``."""
    lives = Lives()
    seconds = unbroken(lives, tmp_path / "whole")
    found = kill_and_resume(lives, tmp_path / "whole", tmp_path / "killed", 2, seconds, random.Random(1))
    assert (found.kills, found.wrong) == (2, [])
    assert found.most_lost <= 1  # save_every is 1
    aimed = kill_and_resume(
        lives, tmp_path / "whole", tmp_path / "aimed", 1, seconds, random.Random(2), aim="checkpoint"
    )
    assert (aimed.kills, aimed.wrong) == (1, [])


@pytest.mark.slow
@pytest.mark.parametrize("launcher", [[], TORCHRUN], ids=["alone", "under torchrun"])
def test_preemption_leaves_a_checkpoint_of_the_last_whole_step(tmp_path, launcher):
    """SIGTERM to what the scheduler knows: the process, or the launcher, which passes it on."""
    run = RunFolder(tmp_path / "run")
    process = launch(*launcher, *TRAIN, "laptop", *LONG, "trainer.save_every=0", "-o", run.path)
    wait_for_step(run, 2, process)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate()
    assert process.returncode == (1 if launcher else 130), said
    assert said.count("go on with `sleuth train") == 1
    assert run.checkpoint_steps() == [run.read_metrics()[-1]["step"]]
    more = run.checkpoint_steps()[-1] + 1
    code, said = finish(*launcher, *TRAIN, run.path, "--resume", f"trainer.steps={more}")
    assert code == 0, said
    assert [r["step"] for r in run.read_metrics()] == list(range(1, more + 1))


@pytest.mark.slow
def test_weights_that_overflow_end_the_run_with_a_line_and_the_last_sound_checkpoint(tmp_path):
    run = RunFolder(tmp_path / "run")
    code, said = finish(*TRAIN, "laptop", *LONG, "trainer.lr=1e38", "trainer.warmup_steps=400", "-o", run.path)
    assert code == 1
    assert "Traceback" not in said
    assert "trainer.lr" in said


def poisoned(trainer, updates):
    """The trainer, whose loss is NaN in these updates (from 1) of every batch."""
    inner = trainer.compute_loss

    def compute_loss(*args, **kwargs):
        loss = inner(*args, **kwargs)
        return loss * float("nan") if trainer.state.global_step % 2 + 1 in updates else loss

    trainer.compute_loss = compute_loss
    return trainer


def test_an_update_whose_loss_is_nan_is_not_made_and_counted(built, tmp_path):
    trainer, _ = built("trainer.steps=2", "trainer.eval_every=0")
    before = [p.detach().clone() for p in trainer.model.parameters()]
    poisoned(trainer, {1}).train()
    records = RunFolder(tmp_path / "run").read_metrics()
    assert [r["skipped_updates"] for r in records] == [1, 1]
    after = list(trainer.model.parameters())
    assert all(p.isfinite().all() for p in after)
    assert any(not a.equal(b) for a, b in zip(before, after, strict=True))


def test_a_step_whose_every_loss_is_nan_ends_the_run(built):
    trainer, _ = built("trainer.steps=2", "trainer.eval_every=0")
    before = [p.detach().clone() for p in trainer.model.parameters()]
    with pytest.raises(RunFailed, match=r"no update had a finite gradient.*trainer\.lr"):
        poisoned(trainer, {1, 2}).train()
    assert all(a.equal(b) for a, b in zip(before, trainer.model.parameters(), strict=True))


@pytest.mark.slow
def test_a_full_disk_costs_no_more_than_the_steps_since_the_last_checkpoint(tmp_path):
    disk = tmp_path / "disk"
    with small_disk(disk, 100):
        filler = disk / "filler"
        assert finish(*TRAIN, "laptop", *SETTINGS, "-o", disk / "whole")[0] == 0
        wanted = result(disk / "whole")
        shutil.rmtree(disk / "whole")
        process = launch(*TRAIN, "laptop", *SETTINGS, "-o", disk / "run")
        run = RunFolder(disk / "run")
        wait_for_step(run, 1, process)
        fill(filler)
        _, said = process.communicate()
        assert process.returncode == 1, said
        assert "the disk is full" in said
        assert "Traceback" not in said
        assert not list(run.checkpoints.glob("checkpoint-*"))
        filler.unlink()
        code, said = finish(*TRAIN, run.path, "--resume")
        assert code == 0, said
        assert result(run.path) == wanted


MORTAL = """
from pathlib import Path
from sleuth.retrieval.bm25 import BM25Retriever
from sleuth.retrieval.corpus import read_corpus
from sleuth.types import SearchResult
class Mortal:
    def __init__(self, corpus, dead):
        self.alive, self.dead = BM25Retriever(read_corpus(corpus)), Path(dead)
    def search(self, requests, k):
        if self.dead.exists():
            return [SearchResult(error="connection refused") for _ in requests]
        return self.alive.search(requests, k)
def make(corpus=None, dead=""):
    return Mortal(corpus, dead)
"""


@pytest.mark.slow
def test_a_retriever_that_dies_and_is_mended_leaves_the_unbroken_runs_bits(tmp_path, monkeypatch):
    (tmp_path / "mortal.py").write_text(MORTAL)
    monkeypatch.setitem(ENV, "PYTHONPATH", str(tmp_path))
    dead = tmp_path / "dead"
    settings = [*SETTINGS, "retriever.kind=mortal:make", f"retriever.settings.dead={dead}"]
    assert finish(*TRAIN, "laptop", *settings, "-o", tmp_path / "whole")[0] == 0
    run = RunFolder(tmp_path / "run")
    process = launch(*TRAIN, "laptop", *settings, "-o", run.path)
    wait_for_step(run, 1, process)
    dead.touch()
    _, said = process.communicate()
    assert process.returncode == 1, said
    assert "connection refused" in said
    assert f"go on with `sleuth train {run.path} --resume`" in said
    dead.unlink()
    code, said = finish(*TRAIN, run.path, "--resume")
    assert code == 0, said
    assert result(run.path) == result(tmp_path / "whole")


def test_a_data_file_that_was_changed_in_place_is_refused_on_resume(tmp_path):
    from sleuth.question_sets import world_files
    from sleuth.recipes.loader import load_recipe

    files = world_files(load_recipe("laptop", SETTINGS), tmp_path)
    sets = [f"data.train={files.train}", f"data.dev={files.dev}", f"data.test={files.test}", f"corpus={files.corpus}"]
    settings = [*(s for s in SETTINGS if not s.startswith("world")), "world=null", *sets, "evaluation.enabled=false"]
    train(load_recipe("laptop", [*settings, "trainer.steps=1"]), tmp_path / "run", quiet=True)
    for changed, key in ((files.train, "data_hash"), (files.corpus, "corpus_hash")):
        text = changed.read_text()
        changed.write_text("".join(reversed(text.splitlines(keepends=True))))
        with pytest.raises(UserError, match=key):
            train(load_recipe("laptop", [*settings, "trainer.steps=2"]), tmp_path / "run", resume=True, quiet=True)
        changed.write_text(text)
    summary = train(load_recipe("laptop", [*settings, "trainer.steps=2"]), tmp_path / "run", resume=True, quiet=True)
    assert summary["steps"] == 2
