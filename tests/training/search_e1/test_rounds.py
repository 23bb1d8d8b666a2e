"""Whole schedules on a small HopWorld: the folder they leave, and that breaking them in any stage changes nothing."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from sleuth.commands.policy import find_policy
from sleuth.diagnostics.names import is_known
from sleuth.errors import RunFailed, RunStopped, UserError
from sleuth.recipes.loader import load_recipe
from sleuth.rollouts import read_rollouts
from sleuth.training.run import train
from sleuth.training.run_folder import RunFolder
from sleuth.training.search_e1 import stages
from sleuth.training.search_e1.pool import Pool

SMALL = [
    "world.train={worlds: 3, questions: 24}",
    "world.dev={worlds: 1, questions: 6}",
    "world.test={worlds: 1, questions: 6}",
    "trainer.prompts=2",
    "trainer.group=3",
    "trainer.updates_per_batch=2",
    "trainer.steps=2",
    "trainer.eval_every=0",
    "trainer.keep=last",
    "trainer.save_rollouts_every=1",
    "evaluation.greedy=false",
    "schedule=search_e1",
    "search_e1.pool={questions: 12, rollouts: 4, batch: 16}",
    "search_e1.distill={batch: 4, micro_batch: 4, lora: 4, save_every: 1, epochs: 1}",
]


def small(*settings):
    return load_recipe("laptop", [*SMALL, *settings])


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """A whole schedule of two rounds, made once."""
    path = tmp_path_factory.mktemp("unbroken") / "run"
    return path, train(small(), path, quiet=True)


def numbers(path):
    timeless = [{k: v for k, v in r.items() if not k.startswith("seconds/")} for r in RunFolder(path).read_metrics()]
    return [pytest.approx(r, rel=1e-4, abs=1e-6, nan_ok=True) for r in timeless], timeless


def weights_of(path, summary):
    return load_file(path / summary["checkpoint"] / "model.safetensors")


def assert_same(path, summary, unbroken):
    expected, _ = numbers(unbroken[0])
    _, found = numbers(path)
    assert found == expected
    whole = weights_of(*unbroken)
    for name, value in weights_of(path, summary).items():
        torch.testing.assert_close(value, whole[name], rtol=1e-4, atol=1e-6)


def test_steps_are_numbered_through_all_rounds_and_stages(unbroken):
    path, summary = unbroken
    records = RunFolder(path).read_metrics()
    assert [r["step"] for r in records] == list(range(1, len(records) + 1))
    assert [r["round"] for r in records] == sorted(r["round"] for r in records)
    kinds = ["distill" if "distill/loss" in r else "rl" for r in records]
    updates = [r["distill"]["updates"] for r in summary["rounds"]]
    assert kinds == ["rl"] * 2 + ["distill"] * updates[0] + ["rl"] * 2 + ["distill"] * updates[1]
    assert summary["steps"] == len(records)
    assert all(is_known(name) for record in records for name in record)


def test_the_folder_is_one_run_for_every_other_command(unbroken):
    path, summary = unbroken
    first = summary["rounds"][0]["steps"][1]
    assert Path(find_policy(str(path)).recipe.model) == path / summary["checkpoint"]
    for step in (1, 2, first + 1, first + 2):
        trajectories = list(read_rollouts(path / "rollouts" / f"step-{step:06d}.jsonl.zst"))
        assert {t.step for t in trajectories} == {step}
    assert not list((path / "rounds" / "1" / "rl" / "rollouts").glob("*"))
    for key in ("em_before", "em_after", "em_before_interval", "questions", "seconds", "checkpoint", "rounds"):
        assert key in summary
    assert json.loads((path / "summary.json").read_text()) == summary


def test_a_round_begins_with_the_weights_that_the_last_one_ended_with(unbroken):
    path, summary = unbroken
    end = path / "checkpoints" / f"step-{summary['rounds'][0]['steps'][1]}"
    second = load_recipe(path / "rounds" / "2" / "rl" / "recipe.yaml", check_required=False)
    assert Path(second.model) == end
    assert second.schedule == "rl"
    assert second.seed != small().seed
    begun = load_file(path / "rounds" / "1" / "rl" / "checkpoints" / "step-2" / "model.safetensors")
    merged = load_file(end / "model.safetensors")
    assert begun.keys() == merged.keys()
    assert any(not torch.equal(begun[name], merged[name]) for name in begun)


def test_the_first_round_is_a_run_without_a_schedule(unbroken, tmp_path):
    train(small("schedule=rl"), tmp_path / "plain", quiet=True)
    plain = load_file(tmp_path / "plain" / "checkpoints" / "step-2" / "model.safetensors")
    first = load_file(unbroken[0] / "rounds" / "1" / "rl" / "checkpoints" / "step-2" / "model.safetensors")
    assert all(torch.equal(plain[name], first[name]) for name in plain)


def test_pairs_are_told(unbroken):
    path, summary = unbroken
    for told in summary["rounds"]:
        folder = path / "rounds" / str(told["round"])
        assert told["pool"]["rollouts"] == 48
        assert told["pairs"]["questions"] == 12
        assert told["pairs"]["pairs"] + sum(told["pairs"]["dropped"].values()) == 12
        assert {"share_student_wrong", "share_reference_without_search", "tokens", "too_long"} <= told["pairs"].keys()
        pairs = [json.loads(line) for line in (folder / "distill" / "pairs.jsonl").read_text().splitlines()]
        assert len(pairs) == told["distill"]["pairs"]
        pool = {t.id for t in Pool(folder / "pool").read()}
        assert all({pair["student"], pair["reference"]} <= pool for pair in pairs)
    questions = [{t.group for t in Pool(path / "rounds" / n / "pool").read()} for n in ("1", "2")]
    assert questions[0] != questions[1]


class Killed(BaseException):
    """As if the process were gone: nothing that catches errors may see it."""


def killed_at(monkeypatch, module, name, after):
    """The ``after``-th call of a function is the last thing that the process does."""
    real, calls = getattr(module, name), []

    def dying(*args, **kwargs):
        calls.append(None)
        if len(calls) == after:
            raise Killed
        return real(*args, **kwargs)

    monkeypatch.setattr(module, name, dying)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "name", "after"),
    [
        ("pool", "write_rollouts", 2),
        ("pool", "write_rollouts", 4),
        ("stages", "mine", 1),
        ("stages", "save_model", 1),
        ("stages", "write_text", 2),
        ("rounds", "gather_metrics", 2),
        ("stages", "train", 2),
        ("whole_run", "score_test", 2),
    ],
)
def test_a_run_killed_between_two_writes_goes_on_to_the_same_numbers(
    unbroken, tmp_path, monkeypatch, module, name, after
):
    import importlib

    target = importlib.import_module(f"sleuth.training.search_e1.{module}")
    with monkeypatch.context() as patch:
        killed_at(patch, target, name, after)
        with pytest.raises(Killed):
            train(small(), tmp_path / "run", quiet=True)
    summary = train(small(), tmp_path / "run", resume=True, quiet=True)
    assert_same(tmp_path / "run", summary, unbroken)


def test_a_run_killed_in_a_distillation_goes_on_to_the_same_numbers(unbroken, tmp_path, monkeypatch):
    from sleuth.training.search_e1 import distill

    with monkeypatch.context() as patch:
        killed_at(patch, distill, "distillation_loss", 2)
        with pytest.raises(Killed):
            train(small(), tmp_path / "run", quiet=True)
    assert RunFolder(tmp_path / "run" / "rounds" / "1" / "distill").checkpoint_steps() == [1]
    summary = train(small(), tmp_path / "run", resume=True, quiet=True)
    assert_same(tmp_path / "run", summary, unbroken)


def test_a_finished_schedule_is_left_as_it_is(unbroken):
    path, summary = unbroken
    before = (path / "summary.json").stat().st_mtime_ns
    assert train(small(), path, resume=True, quiet=True) == summary
    assert (path / "summary.json").stat().st_mtime_ns == before


def test_more_rounds_can_be_asked_for_but_no_other_steps(unbroken, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(unbroken[0], copy, symlinks=True)
    with pytest.raises(UserError, match=r"search_e1\.rounds"):
        train(small("trainer.steps=3"), copy, resume=True, quiet=True)
    with pytest.raises(UserError, match=r"search_e1\.distill\.clip"):
        train(small("search_e1.distill.clip=0.05"), copy, resume=True, quiet=True)


def test_a_folder_that_holds_a_run_is_not_overwritten(unbroken):
    with pytest.raises(UserError, match="--resume"):
        train(small(), unbroken[0], quiet=True)


@pytest.mark.parametrize("error", [RunStopped, RunFailed])
def test_what_stops_a_round_names_the_folder_of_the_whole_run(tmp_path, monkeypatch, error):
    def stops(recipe, folder, **kwargs):
        raise error(f"stopped; go on with `sleuth train {folder} --resume`")

    monkeypatch.setattr(stages, "train", stops)
    with pytest.raises(error, match=f"sleuth train {tmp_path / 'run'} --resume"):
        train(small(), tmp_path / "run", quiet=True)


def test_without_a_pair_the_policy_stays_as_it_is(tmp_path, monkeypatch):
    real = stages.mine
    monkeypatch.setattr(stages, "mine", lambda pool, settings: real(pool[:1], settings))
    summary = train(small("search_e1.rounds=1", "evaluation.enabled=false"), tmp_path / "run", quiet=True)
    (told,) = summary["rounds"]
    assert (told["distill"]["pairs"], told["distill"]["updates"]) == (0, 0)
    before = load_file(tmp_path / "run" / told["rl"]["checkpoint"] / "model.safetensors")
    after = weights_of(tmp_path / "run", summary)
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.slow
def test_the_best_stage_by_dev_questions_is_kept_and_the_last_round_may_end_on_rl(tmp_path):
    recipe = small("trainer.keep=best", "trainer.eval_every=1", "search_e1.end_on=rl", "evaluation.enabled=false")
    summary = train(recipe, tmp_path / "run", quiet=True)
    first, second = summary["rounds"]
    assert second["distill"] is None
    scored = {
        first["rl"]["checkpoint"]: first["rl"]["dev_em"],
        f"checkpoints/step-{first['steps'][1]}": first["distill"]["dev_em"],
        second["rl"]["checkpoint"]: second["rl"]["dev_em"],
    }
    assert scored[summary["checkpoint"]] == max(scored.values())


@pytest.mark.slow
def test_adapters_of_reinforcement_learning_are_merged_before_the_distillation(tmp_path):
    recipe = small("model_settings.lora=2", "search_e1.rounds=1", "evaluation.enabled=false")
    summary = train(recipe, tmp_path / "run", quiet=True)
    told = summary["rounds"][0]
    assert (tmp_path / "run" / told["rl"]["checkpoint"] / "adapter_config.json").is_file()
    assert (tmp_path / "run" / summary["checkpoint"] / "model.safetensors").is_file()
    # A first update compares the policy with itself under two prompts: a policy without its adapters would be another.
    assert told["distill"]["kl_first"] > 0
