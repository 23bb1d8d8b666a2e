import pytest

from sleuth.data.questions import load_questions, select_questions, write_questions
from sleuth.errors import UserError
from sleuth.jsonl import write_jsonl
from sleuth.rewards.graders import GRADERS

ROWS = [
    {"id": f"q{n}", "question": f"Question {n}?", "golden_answers": ["a"], "fold": n % 5, "support": support}
    for n, support in enumerate(["gold", "none"] * 10)
]


@pytest.fixture
def path(tmp_path):
    write_jsonl(tmp_path / "dev.jsonl", ROWS)
    return tmp_path / "dev.jsonl"


def test_selection_by_fields(path):
    chosen = load_questions(path, where={"support": "gold", "fold": [2, 3]})
    assert [q.id for q in chosen] == ["q2", "q8", "q12", "q18"]
    assert [q.id for q in load_questions(path, where={"fold": range(2)}, limit=3)] == ["q0", "q1", "q5"]


def test_selection_by_field_of_an_object(tmp_path):
    rows = [row | {"extra_info": {"split": split}} for row, split in zip(ROWS, ["train", "test"] * 10, strict=True)]
    write_jsonl(tmp_path / "v.jsonl", rows)
    assert len(load_questions(tmp_path / "v.jsonl", where={"extra_info.split": "test"})) == 10


def test_several_sets_follow_each_other(tmp_path, path):
    write_jsonl(tmp_path / "more.jsonl", [{"id": "m", "question": "More?", "answer": "b"}])
    assert [q.id for q in load_questions([path, tmp_path / "more.jsonl"])][-2:] == ["q19", "m"]


def test_id_used_twice_is_refused_with_both_places(tmp_path, path):
    write_jsonl(tmp_path / "more.jsonl", ROWS[3:4])
    with pytest.raises(UserError, match=r'more\.jsonl, line 1: id "q3" was used in .*dev\.jsonl, line 4'):
        load_questions([path, tmp_path / "more.jsonl"])


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({"suport": "gold"}, 'no row has the field "suport"; did you mean support?'),
        ({"xyz": 1}, 'no row has the field "xyz"; there are data_source, fold,'),
        ({"fold": [7]}, r"none of 20 rows has fold in \[7\]"),
        ({"fold": "2"}, r"none of 20 rows has fold in \['2'\]"),
    ],
)
def test_selection_that_leaves_nothing_says_why(path, where, message):
    with pytest.raises(UserError, match=message):
        load_questions(path, where=where)


def test_empty_file_and_senseless_limit_are_refused(tmp_path, path):
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(UserError, match=r"empty\.jsonl: no rows"):
        load_questions(tmp_path / "empty.jsonl")
    with pytest.raises(UserError, match="limit=0"):
        load_questions(path, limit=0)


def test_written_questions_come_back(tmp_path, path):
    questions = load_questions(path)
    write_questions(tmp_path / "copy.jsonl.zst", questions)
    assert load_questions(tmp_path / "copy.jsonl.zst") == questions
    assert [(row.number, q) for row, q in select_questions(path)] == list(enumerate(questions, 1))


@pytest.mark.parametrize(
    ("name", "rows", "gold"),
    [
        ("nq", 3270, 2990),
        ("squad", 1184, 1184),
        ("hotpotqa", 1616, 600),
        ("musique", 1154, 200),
        ("2wiki", 1214, 86),
        ("bamboogle", 125, 0),
        ("triviaqa", 633, 0),
        ("popqa", 623, 0),
        ("frames", 824, 0),
    ],
)
def test_real_sets_load_and_every_golden_answer_passes_both_graders(real_data, name, rows, gold):
    questions = load_questions(real_data / name / "questions.jsonl.gz")
    assert len(questions) == rows
    supported = [q for q in questions if q.extra["support"] == "gold"]
    assert len(supported) == gold
    assert all(q.supporting_titles for q in supported)
    for grader in GRADERS.values():
        assert all(grader.exact_match(answer, [answer]) for q in questions for answer in q.golden_answers)


def test_real_folds_part_train_from_test(real_data):
    path = real_data / "hotpotqa" / "questions.jsonl.gz"
    train = load_questions(path, where={"support": "gold", "fold": range(2, 10)})
    test = load_questions(path, where={"support": "gold", "fold": [0, 1]})
    assert len(train) + len(test) == 600
    assert not {q.id for q in train} & {q.id for q in test}
