import json

import pytest

from sleuth.data.check import check_questions
from sleuth.jsonl import write_jsonl

GOOD = {"id": "1", "question": "Who?", "golden_answers": ["Ann"], "data_source": "nq", "hops": 1}


@pytest.fixture
def check(tmp_path):
    def run(*rows):
        write_jsonl(tmp_path / "dev.jsonl", rows)
        return check_questions(tmp_path / "dev.jsonl")

    return run


def test_good_set_has_counts_and_no_findings(check):
    report = check(GOOD, GOOD | {"id": "2", "question": "When?", "data_source": "hotpotqa", "hops": 2})
    assert report.ok
    assert report.as_dict() | {"source": ""} == {
        "source": "",
        "rows": 2,
        "ok": True,
        "by_source": {"nq": 1, "hotpotqa": 1},
        "by_hops": {"1": 1, "2": 1},
        "errors": [],
        "warnings": [],
    }


def test_every_broken_row_is_reported_with_its_line(check):
    report = check(
        {"id": "1", "question": " ", "golden_answers": ["a"]},
        GOOD | {"id": "2"},
        {"id": "3", "question": "B?", "golden_answers": []},
        {"id": "4", "question": "C?"},
        GOOD | {"id": "2", "question": "D?"},
        {"id": "6", "question": "E?", "golden_answers": ["Ann", " "]},
    )
    expected = [
        ("line 1", '"question" is blank'),
        ("line 3", "no golden answer ([])"),
        ("line 4", "no golden answers"),
        ("line 5", "id was used in"),
        ("line 6", 'golden answer " " is never right by squad'),
        ("line 6", 'golden answer " " is never right by robust'),
    ]
    assert len(report.errors) == len(expected)
    for finding, (line, message) in zip(report.errors, expected, strict=True):
        assert line in finding
        assert message in finding
    assert not report.ok
    assert report.rows == 6


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"golden_answers": ["The The"]}, 'golden answer "The The" normalises to nothing by squad'),
        ({"golden_answers": ["???"]}, 'golden answer "???" normalises to nothing by robust'),
        ({"golden_answers": ["“”"]}, "normalises to nothing by robust"),
        ({"golden_answers": "['Ann', 'Anna']"}, "looks like a list"),
        ({"question": "  WHO"}, "the same question as in"),
    ],
)
def test_doubtful_row_is_a_warning(check, row, message):
    report = check(GOOD, GOOD | {"id": "2", "question": "What?"} | row)
    assert report.ok
    assert any("line 2" in warning and message in warning for warning in report.warnings)


def test_a_row_written_twice_is_one_finding_for_each_time(check):
    other = GOOD | {"id": "2", "question": "When?"}
    report = check(GOOD, other, GOOD, GOOD, other | {"id": "1"})
    assert [line for n in (3, 4, 5) for line in report.errors if f"line {n} " in line] == report.errors
    assert len(report.errors) == 3
    assert len(report.warnings) == 1
    assert "line 5 " in report.warnings[0]
    assert report.warnings[0].endswith("line 2")


def test_line_that_is_not_json_ends_the_check_as_an_error(tmp_path):
    path = tmp_path / "dev.jsonl"
    path.write_text(json.dumps(GOOD) + '\n{"id": \n')
    report = check_questions(path)
    assert report.rows == 1
    assert len(report.errors) == 1
    assert "line 2: not JSON" in report.errors[0]


def test_empty_and_missing_files_are_errors(tmp_path, check):
    assert check().errors == [f"{tmp_path / 'dev.jsonl'}: no rows"]
    assert "no such file" in check_questions(tmp_path / "nowhere.jsonl").errors[0]


@pytest.mark.parametrize("name", ["hotpotqa", "musique", "bamboogle", "popqa"])
def test_real_set_has_no_errors(real_data, name):
    report = check_questions(real_data / name / "questions.jsonl.gz")
    assert report.errors == []
    assert report.by_source == {name: report.rows}
