"""Several processes distil, and go through whole rounds, as one does."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from sleuth.errors import UserError
from sleuth.recipes.loader import load_recipe
from sleuth.training.processes import Processes
from sleuth.training.run_folder import RunFolder
from sleuth.training.search_e1.distill import Passes, schedule_rows
from sleuth.training.search_e1.rounds import train_rounds
from sleuth.training.search_e1.settings import DistillSettings

from .test_distill import views
from .test_rounds import SMALL

RANKS = Path(__file__).with_name("ranks.py")
LAUNCHER = [sys.executable, "-m", "torch.distributed.run", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]


def launch(processes, *command):
    launcher = [*LAUNCHER, f"--nproc-per-node={processes}"] if processes > 1 else [sys.executable]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run([*launcher, *map(str, command)], env=env, capture_output=True, text=True)


@pytest.mark.parametrize("processes", [1, 2, 3, 5])
@pytest.mark.parametrize("micro_batch", [1, 2, 4])
def test_every_pair_is_in_one_pass_of_its_own_update_and_all_processes_make_as_many(processes, micro_batch):
    settings = DistillSettings(batch=4, micro_batch=micro_batch)
    rows = schedule_rows([views(i) for i in range(7)], settings, 3)
    passes = Passes.of(rows, settings, processes)
    assert [row for row in passes.rows if row.weight] == rows
    if processes == 1:
        assert (passes.rows, passes.size, passes.each) == (rows, micro_batch, 4 // micro_batch)
        return
    together = passes.size * processes
    assert passes.size <= micro_batch
    assert len(passes.rows) % together == 0
    first = passes.rows[: passes.each * together]
    assert [row for row in first if row.weight] == rows[:4]
    assert passes.size * passes.each < -(-4 // processes) + passes.size  # no pass more than its share takes


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 3])
def test_gradients_and_records_of_a_stage_are_those_of_one_process(tmp_path, count):
    for processes in (1, count):
        done = launch(processes, RANKS, tmp_path)
        assert done.returncode == 0, done.stderr[-2000:]
    one, many = (torch.load(tmp_path / f"{n}.pt", weights_only=False) for n in (1, count))
    for name in one:
        assert many[name]["checkpoints"] == one[name]["checkpoints"] == [3]
        assert len(one[name]["gradients"]) == len(many[name]["gradients"]) == 3
        for a, b in zip(one[name]["gradients"], many[name]["gradients"], strict=True):
            assert a.norm() > 1e-4, name
            torch.testing.assert_close(a, b, rtol=0, atol=1e-6, msg=lambda m, name=name: f"{name}: {m}")
        for first, second in zip(one[name]["records"], many[name]["records"], strict=True):
            assert first.keys() == second.keys()
            for key in first:
                if not key.startswith("seconds/"):
                    assert second[key] == pytest.approx(first[key], rel=1e-4, abs=1e-6), (name, key)
        for key, value in one[name]["weights"].items():
            torch.testing.assert_close(value, many[name]["weights"][key], rtol=0, atol=1e-5)


@pytest.mark.slow
def test_whole_rounds_are_those_of_one_process(tmp_path):
    """A learning rate at which rounding moves no draw."""
    command = ["-m", "sleuth.cli", "train", "laptop", *SMALL, "trainer.lr=1e-6", "search_e1.distill.lr=1e-6"]
    for processes in (1, 2):
        done = launch(processes, *command, "-o", tmp_path / f"{processes}")
        assert done.returncode == 0, done.stderr[-2000:]
    one, two = (RunFolder(tmp_path / n) for n in ("1", "2"))
    for round in ("1", "2"):
        pairs = [run.path / "rounds" / round / "distill" / "pairs.jsonl" for run in (one, two)]
        assert pairs[0].read_text() == pairs[1].read_text() != ""
    assert one.checkpoint_steps() == two.checkpoint_steps()
    for a, b in zip(one.read_metrics(), two.read_metrics(), strict=True):
        assert a.keys() == b.keys()
        for key in a:
            if not key.startswith("seconds/"):
                assert b[key] == pytest.approx(a[key], rel=1e-3, abs=1e-5, nan_ok=True), (a["step"], key)


def test_a_sharded_model_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    monkeypatch.setattr(Processes, "exchange", lambda self, mine: [mine] * self.count)
    with pytest.raises(UserError, match="sleuth distill"):
        train_rounds(load_recipe("laptop", SMALL), tmp_path / "run", quiet=True, processes=Processes(0, 2))
