"""``sleuth distill POOL``: from a rollouts file to a model folder, and what it refuses."""

import json
import signal

import pytest
from safetensors import SafetensorError

from sleuth.assembly import assemble, build_agent, build_sampler
from sleuth.cli import run
from sleuth.recipes.loader import load_recipe
from sleuth.rollouts import read_rollouts, write_rollouts
from sleuth.training.run_folder import RunFolder
from sleuth.training.search_e1.pool import Pool
from sleuth.types import EndReason, Status

WORLD = [
    "world.train={worlds: 2, questions: 12}",
    "world.dev={worlds: 1, questions: 4}",
    "world.test={worlds: 1, questions: 4}",
]
STAGE = ["search_e1.distill.batch=4", "search_e1.distill.lora=4", "search_e1.distill.epochs=1"]


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pool")
    recipe = load_recipe("laptop", [*WORLD, "search_e1.pool={questions: 12, rollouts: 4, batch: 48}"])
    parts = assemble(recipe, folder)
    drawn = Pool(folder / "pool")
    agent = build_agent(parts, build_sampler(recipe, parts.model))
    drawn.draw(recipe, agent, parts.reward, parts.train, round=1, step=0, progress=lambda done: None)
    return drawn.file


@pytest.fixture
def sleuth(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def command(*arguments):
        code = run([str(a) for a in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return command


def test_a_pool_becomes_a_model_that_can_be_asked(pool, sleuth, tmp_path):
    out = tmp_path / "distilled"
    arguments = ("distill", pool, *WORLD, *STAGE, "--model", "tiny", "--recipe", "laptop", "-o", out)
    code, printed, error = sleuth(*arguments)
    assert code == 0, error
    assert "pairs from 12 questions" in " ".join(printed.split())
    names = {path.name for path in out.iterdir()}
    assert {"model.safetensors", "tokenizer.json", "recipe.yaml", "distill.json", "pairs.jsonl", "pairs.json"} <= names
    assert not {"checkpoints", "model"} & names
    summary = json.loads((out / "distill.json").read_text())
    assert summary["pairs"] > 0
    assert summary["updates"] == -(-summary["pairs"] // 4)
    code, printed, error = sleuth("ask", out, "who is boss of anna", "limits.max_turns=2", "--part", "w0000")
    assert code == 0, error
    code, _, error = sleuth(*arguments)
    assert code == 2
    assert "not empty" in error


def test_a_stage_that_was_broken_off_goes_on(pool, sleuth, tmp_path, monkeypatch):
    from sleuth.training.search_e1 import distill

    real, calls = distill.distillation_loss, []

    def interrupted(*arguments):
        calls.append(None)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*arguments)

    out = tmp_path / "distilled"
    arguments = (*STAGE, "search_e1.distill.save_every=1", "--model", "tiny", "--recipe", "laptop", "-o", out)
    with monkeypatch.context() as patch:
        patch.setattr(distill, "distillation_loss", interrupted)
        code, _, error = sleuth("distill", pool, *arguments)
    assert code == 130
    assert "--resume" in error
    assert sleuth("distill", pool, "-o", out, "--resume")[0] == 0
    whole = tmp_path / "whole"
    assert sleuth("distill", pool, *arguments[:-1], whole)[0] == 0
    a, b = (json.loads((folder / "distill.json").read_text()) for folder in (out, whole))
    assert a["loss_last"] == pytest.approx(b["loss_last"], rel=1e-4)


def test_sigterm_ends_a_stage_behind_the_update_in_work(pool, sleuth, tmp_path, monkeypatch):
    from sleuth.training.search_e1 import distill

    real, calls = distill.distillation_loss, []

    def asked_to_stop(*arguments):
        calls.append(None)
        if len(calls) == 2:
            signal.raise_signal(signal.SIGTERM)
        return real(*arguments)

    out = tmp_path / "distilled"
    settings = (*STAGE, "search_e1.distill.micro_batch=4", "search_e1.distill.save_every=0")
    with monkeypatch.context() as patch:
        patch.setattr(distill, "distillation_loss", asked_to_stop)
        code, _, error = sleuth("distill", pool, *settings, "--model", "tiny", "--recipe", "laptop", "-o", out)
    assert code == 130
    last = error.strip().splitlines()[-1]
    assert "stopped after update 2 of" in last
    assert f"go on with `sleuth distill {pool} -o {out} --resume`" in last
    assert RunFolder(out).checkpoint_steps() == [2]
    assert sleuth("distill", pool, "-o", out, "--resume")[0] == 0
    assert not (out / "checkpoints").exists()


def test_a_full_disk_is_a_line_and_nothing_is_lost(pool, sleuth, tmp_path, monkeypatch):
    from sleuth.training.search_e1 import distill

    def no_room(*arguments, **settings):
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    out = tmp_path / "distilled"
    with monkeypatch.context() as patch:
        patch.setattr(distill, "save_model", no_room)
        code, _, error = sleuth("distill", pool, *STAGE, "--model", "tiny", "--recipe", "laptop", "-o", out)
    assert (code, error.count("Traceback")) == (1, 0)
    last = error.strip().splitlines()[-1]
    assert "the disk is full" in last
    assert f"go on with `sleuth distill {pool} -o {out} --resume`" in last
    assert RunFolder(out).checkpoint_steps() == [len(RunFolder(out).read_metrics())]
    assert sleuth("distill", pool, "-o", out, "--resume")[0] == 0


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda t: [], "no rollouts"),
        (lambda t: t[:1], "no pair"),
        (lambda t: [_failed(x) for x in t], "no pair"),
    ],
)
def test_a_pool_without_pairs_is_said(pool, sleuth, tmp_path, change, says):
    write_rollouts(tmp_path / "p.jsonl", change(list(read_rollouts(pool))))
    code, _, error = sleuth(
        "distill", tmp_path / "p.jsonl", "--model", "tiny", "--recipe", "laptop", "-o", tmp_path / "x"
    )
    assert code == 2
    assert says in error
    assert not (tmp_path / "x").exists()


def _failed(trajectory):
    trajectory.status, trajectory.end = Status.RETRIEVER_FAILED, EndReason.RETRIEVER_FAILED
    return trajectory


def test_a_pool_of_another_tokenizer_is_refused(pool, sleuth, tmp_path):
    rollouts = list(read_rollouts(pool))
    for span in rollouts[0].policy_spans:
        span.ids = [i + 1 for i in span.ids]
    write_rollouts(tmp_path / "p.jsonl", rollouts)
    code, _, error = sleuth(
        "distill", tmp_path / "p.jsonl", "--model", "tiny", "--recipe", "laptop", "-o", tmp_path / "x"
    )
    assert code == 2
    assert "another tokenizer" in error


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "--model"),
        (("--model", "tiny", "search_e1.distil.lr=1"), "search_e1.distill"),
        (("--model", "nowhere/at/all"), "nowhere"),
        (("--resume",), "-o DIR"),
        (("--model", "tiny", "search_e1.distill.teacher_question=x"), "{question}"),
    ],
)
def test_a_users_mistake_is_one_line(pool, sleuth, arguments, says):
    code, _, error = sleuth("distill", pool, *arguments)
    assert code == 2
    assert says in error
    assert error.count("\n") == 1


def test_several_processes_are_refused_before_anything_is_read(sleuth, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    code, _, error = sleuth("distill", "nowhere.jsonl", "--model", "tiny")
    assert (code, error.count("\n")) == (2, 1)
    assert "one process" in error
