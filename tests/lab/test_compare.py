"""`sleuth compare` as a whole: what it leaves, and that nothing is lost when a run or all of it dies."""

import json
import multiprocessing
import os
import signal
import time

import pytest

from sleuth import cli
from sleuth.lab import runner
from sleuth.lab.comparison import Comparison
from sleuth.lab.export import read_export
from sleuth.lab.folder import ComparisonFolder
from sleuth.lab.results import Status
from sleuth.lab.table import markdown
from sleuth.recipes.loader import load_recipe
from sleuth.training.run_folder import RunFolder

from .runs import HEALTHY, runs

RECIPE = """
extends: laptop
world: {train: {worlds: 2, questions: 40}, dev: {worlds: 1, questions: 4}, test: {worlds: 1, questions: 4}}
trainer: {prompts: 2, group: 4, updates_per_batch: 2, steps: 3, save_every: 1, save_rollouts_every: 0}
comparison:
  regimes: {stable: {trainer.lr: 3e-4}, stress: {trainer.lr: 1.5e-3}}
"""


@pytest.fixture
def recipe(tmp_path):
    file = tmp_path / "tiny.yaml"
    file.write_text(RECIPE)
    return str(file)


def compare(recipe, folder, *options, regimes="stress", seeds="2", objectives="search_sapo[gamma=1]"):
    return cli.run(
        [
            *("compare", recipe, "-o", str(folder), "--regimes", regimes, "--seeds", seeds),
            *("--objectives", objectives, "--jobs", "2", *options),
        ]
    )


def statuses(folder):
    return {(r.regime, r.arm, r.seed): r.status for r in ComparisonFolder.read(folder).results()}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A comparison of two arms with two seeds at stress, and GRPO at stable with them."""
    base = tmp_path_factory.mktemp("lab")
    (base / "tiny.yaml").write_text(RECIPE)
    folder = base / "comparison"
    assert compare(str(base / "tiny.yaml"), folder) == 0
    return folder


def test_a_comparison_leaves_run_folders_table_and_pictures(finished):
    written = json.loads((finished / "comparison.json").read_text())
    assert written["schema"] == "sleuth.comparison/1"
    assert written["arms"]["search_sapo[gamma=1]"] == {
        "objective": "search_sapo",
        "settings": {"search_sapo.gamma": 1},
    }
    assert [(c["regime"], c["arm"], c["seed"], c["status"], c["steps"]) for c in written["cells"]] == [
        ("stress", "grpo", 0, "done", 3),
        ("stress", "search_sapo[gamma=1]", 0, "done", 3),
        ("stress", "grpo", 1, "done", 3),
        ("stress", "search_sapo[gamma=1]", 1, "done", 3),
        ("stable", "grpo", 0, "done", 3),
        ("stable", "grpo", 1, "done", 3),
    ]
    for cell in written["cells"]:
        run = RunFolder(finished / cell["run"])
        assert [record["reward"] for record in run.read_metrics()] == pytest.approx(cell["rewards"], abs=1e-6)
        of_run = load_recipe(run.recipe)
        assert (of_run.objective, of_run.seed) == (written["arms"][cell["arm"]]["objective"], cell["seed"])
        assert of_run.trainer.lr == {"stable": 3e-4, "stress": 1.5e-3}[cell["regime"]]
        assert (run.checkpoint(3) / "model.safetensors").is_file()
        assert not run.has_optimizer(3)
        assert json.loads(run.environment.read_text())["threads"] == 1
        assert (run.path / "world" / "train.jsonl").samefile(finished / "world" / "train.jsonl")
    assert {(line["regime"], line["arm"], line["n"]) for line in written["table"]} == {
        ("stress", "grpo", 2),
        ("stress", "search_sapo[gamma=1]", 2),
        ("stable", "grpo", 2),
        ("stable", "search_sapo[gamma=1]", 0),
    }
    assert any("No finished run (n = 0): search_sapo[gamma=1] at stable" in line for line in written["verdict"])
    assert "| stress | search_sapo[gamma=1] | 2 |" in (finished / "table.md").read_text()
    for picture in ("rewards.svg", "survival.svg"):
        assert "search_sapo[gamma=1]" in (finished / picture).read_text()


def test_a_regime_that_was_not_asked_for_is_not_in_the_table():
    regimes = {"stable": {}, "edge": {"trainer.lr": 1e-3}, "stress": {"trainer.lr": 2e-3}}
    arms = {name: {"objective": name, "settings": {}} for name in ("grpo", "gspo")}
    results = [*runs("stress", "grpo", HEALTHY), *runs("stress", "gspo", HEALTHY), *runs("stable", "grpo", HEALTHY)]
    comparison = Comparison("lab", "stable", regimes, arms, results)
    assert {line.regime for line in comparison.lines} == {"stable", "stress"}
    assert not any("edge" in sentence for sentence in comparison.verdict)
    assert "edge" not in markdown(comparison)
    assert comparison.to_dict()["regimes"] == regimes


def test_seeds_share_their_first_batch_and_differ_from_each_other(finished):
    first = {
        (c["regime"], c["arm"], c["seed"]): RunFolder(finished / c["run"]).read_metrics()[0]
        for c in json.loads((finished / "comparison.json").read_text())["cells"]
    }
    same = {
        seed: {
            (record["reward"], record["tokens"]) for (regime, arm, of_seed), record in first.items() if of_seed == seed
        }
        for seed in (0, 1)
    }
    assert len(same[0]) == len(same[1]) == 1
    assert same[0] != same[1]


def test_what_is_finished_is_not_run_again_and_more_seeds_are_added(finished, capsys):
    before = {path: path.stat().st_mtime_ns for path in finished.glob("cells/*/*/*/summary.json")}
    assert compare(str(finished.parent / "tiny.yaml"), finished, "--dry-run", seeds="3") == 0
    assert "9 runs (2 arms; regimes stable, stress; seeds 0 to 2), 6 of them finished" in capsys.readouterr().err
    assert cli.run(["compare", str(finished)]) == 0
    assert before == {path: path.stat().st_mtime_ns for path in finished.glob("cells/*/*/*/summary.json")}


def test_another_base_recipe_is_refused(finished, capsys):
    recipe = str(finished.parent / "tiny.yaml")
    assert compare(recipe, finished, "trainer.group=2") == 2
    assert "started with another trainer" in capsys.readouterr().err
    assert cli.run(["compare", str(finished), "--seeds", "9"]) == 2
    assert "--seeds" in capsys.readouterr().err


def test_the_table_is_made_again_from_what_is_there(finished, capsys):
    old = {name: (finished / name).read_bytes() for name in ("comparison.json", "table.md", "rewards.svg")}
    (finished / "table.md").unlink()
    assert cli.run(["compare", str(finished), "--table"]) == 0
    assert "stress" in capsys.readouterr().out
    assert old == {name: (finished / name).read_bytes() for name in old}


def test_an_export_holds_every_metric_and_gives_the_same_table(finished, tmp_path, capsys):
    file, again = tmp_path / "lab.jsonl.zst", tmp_path / "again"
    assert cli.run(["compare", str(finished), "--export", str(file)]) == 0
    comparison, records = read_export(file)
    for cell in comparison.results:
        original = RunFolder(finished / cell.run).read_metrics()
        assert [r.keys() for r in records[cell.run]] == [r.keys() for r in original]
        assert records[cell.run][2] == pytest.approx(original[2], rel=1e-3)
        assert records[cell.run][2]["reward"] == original[2]["reward"]
    assert cli.run(["compare", str(file), "--table", "-o", str(again)]) == 0
    assert (again / "table.md").read_bytes() == (finished / "table.md").read_bytes()
    assert cli.run(["compare", str(file.with_name("nothing")), "--table"]) == 2
    assert cli.run(["compare", str(finished), "--table", "--seeds", "3"]) == 2
    assert "--seeds has no effect with --table" in capsys.readouterr().err


def test_an_export_and_further_folders_are_one_table_and_one_export(finished, tmp_path, capsys):
    recipe, old, more, both = (
        str(finished.parent / "tiny.yaml"),
        tmp_path / "old.jsonl",
        tmp_path / "more",
        tmp_path / "o",
    )
    assert cli.run(["compare", str(finished), "--export", str(old)]) == 0
    assert compare(recipe, more, "--dry-run", seeds="2,") == 0
    err = capsys.readouterr().err
    assert "3 runs (2 arms; regimes stable, stress; seed 2)" in err
    assert compare(recipe, more, seeds="2,") == 0
    new = tmp_path / "new.jsonl.zst"
    arguments = ["compare", str(old), str(more), "--table", "-o", str(both), "--export", str(new)]
    assert cli.run(arguments) == 0
    joined, records = read_export(new)
    assert {(r.regime, r.arm, r.seed) for r in joined.results} == {
        (regime, arm, seed)
        for regime, arm in (("stress", "grpo"), ("stress", "search_sapo[gamma=1]"), ("stable", "grpo"))
        for seed in range(3)
    }
    assert set(records) == {r.run for r in joined.results}
    assert "| stress | search_sapo[gamma=1] | 3 |" in (both / "table.md").read_text()
    assert not (both / "comparison.json").exists()
    # The same run twice is one run; with other rewards it is a mistake.
    assert cli.run(["compare", str(old), str(finished), "--table"]) == 0
    wrong = tmp_path / "wrong.jsonl"
    lines = old.read_text().splitlines()
    row = json.loads(lines[1])
    row["metrics"]["reward"][0] += 0.25
    wrong.write_text("\n".join([lines[0], json.dumps(row), *lines[2:]]) + "\n")
    capsys.readouterr()
    assert cli.run(["compare", str(old), str(wrong), "--table"]) == 2
    assert "is finished here and in a source before, with other rewards" in capsys.readouterr().err
    assert cli.run(["compare", str(old), "trainer.steps=3", "--table"]) == 2
    assert "trainer.steps=3 has no effect with --table" in capsys.readouterr().err


CRASHES = """
import os, signal

def killed(trajectory):
    if not os.path.exists(os.environ["MENDED"]):
        os.kill(os.getpid(), signal.SIGKILL)
    return 1.0

def broken(trajectory):
    raise SystemExit("the reward\\nserver is gone")
"""


def test_a_crashed_run_keeps_its_error_and_loses_no_other(recipe, tmp_path, monkeypatch, capsys):
    (tmp_path / "crashes.py").write_text(CRASHES)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("MENDED", str(tmp_path / "mended"))
    (tmp_path / "arms.yaml").write_text(
        "killed: 'grpo[reward=crashes:killed]'\n"
        "broken: 'grpo[reward=crashes:broken]'\n"
        "missing: 'grpo[model=/no/model]'\n"
    )
    folder = tmp_path / "comparison"
    arms = str(tmp_path / "arms.yaml")
    assert compare(recipe, folder, "trainer.steps=1", objectives=arms, regimes="stable", seeds="1") == 1
    results = {r.arm: r for r in ComparisonFolder.read(folder).results()}
    assert {arm: r.status for arm, r in results.items()} == {
        "grpo": Status.DONE,
        "killed": Status.FAILED,
        "broken": Status.FAILED,
        "missing": Status.FAILED,
    }
    assert "killed by SIGKILL" in results["killed"].error
    assert results["broken"].error == "SystemExit: the reward server is gone"
    assert "Traceback" in (folder / results["broken"].run / "log.txt").read_text()
    assert "/no/model" in results["missing"].error
    shown = capsys.readouterr()
    assert "3 of 4 runs failed; the same command tries them again" in shown.err
    assert "Failed: killed at stable seed 0 (killed by SIGKILL" in shown.out

    (tmp_path / "mended").touch()
    assert cli.run(["compare", str(folder)]) == 1
    mended = {r.arm: r for r in ComparisonFolder.read(folder).results()}
    assert (mended["killed"].status, mended["killed"].error) == (Status.DONE, None)
    assert mended["broken"].status is Status.FAILED


def test_a_comparison_that_is_killed_goes_on_where_it_was(recipe, tmp_path):
    folder = tmp_path / "comparison"
    whole = multiprocessing.get_context("fork").Process(
        target=compare, args=(recipe, folder, "trainer.steps=6"), kwargs={"seeds": "1"}
    )
    whole.start()
    _until(lambda: any(folder.glob("cells/*/*/*/checkpoints/step-2/trainer_state.json")))
    whole.kill()
    whole.join()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "run_cells", lambda *args: None)
        _until(
            lambda: compare(recipe, folder, "trainer.steps=6", seeds="1") == 0
        )  # the runs in work end with their parent
    assert Status.TODO in statuses(folder).values()
    begun = [path for path in folder.glob("cells/*/*/*/metrics.jsonl") if not (path.parent / "summary.json").exists()]
    head = {path: path.read_text().splitlines()[0] for path in begun}
    assert cli.run(["compare", str(folder)]) == 0
    assert set(statuses(folder).values()) == {Status.DONE}
    # Went on from a checkpoint: the first step's line, timings included, is the old one.
    assert any(path.read_text().splitlines()[0] == line for path, line in head.items())
    assert all([r["step"] for r in RunFolder(path.parent).read_metrics()] == [1, 2, 3, 4, 5, 6] for path in begun)


def test_ctrl_c_leaves_everything_to_be_resumed(recipe, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "comparison"
    finished = runner.Display.finished

    def interrupt(display, result):
        finished(display, result)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(runner.Display, "finished", interrupt)
    assert compare(recipe, folder, seeds="1") == 130
    assert f"stopped; the same command goes on with {folder}" in capsys.readouterr().err
    left = list(statuses(folder).values())
    assert Status.DONE in left
    assert Status.TODO in left
    assert Status.FAILED not in left
    monkeypatch.undo()
    assert cli.run(["compare", str(folder)]) == 0
    assert set(statuses(folder).values()) == {Status.DONE}


def test_two_comparisons_do_not_work_in_one_folder(finished, capsys):
    with ComparisonFolder.read(finished).locked():
        assert cli.run(["compare", str(finished)]) == 2
    assert "another comparison is at work" in capsys.readouterr().err


def _until(happened, seconds=240):
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.05)


def test_a_run_of_a_comparison_can_be_reported_on(finished, capsys):
    cell = finished / "cells" / "stress" / "grpo" / "seed-0"
    assert not (cell / "report.html").exists()
    assert cli.run(["report", str(cell)]) == 0
    assert "3 steps" in capsys.readouterr().out
    assert "<!doctype html>" in (cell / "report.html").read_text()[:200].lower()


@pytest.mark.slow
def test_runs_that_start_afresh_give_the_same_as_forked_ones(recipe, finished, tmp_path, monkeypatch):
    """As elsewhere than on Linux, and with a GPU."""
    monkeypatch.setattr(runner.sys, "platform", "darwin")
    folder = tmp_path / "comparison"
    assert compare(recipe, folder, seeds="1", objectives="grpo") == 0
    run = "cells/stress/grpo/seed-0"
    ours, forked = (RunFolder(of / run).read_metrics() for of in (folder, finished))
    keys = [key for key in forked[0] if not key.startswith("seconds/")]
    assert [[r.get(key) for key in keys] for r in ours] == [[r.get(key) for key in keys] for r in forked]


def test_the_folder_of_one_run_is_no_comparison_and_what_shows_it_is_named(tmp_path, capsys):
    (tmp_path / "recipe.yaml").write_text("name: x\n")
    assert cli.run(["compare", str(tmp_path), "--table"]) == 2
    assert "one training run, not a comparison of several; look at it with `sleuth report" in capsys.readouterr().err
