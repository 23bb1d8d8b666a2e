"""Many processes do what one does."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from sleuth.assembly import build_model, build_tokenizer
from sleuth.training.processes import Processes
from sleuth.training.run_folder import RunFolder

from .conftest import SMALL
from .fsdp_on_cpu import ENVIRONMENT
from .served import ServedModel

RANKS = Path(__file__).with_name("ranks.py")
LAUNCHER = [sys.executable, "-m", "torch.distributed.run", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]
ALONE = {**os.environ, "OMP_NUM_THREADS": "1"}


def _launch(processes, *command, environment=None, **options):
    launcher = LAUNCHER if processes > 1 else [sys.executable]
    count = [f"--nproc-per-node={processes}"] if processes > 1 else []
    return subprocess.Popen([*launcher, *count, *map(str, command)], env=ALONE | (environment or {}), **options)


@pytest.mark.parametrize("n", [1, 7, 12])
@pytest.mark.parametrize("count", [1, 3, 5])
def test_shares_cover_everything_once(n, count):
    parts = [range(n)[Processes(i, count).share(n)] for i in range(count)]
    assert [x for part in parts for x in part] == list(range(n))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_alone_nothing_is_asked_of_anybody():
    alone = Processes()
    assert alone.exchange(3) == [3]
    assert alone.from_main(lambda: 4) == 4
    assert not alone.any(False)
    with pytest.raises(ValueError, match="mine"), alone.agreement():
        raise ValueError("mine")


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 3])
def test_loss_and_gradients_are_those_of_one_process_for_every_objective(tmp_path_factory, count):
    """8 rollouts an update; 3 processes get 3 each, one of them padding."""
    folder = tmp_path_factory.mktemp("ranks")
    for processes in (1, count):
        assert _launch(processes, RANKS, folder).wait() == 0
    one, many = (torch.load(folder / f"{n}.pt", weights_only=False) for n in (1, count))
    assert one.keys() == many.keys()
    for name in one:
        for a, b in zip(one[name]["gradients"], many[name]["gradients"], strict=True):
            assert a.norm() > 1e-3, name
            torch.testing.assert_close(a, b, rtol=0, atol=1e-6, msg=lambda m, name=name: f"{name}: {m}")
        first, second = one[name]["record"], many[name]["record"]
        assert first.keys() == second.keys()
        for key in first:
            if not key.startswith("seconds/"):
                assert second[key] == pytest.approx(first[key], rel=1e-4, abs=1e-5), (name, key)


@pytest.mark.slow
def test_a_run_goes_on_with_another_number_of_processes_to_the_same_numbers(tmp_path):
    command = ["-m", "sleuth.cli", "train"]
    assert _launch(1, *command, "laptop", *SMALL, "-o", tmp_path / "one").wait() == 0
    assert _launch(2, *command, "laptop", *SMALL, "trainer.steps=2", "-o", tmp_path / "two").wait() == 0
    assert _launch(3, *command, tmp_path / "two", "--resume", "trainer.steps=4").wait() == 0
    one, two = (RunFolder(tmp_path / name).read_metrics() for name in ("one", "two"))
    for a, b in zip(one, two, strict=True):
        for key in ("reward", "em", "searches", "policy_tokens", "groups", "dev/em"):
            assert a.get(key) == b.get(key)
        for key in ("loss", "entropy", "grad_norm", "ratio/mean"):
            assert b[key] == pytest.approx(a[key], rel=1e-3, abs=1e-5)


@pytest.mark.slow
def test_sharded_weights_train_to_the_numbers_of_one_process_and_resume(tmp_path):
    train = ["train", "laptop", *SMALL, "evaluation.enabled=false"]
    assert _launch(1, "-m", "sleuth.cli", *train, "-o", tmp_path / "one").wait() == 0
    sharded = [Path(__file__).with_name("fsdp_on_cpu.py")]
    first = [*sharded, *train, "trainer.steps=2", "-o", tmp_path / "two"]
    assert _launch(2, *first, environment=ENVIRONMENT).wait() == 0
    on = [*sharded, "train", tmp_path / "two", "--resume", "trainer.steps=4"]
    assert _launch(2, *on, environment=ENVIRONMENT).wait() == 0
    one, two = (RunFolder(tmp_path / name) for name in ("one", "two"))
    for name, other in (("one", ENVIRONMENT), ("two", {})):
        program = sharded if other else ["-m", "sleuth.cli"]
        resume = [*program, "train", tmp_path / name, "--resume", "trainer.steps=6"]
        process = _launch(2, *resume, environment=other, stderr=subprocess.PIPE, text=True)
        assert "FSDP or DeepSpeed, and its optimiser can only go on like that" in process.communicate()[1]
        assert process.returncode != 0
    for a, b in zip(one.read_metrics(), two.read_metrics(), strict=True):
        for key in ("reward", "em", "searches", "policy_tokens", "groups", "dev/em"):
            assert a.get(key) == b.get(key)
        for key in ("loss", "entropy", "grad_norm", "ratio/mean"):
            assert b[key] == pytest.approx(a[key], rel=1e-3, abs=1e-5)
    whole, gathered = (load_file(run.checkpoints / "step-4" / "model.safetensors") for run in (one, two))
    assert gathered.pop("lm_head.weight").equal(gathered["model.embed_tokens.weight"])  # tied, and written twice
    assert whole.keys() == gathered.keys()
    for name, weights in whole.items():
        torch.testing.assert_close(gathered[name], weights, rtol=0, atol=1e-5)


@pytest.mark.slow
def test_two_processes_ask_one_server_and_get_what_one_process_gets(tmp_path, small):
    recipe = small()
    with ServedModel(build_model(recipe).eval(), build_tokenizer(recipe)) as served:
        settings = [*SMALL, "model_settings.lora=4", "trainer.lr=0.02", "trainer.steps=2", "evaluation.enabled=false"]
        settings += ["sampling.server.model=base", f"sampling.server.url={served.url}"]
        for count in (1, 2):
            command = ["-m", "sleuth.cli", "train", "laptop", *settings, "-o", tmp_path / str(count)]
            assert _launch(count, *command).wait() == 0
    assert len(served.loaded) == 6  # each run: two batches and the last dev questions
    one, two = (RunFolder(tmp_path / name).read_metrics() for name in ("1", "2"))
    for a, b in zip(one, two, strict=True):
        for key in ("reward", "searches", "policy_tokens", "dev/em", "sampler/unknown"):
            assert a.get(key) == b.get(key)
        for key in ("loss", "grad_norm", "sampler/weight"):
            assert b[key] == pytest.approx(a[key], rel=1e-3, abs=1e-5)
        assert 0 < b["sampler/gap/mean"] < 1e-4


@pytest.mark.slow
def test_the_death_of_one_process_ends_the_run_with_a_line_and_a_checkpoint(tmp_path):
    run = RunFolder(tmp_path / "run")
    settings = [*SMALL, "trainer.steps=500", "trainer.save_every=1", "trainer.eval_every=0", "evaluation.enabled=false"]
    process = _launch(
        2, "-m", "sleuth.cli", "train", "laptop", *settings, "-o", run.path, stderr=subprocess.PIPE, text=True
    )
    while len(run.read_metrics()) < 2:
        assert process.poll() is None
        time.sleep(0.2)
    children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process.pid)], capture_output=True, text=True)
    os.kill(int(children.stdout.split()[-1]), signal.SIGKILL)
    _, said = process.communicate()
    assert process.returncode != 0
    # On a busy machine the launcher may end the other process before that one has noticed.
    ended_first = "closing signal SIGTERM" in said and "lost contact" not in said
    assert ended_first or ("lost contact with another" in said and "--resume" in said)
    assert run.checkpoint_steps()
