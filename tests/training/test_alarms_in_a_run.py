"""Alarms in whole runs: a collapse that is provoked, and each action on it."""

import json
import shutil

import pytest

from sleuth.errors import RunFailed, UserError
from sleuth.rollouts import read_rollouts
from sleuth.training.run import train
from sleuth.training.run_folder import RunFolder

pytestmark = pytest.mark.slow

STEPS = 6

COLLAPSE = [
    "trainer.lr=0.01", f"trainer.steps={STEPS}", "trainer.updates_per_batch=4", "trainer.eval_every=0",
    "trainer.keep=last", "world.test={worlds: 1, questions: 2}", "evaluation.greedy=false", "limits.max_tokens=96",
    "diagnosis.rules={warmup: 2, settle: 0, lost_tokens: {limit: 0.05, hits: 1, window: 1}}",
]  # fmt: skip
"""A learning rate 30 times too high, broken within a few steps, and a limit that it is sure to cross."""

ROLLBACK = ["diagnosis.action={early: rollback}", "diagnosis.rollback={lr_factor: 0.01, every: 1, keep: 3}"]

SAME = ("step", "reward", "loss", "entropy", "grad_norm", "lr")


def numbers(run):
    return [{key: r[key] for key in SAME} for r in run.read_metrics()]


def steps(run):
    return [r["step"] for r in run.read_metrics()]


@pytest.fixture
def collapse(small, tmp_path):
    """``collapse(*settings)``: train into a collapse; the run folder and what was raised."""

    def make(*settings, folder="run", resume=False):
        run = RunFolder(tmp_path / folder)
        try:
            train(small(*COLLAPSE, *settings), run.path, quiet=True, resume=resume)
        except (RunFailed, UserError) as error:
            return run, error
        return run, None

    return make


def test_a_warning_is_recorded_with_its_evidence_and_changes_no_number(collapse):
    warned, error = collapse("diagnosis.action=warn", "trainer.save_rollouts_every=100")
    plain, _ = collapse("diagnosis.action=off", folder="plain")
    assert error is None
    assert numbers(warned) == numbers(plain)
    assert not plain.alarms.exists()
    alarm = next(a for a in warned.read_alarms() if a["rule"] == "lost_tokens")
    assert (alarm["level"], alarm["action"], alarm["where"]["sign"]) == ("early", "warn", "pos")
    assert alarm["value"] < alarm["limit"]
    assert "trainer.lr=3.3e-03 (now 1.0e-02)" in alarm["advice"]
    shown = {
        t.id: t for t in read_rollouts(warned.path / "rollouts" / f"step-{alarm['step']:06d}.jsonl.zst")
    }  # saved for the alarm alone
    ratios = [
        new - old
        for span in shown[alarm["rollouts"][0]].policy_spans
        for new, old in zip(span.new_logprobs, span.old_logprobs, strict=True)
    ]
    assert 2.718281828 ** min(ratios) == pytest.approx(alarm["value"], rel=1e-3)


def test_checkpoint_saves_at_the_alarms_step_and_keeps_it(collapse):
    run, _ = collapse("diagnosis.action=checkpoint")
    assert run.read_alarms()
    assert {a["step"] for a in run.read_alarms()} <= set(run.checkpoint_steps())


def test_stop_says_how_to_go_on_and_resuming_does(collapse):
    run, error = collapse("diagnosis.action={early: stop}")
    assert isinstance(error, RunFailed)
    assert f"sleuth train {run.path} --resume" in str(error)
    before = run.read_alarms()
    assert before[-1]["action"] == "stop"
    assert run.checkpoint_steps()[-1] == before[-1]["step"] == steps(run)[-1] < STEPS
    _, error = collapse("diagnosis.action=warn", resume=True)
    assert error is None
    assert steps(run) == list(range(1, STEPS + 1))
    assert run.read_alarms()[: len(before)] == before
    assert len({(a["rule"], a["step"]) for a in run.read_alarms()}) == len(run.read_alarms())


def test_rollback_goes_on_from_a_healthy_step_with_a_lower_learning_rate_and_resumes_to_the_same_numbers(collapse):
    run, error = collapse(*ROLLBACK, "trainer.save_every=1", "trainer.keep_last=9")
    assert error is None
    (rollback,) = run.read_rollbacks()
    alarm = next(a for a in run.read_alarms() if a["action"] == "rollback")
    assert rollback["to_step"] < alarm["since"] <= rollback["from_step"]
    assert rollback["alarm"].items() <= alarm.items()
    assert steps(run) == list(range(1, STEPS + 1))
    rates = [r["lr"] for r in run.read_metrics()]
    assert rates == [0.01] * rollback["to_step"] + [pytest.approx(1e-4)] * (STEPS - rollback["to_step"])
    # Nothing is hidden: the steps that were given up are there, and the summary tells of it.
    given_up = [json.loads(line) for line in (run.rollbacks / "1" / "metrics.jsonl").read_text().splitlines()]
    assert [r["step"] for r in given_up] == list(range(rollback["to_step"] + 1, rollback["from_step"] + 1))
    assert len(list((run.rollbacks / "1" / "rollouts").iterdir())) == len(given_up)
    assert json.loads(run.summary.read_text())["rollbacks"] == [rollback]
    # As if killed two steps after the rollback.
    whole, alarms = numbers(run), run.read_alarms()
    for step in run.checkpoint_steps():
        if step > rollback["to_step"] + 2:
            shutil.rmtree(run.checkpoint(step))
    run.summary.unlink()
    _, error = collapse(*ROLLBACK, "trainer.save_every=1", "trainer.keep_last=9", resume=True)
    assert error is None
    assert numbers(run) == whole
    assert run.read_alarms() == alarms
    assert len(run.read_rollbacks()) == 1


def test_after_so_many_rollbacks_the_run_stops_and_can_be_rolled_back_by_hand(collapse):
    again = "diagnosis.rollback={lr_factor: 1, every: 1, times: 1}"
    run, error = collapse("diagnosis.action={early: rollback}", again)
    assert isinstance(error, RunFailed)
    assert len(run.read_rollbacks()) == 1
    assert [a["action"] for a in run.read_alarms() if a["action"] != "warn"] == ["rollback", "stop"]
    stopped = run.read_alarms()[-1]
    _, error = collapse(
        "diagnosis.action={early: rollback}",
        "diagnosis.rollback={lr_factor: 0.01, times: 2, objective: search_sapo, parameters: {search_sapo: {gamma: 1}}}",
        resume=True,
    )
    assert error is None
    second = run.read_rollbacks()[1]
    assert second["alarm"] == stopped
    assert second["settings"]["objective"] == "search_sapo"
    assert steps(run) == list(range(1, STEPS + 1))
    assert all(("term/search_sapo" in r) == (r["step"] > second["to_step"]) for r in run.read_metrics())


def test_an_objective_to_roll_back_to_that_is_not_there_is_refused_before_training(collapse):
    run, error = collapse("diagnosis.action=rollback", "diagnosis.rollback.objective=search_sapoo")
    assert isinstance(error, UserError)
    assert "search_sapo" in str(error)
    assert not run.path.exists()
