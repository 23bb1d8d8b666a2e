"""Alarms in whole runs: a collapse that is provoked, and each action on it."""

import json

import pytest

from sleuth.errors import RunFailed, UserError
from sleuth.rollouts import read_rollouts
from sleuth.training.run import train
from sleuth.training.run_folder import RunFolder

COLLAPSE = ["trainer.lr=0.01", "trainer.steps=8", "trainer.updates_per_batch=4", "trainer.eval_every=0", "trainer.keep=last"]
"""A learning rate 30 times too high: broken within a few steps."""

EAGER = [
    "diagnosis.rules.warmup=2",
    "diagnosis.rules.reward_gone={limit: 0.9, hits: 1, window: 1, on: false}",
    "diagnosis.rules.lost_tokens={limit: 0.05, hits: 1, window: 1}",
]
"""Limits that such a short run is sure to cross."""

SAME = ("step", "reward", "loss", "entropy", "grad_norm", "lr")


def numbers(run):
    return [{key: r[key] for key in SAME} for r in run.read_metrics()]


@pytest.fixture
def collapse(small, tmp_path):
    """``collapse(*settings)``: train into a collapse; the run folder and what was raised."""

    def make(*settings, folder="run", resume=False):
        run = RunFolder(tmp_path / folder)
        try:
            train(small(*COLLAPSE, *EAGER, *settings), run.path, quiet=True, resume=resume)
        except (RunFailed, UserError) as error:
            return run, error
        return run, None

    return make


def test_a_warning_is_recorded_with_its_evidence_and_changes_no_number(collapse):
    warned, error = collapse("diagnosis.action=warn")
    plain, _ = collapse("diagnosis.action=off", folder="plain")
    assert error is None
    assert numbers(warned) == numbers(plain)
    assert not plain.alarms.exists()
    alarm = next(a for a in warned.read_alarms() if a["rule"] == "lost_tokens")
    assert alarm["level"] == "early"
    assert alarm["action"] == "warn"
    assert alarm["value"] < alarm["limit"]
    assert alarm["where"]["sign"] == "pos"
    assert "trainer.lr=3.3e-03 (now 1.0e-02)" in alarm["advice"]
    ids = {t.id for t in read_rollouts(warned.path / "rollouts" / f"step-{alarm['step']:06d}.jsonl.zst")}
    assert alarm["rollouts"]
    assert set(alarm["rollouts"]) <= ids


def test_checkpoint_saves_at_the_alarms_step_and_keeps_it(collapse):
    run, _ = collapse("diagnosis.action=checkpoint")
    steps = {a["step"] for a in run.read_alarms()}
    assert steps
    assert steps <= set(run.checkpoint_steps())


def test_stop_says_how_to_go_on_and_resuming_does(collapse):
    run, error = collapse("diagnosis.action={early: stop}")
    assert isinstance(error, RunFailed)
    assert f"sleuth train {run.path} --resume" in str(error)
    stopped = run.read_alarms()[-1]
    assert stopped["action"] == "stop"
    assert run.checkpoint_steps()[-1] == stopped["step"] == run.read_metrics()[-1]["step"] < 8
    before = run.read_alarms()
    _, error = collapse("diagnosis.action=warn", resume=True)
    assert error is None
    assert run.read_metrics()[-1]["step"] == 8
    assert run.read_alarms()[: len(before)] == before
    assert len({(a["rule"], a["step"]) for a in run.read_alarms()}) == len(run.read_alarms())


ROLLBACK = ["diagnosis.action={early: rollback}", "diagnosis.rollback={lr_factor: 0.01, every: 1, keep: 2}"]


def test_rollback_goes_on_from_a_healthy_step_with_a_lower_learning_rate_and_hides_nothing(collapse):
    run, error = collapse(*ROLLBACK)
    assert error is None
    (rollback,) = run.read_rollbacks()
    alarm = next(a for a in run.read_alarms() if a["action"] == "rollback")
    assert rollback["alarm"]["rule"] == alarm["rule"]
    assert rollback["to_step"] < alarm["since"] <= rollback["from_step"]
    assert [r["step"] for r in run.read_metrics()] == list(range(1, 9))
    rates = [r["lr"] for r in run.read_metrics()]
    assert rates == [0.01] * rollback["to_step"] + [pytest.approx(1e-4)] * (8 - rollback["to_step"])
    given_up = [json.loads(line) for line in (run.rollbacks / "1" / "metrics.jsonl").read_text().splitlines()]
    assert [r["step"] for r in given_up] == list(range(rollback["to_step"] + 1, rollback["from_step"] + 1))
    assert len(list((run.rollbacks / "1" / "rollouts").iterdir())) == len(given_up)
    assert json.loads(run.summary.read_text())["rollbacks"] == [rollback]


def test_a_run_that_was_rolled_back_resumes_to_the_same_numbers(collapse):
    whole, _ = collapse(*ROLLBACK, "trainer.save_every=1")
    at = whole.read_rollbacks()[0]["to_step"] + 2
    for step in whole.checkpoint_steps():
        if step > at:
            import shutil

            shutil.rmtree(whole.checkpoint(step))
    assert at in whole.checkpoint_steps() or not whole.checkpoint_steps() or max(whole.checkpoint_steps()) < at
    expected = numbers(whole)
    whole.summary.unlink()
    _, error = collapse(*ROLLBACK, "trainer.save_every=1", resume=True)
    assert error is None
    assert numbers(whole) == expected
    assert len(whole.read_rollbacks()) == 1


def test_after_so_many_rollbacks_the_run_stops(collapse):
    run, error = collapse("diagnosis.action={early: rollback}", "diagnosis.rollback={lr_factor: 1, every: 1, times: 1}")
    assert isinstance(error, RunFailed)
    assert len(run.read_rollbacks()) == 1
    assert [a["action"] for a in run.read_alarms() if a["action"] != "warn"] == ["rollback", "stop"]


def test_a_stopped_run_can_be_rolled_back_on_resuming(collapse):
    run, _ = collapse("diagnosis.action={early: stop}", "diagnosis.rollback.every=1")
    stopped = run.read_alarms()[-1]
    _, error = collapse(*ROLLBACK, resume=True)
    assert error is None
    assert run.read_rollbacks()[0]["alarm"] == stopped
    assert run.read_metrics()[-1]["step"] == 8


def test_rollback_can_change_the_objective(collapse):
    run, _ = collapse(
        "diagnosis.action={early: rollback}",
        "diagnosis.rollback={objective: search_sapo, parameters: {search_sapo: {gamma: 1.0}}, every: 1, lr_factor: 0.01}",
    )
    assert run.read_rollbacks()[0]["settings"]["objective"] == "search_sapo"
    after = run.read_rollbacks()[0]["to_step"]
    assert all(("term/search_sapo" in r) == (r["step"] > after) for r in run.read_metrics())


def test_an_objective_to_roll_back_to_that_is_not_there_is_refused_before_training(collapse):
    run, error = collapse("diagnosis.action=rollback", "diagnosis.rollback.objective=search_sapoo")
    assert isinstance(error, UserError)
    assert "search_sapo" in str(error)
    assert not run.path.exists()
