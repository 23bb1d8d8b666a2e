"""A report that is made again as its run goes on."""

import json

import pytest

from sleuth.report.page import render
from sleuth.report.rollout_rows import unpack
from sleuth.report.rollouts import Options
from sleuth.report.sources import find_source
from sleuth.report.watch import watch

from .conftest import record


def overview(file):
    text = file.read_text()
    return unpack(text.split('id="overview">')[1].split("<")[0])


def test_it_is_made_when_the_run_has_written_more_and_once_more_at_its_end(run_folder):
    summary = (run_folder / "summary.json").read_text()
    (run_folder / "summary.json").unlink()
    file = run_folder / "report.html"
    made, slept = [], []

    def sleep(seconds):
        slept.append(seconds)
        if len(slept) == 2:  # nothing new at the first look
            with (run_folder / "metrics.jsonl").open("a") as lines:
                lines.write(json.dumps(record(21)) + "\n")
        if len(slept) == 3:
            (run_folder / "summary.json").write_text(summary)

    def told(data):
        shown = overview(file)
        made.append((data["run"]["metrics"]["steps"][-1], shown["run"]["finished"], shown["live"]))

    watch(find_source(run_folder), file, Options(), 5, told, sleep)
    assert made == [(20, False, 5), (21, False, 5), (21, True, None)]
    assert all(seconds >= 5 for seconds in slept)


def test_the_page_is_the_same_for_the_same_data(run_folder):
    from sleuth.report.collect import collect

    data = collect(run_folder)
    assert render(data) == render(data)
    assert render(data, live=5) != render(data)


def test_a_report_appears_whole_or_not_at_all(run_folder, monkeypatch):
    from sleuth.report import write

    file = run_folder / "report.html"
    file.write_text("the old one")
    monkeypatch.setattr(write, "render", lambda data, live: (_ for _ in ()).throw(MemoryError()))
    with pytest.raises(MemoryError):
        write.write_report(find_source(run_folder), file)
    assert file.read_text() == "the old one"
