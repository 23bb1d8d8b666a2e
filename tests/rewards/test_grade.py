import pytest

from sleuth.errors import UserError
from sleuth.jsonl import write_jsonl
from sleuth.rewards.grade import GradeSummary, grade_file

ROWS = [
    {"id": "1", "prediction": "Beyonce", "golden_answers": ["Beyoncé"], "model": "m"},
    {"id": "2", "prediction": "-5", "golden_answers": "5"},
    {"id": "3", "prediction": None, "golden_answers": '["Paris"]'},
    {"id": 4, "prediction": "New York City", "golden_answers": {"target": ["New York"]}},
]


@pytest.fixture
def predictions(tmp_path):
    def write(rows, name="predictions.jsonl"):
        write_jsonl(tmp_path / name, rows)
        return tmp_path / name

    return write


def test_rows_come_back_with_both_graders(predictions):
    graded = list(grade_file(predictions(ROWS)))
    assert [{k: row[k] for k in source} for row, source in zip(graded, ROWS, strict=True)] == ROWS
    assert [row["squad"]["em"] for row in graded] == [0.0, 1.0, 0.0, 0.0]
    assert [row["robust"]["em"] for row in graded] == [1.0, 0.0, 0.0, 0.0]
    assert graded[3]["squad"] == {"em": 0.0, "f1": pytest.approx(0.8), "cover_em": 1.0}
    assert graded[2]["robust"] == {"em": 0.0, "f1": 0.0, "cover_em": 0.0}


def test_a_number_is_graded_as_its_text_and_stays_a_number(predictions):
    rows = [
        {"id": "1", "prediction": 1969, "golden_answers": [1969]},
        {"id": "2", "prediction": 2.5, "golden_answers": ["2.5"]},
    ]
    graded = list(grade_file(predictions(rows)))
    assert [row["prediction"] for row in graded] == [1969, 2.5]
    assert [row[grader]["em"] for row in graded for grader in ("squad", "robust")] == [1.0] * 4


def test_summary_counts_every_row(predictions):
    summary = GradeSummary()
    list(grade_file(predictions(ROWS), summary))
    assert summary.rows == summary.scored == 4
    assert summary.outcomes == {"answered": 3, "unanswered": 1, "truncated": 0, "failed": 0}
    assert summary.means["squad"] == {"em": 0.25, "f1": pytest.approx(0.45), "cover_em": 0.5}
    assert summary.as_dict()["robust"]["em"] == 0.25


def test_unanswered_truncated_and_failed_are_told_apart(predictions):
    base = {"golden_answers": ["Paris"], "prediction": "Paris"}
    rows = [
        base | {"id": "1", "status": "answered"},
        base | {"id": "2", "status": "no_answer", "prediction": None},
        base | {"id": "3", "status": "truncated", "prediction": "Paris"},
        base | {"id": "4", "status": "retriever_failed", "prediction": None},
        base | {"id": "5", "status": "failed"},
    ]
    summary = GradeSummary()
    graded = list(grade_file(predictions(rows), summary))
    assert summary.outcomes == {"answered": 1, "unanswered": 1, "truncated": 1, "failed": 2}
    assert (summary.rows, summary.scored) == (5, 3)
    assert summary.means["squad"]["em"] == pytest.approx(1 / 3)  # a failed row is neither right nor wrong
    assert [row["squad"] and row["squad"]["em"] for row in graded] == [1.0, 0.0, 0.0, None, None]
    with pytest.raises(UserError, match="\"status\" is 'lost'"):
        list(grade_file(predictions([base | {"id": "1", "status": "lost"}])))
    with pytest.raises(UserError, match="answered, but there is no prediction"):
        list(grade_file(predictions([base | {"id": "1", "status": "answered", "prediction": None}])))


def test_saved_rollouts_are_graded_and_compat_reads_their_whole_text(predictions):
    prompt = "answer between <answer> and </answer>, as in <answer> Beijing </answer>. Question: capital?"
    rollout = {
        "schema": "sleuth.rollout/1",
        "id": "q",
        "question": "capital?",
        "golden_answers": ["Beijing"],
        "answer": None,
        "status": "no_answer",
        "spans": [{"kind": "prompt", "text": prompt}, {"kind": "policy", "text": "I have no idea."}],
    }
    graders = ["squad", "robust", "search-r1-compat"]
    (row,) = grade_file(predictions([rollout]), graders=graders)
    assert [row[grader]["em"] for grader in graders] == [0.0, 0.0, 1.0]


def test_graded_file_can_be_graded_again(predictions):
    graded = list(grade_file(predictions(ROWS)))
    assert list(grade_file(predictions(graded, "again.jsonl.zst"))) == graded


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prediction": "x", "golden_answers": ["x"]}, 'no "id"'),
        ({"id": "1", "golden_answers": ["x"]}, 'no "prediction"'),
        ({"id": "1", "prediction": "x"}, 'no "golden_answers"'),
        ({"id": "1", "prediction": True, "golden_answers": ["x"]}, '"prediction" is True'),
        ({"id": "1", "prediction": float("nan"), "golden_answers": ["x"]}, '"prediction" is nan'),
        ({"id": "1", "prediction": ["x"], "golden_answers": ["x"]}, r'"prediction" is \[.x.\]'),
        ({"id": "1", "prediction": "x", "golden_answers": []}, r'"golden_answers": no golden answer'),
        ({"id": "1", "prediction": "x", "golden_answers": [None]}, r'"golden_answers": a golden answer is None'),
    ],
)
def test_broken_row_is_named(predictions, row, message):
    with pytest.raises(UserError, match=rf"predictions\.jsonl, line 2.*{message}"):
        list(grade_file(predictions([ROWS[0], row])))


def test_empty_file_is_refused(predictions):
    with pytest.raises(UserError, match="no rows to grade"):
        list(grade_file(predictions([])))
