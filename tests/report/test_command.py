"""`sleuth report`, and the report that `sleuth train` leaves."""

import pytest

from sleuth.cli import run
from sleuth.commands import train as train_command
from sleuth.errors import RunFailed

from .conftest import EXAMPLE, make_run


@pytest.fixture
def sleuth(capsys):
    """Runs a command line: (exit code, stdout, stderr)."""

    def command(*arguments):
        code = run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return command


def test_a_runs_report_goes_into_its_folder(sleuth, run_folder):
    code, out, _ = sleuth("report", run_folder)
    assert code == 0
    assert (run_folder / "report.html").is_file()
    assert out.split("\n")[0].endswith("20 steps, 1 alarms, 16 rollouts)")


@pytest.mark.parametrize("metrics", ["", '{"step": 1, "rew'])
def test_a_run_without_a_finished_step_leaves_the_page_that_is_there(sleuth, run_folder, metrics):
    (run_folder / "metrics.jsonl").write_text(metrics)
    (run_folder / "report.html").write_text("the page of before")
    code, out, error = sleuth("report", run_folder)
    assert (code, out) == (2, "")
    assert "metrics.jsonl: no finished step is in it" in error
    assert error.count("\n") == 1
    assert (run_folder / "report.html").read_text() == "the page of before"


def test_a_files_report_goes_where_it_is_told_and_says_what_it_lacks(sleuth, tmp_path):
    code, out, _ = sleuth("report", EXAMPLE, "-o", tmp_path / "deep" / "it.html", "--objective", "gspo")
    assert code == 0
    assert (tmp_path / "deep" / "it.html").is_file()
    assert "--tokenizer" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere: no such file"),
        (["."], "neither a run folder"),
        ([EXAMPLE, "--watch"], "a rollouts file does not grow"),
        ([EXAMPLE, "-o", "."], "is a folder; name the file"),
        ([EXAMPLE, "-o", "x.html", "--objective", "no_such"], "no_such"),
        ([EXAMPLE, "-o", "x.html", "--set", "grpo.clip_low=0.1"], "--set needs --objective"),
        ([EXAMPLE, "-o", "x.html", "--tokenizer", "no/such/folder"], "no/such/folder"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(sleuth, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    code, out, error = sleuth("report", *arguments)
    assert (code, out) == (2, "")
    assert message in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


SUMMARY = {"questions": 0, "steps": 20, "seconds": 1.0, "checkpoint": "checkpoints/step-20"}


@pytest.fixture
def trained(monkeypatch, example):
    """`sleuth train` with the training left out: it writes the example's run folder, and ends as told."""
    from sleuth.training import run as training

    def end_by(error=None):
        def fake(recipe, folder, **how):
            make_run(folder, example)
            if error:
                raise error
            return SUMMARY

        monkeypatch.setattr(training, "train", fake)

    return end_by


def test_training_leaves_a_report_and_names_it(sleuth, tmp_path, trained):
    trained()
    code, out, _ = sleuth("train", "laptop", "-o", tmp_path / "run")
    assert code == 0
    assert (tmp_path / "run" / "report.html").stat().st_size > 100_000
    assert f"{tmp_path / 'run' / 'report.html'}" in out


def test_a_run_that_an_alarm_stopped_has_its_report_too(sleuth, tmp_path, trained):
    trained(RunFailed("an alarm"))
    code, _, error = sleuth("train", "laptop", "-o", tmp_path / "run")
    assert (code, error) == (1, "sleuth: an alarm\n")
    assert (tmp_path / "run" / "report.html").is_file()


def test_a_report_that_fails_is_said_and_loses_nothing(sleuth, tmp_path, trained, monkeypatch):
    from sleuth.report import write

    def fail(*arguments, **more):
        raise ValueError("no room\nat all")

    trained()
    monkeypatch.setattr(write, "write_report", fail)
    code, out, error = sleuth("train", "laptop", "-o", tmp_path / "run")
    assert code == 0
    assert "20 steps" in out
    assert error.startswith("warning: no report was made (ValueError: no room at all); try `sleuth report")
    assert error.count("\n") == 1
    assert train_command.write_report_of(tmp_path / "run") is None
