import json
import sys

import pytest

from sleuth.cli import run

MODULE = """
def grade(prediction, golden_answers):
    return prediction == golden_answers[0]

def reward(solution_str, ground_truth):
    return 1.0 if "Paris" in solution_str else 0.0

nothing = 3
"""


@pytest.fixture
def sleuth(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "their_graders.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "their_graders", raising=False)

    def command(*arguments):
        code = run(["conformance", *arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return command


def test_sleuth_itself_passes(sleuth):
    code, out, _ = sleuth("--set", "G")
    assert code == 0
    assert "set G: 27 of 27 pass" in out


def test_another_grader_is_told_which_inputs_it_fails(sleuth):
    code, out, _ = sleuth("--grader", "their_graders:grade")
    assert code == 1
    assert "fails G4 thousands: '1,000' / ['1000'] gave 0.0, expected 1" in out
    assert "can't be put to these functions" in out


def test_results_are_saved_and_stand_side_by_side(sleuth, tmp_path):
    sleuth("-o", "sleuth.json", "--set", "G", "--set", "E")
    sleuth("--grader", "their_graders:reward", "--name", "theirs", "-o", "theirs.json")
    saved = json.loads((tmp_path / "theirs.json").read_text())
    assert saved["schema"] == "sleuth.conformance/1"
    assert len(saved["cases"]) == 68
    code, out, _ = sleuth("--table", "sleuth.json", "--table", "theirs.json", "--form", "markdown")
    assert code == 0
    assert "| kind | asked of | sleuth | theirs |" in out
    assert "| E1 | transcript | ok | ok |" in out
    assert "| E4 | turn | ok | – |" in out


def test_the_data_go_to_a_folder(sleuth, tmp_path):
    code, out, _ = sleuth("--export", "suite")
    assert code == 0
    assert "68 cases" in out
    lines = (tmp_path / "suite" / "extraction.jsonl").read_text().splitlines()
    assert {"id", "name", "seam", "input", "expect"} == set(json.loads(lines[0]))
    (tmp_path / "suite" / "extraction.jsonl").write_text("mine\n")
    code, _, error = sleuth("--export", "suite")
    assert (code, "is there already" in error) == (2, True)
    assert (tmp_path / "suite" / "extraction.jsonl").read_text() == "mine\n"
    assert sleuth("--export", "suite", "--force")[0] == 0
    assert (tmp_path / "suite" / "extraction.jsonl").read_text().splitlines() == lines


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--grader", "their_graders:nothing"], "is not callable"),
        (["--grader", "their_graders:none"], "has no none"),
        (["--grader", "their_graders"], "not a name of the form module:function"),
        (["--grader", "their_graders:grade", "--as", "pairs"], "--as pairs is not known"),
        (["--grader", "their_graders:grade", "--set", "V"], "no case of V can be put to their_graders:grade"),
        (["--set", "X"], "--set X is not known"),
        (["--rules", "strict"], "--rules strict is not known"),
        (["--table", "nowhere.json"], "nowhere.json: can't be read"),
    ],
)
def test_mistakes_are_one_line(sleuth, arguments, part):
    code, out, error = sleuth(*arguments)
    assert (code, out) == (2, "")
    assert part in error
    assert error.count("\n") == 1
