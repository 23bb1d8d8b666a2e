import json

import pytest

from sleuth.data.convert import convert
from sleuth.data.questions import load_questions, write_questions
from sleuth.errors import UserError
from sleuth.jsonl import read_jsonl, write_jsonl
from sleuth.retrieval.corpus import read_corpus
from sleuth.types import Question

QUESTIONS = [
    Question("w1-7", "Who is 北京?", ["Ann", "a"], "hopworld", "w1", ["A", "B"], {"hops": 2, "type": "bridge"}),
    Question("8", "When?", ["1,000"], "", None, [], {"decomposition": [{"question": "?", "title": None}], "fold": 3}),
    Question("9", "Why?", ["é"]),
]
ENDINGS = {"questions": "jsonl.gz", "flashrag": "jsonl", "search-r1": "parquet", "verl": "parquet"}


@pytest.fixture
def source(tmp_path):
    write_questions(tmp_path / "source.jsonl", QUESTIONS)
    return tmp_path / "source.jsonl"


@pytest.mark.parametrize("form", ENDINGS)
def test_questions_survive_there_and_back(tmp_path, source, form):
    if ENDINGS[form] == "parquet":
        pytest.importorskip("pyarrow")
    there, back = tmp_path / f"there.{ENDINGS[form]}", tmp_path / "back.jsonl"
    assert convert(source, there, form=form).questions == 3
    assert load_questions(there) == QUESTIONS
    convert(there, back)
    assert back.read_bytes() == source.read_bytes()


def test_parquet_has_the_columns_that_other_trainers_read(tmp_path, source):
    parquet = pytest.importorskip("pyarrow.parquet")
    convert(source, tmp_path / "train.parquet", prompt="Use <search>. Question: {question}")
    row = parquet.read_table(tmp_path / "train.parquet").to_pylist()[1]
    assert row["prompt"] == [{"role": "user", "content": "Use <search>. Question: When?"}]
    assert row["reward_model"] == {"style": "rule", "ground_truth": {"target": ["1,000"]}}
    assert row["extra_info"]["index"] == 1
    assert row["extra_info"]["question"] == "When?"
    assert (row["id"], row["data_source"], row["golden_answers"]) == ("8", "", ["1,000"])


def test_parquet_for_verl_names_the_agent_loop_in_each_row(tmp_path, source):
    parquet = pytest.importorskip("pyarrow.parquet")
    convert(source, tmp_path / "train.parquet", form="verl")
    convert(source, tmp_path / "plain.parquet")
    rows, plain = (parquet.read_table(tmp_path / name).to_pylist() for name in ("train.parquet", "plain.parquet"))
    assert [row.pop("agent_name") for row in rows] == ["search_tags"] * 3
    assert rows == plain


def test_parquet_of_many_row_groups_keeps_order(tmp_path):
    pytest.importorskip("pyarrow")
    questions = [Question(str(n), f"Question {n}?", ["a"]) for n in range(2500)]
    write_questions(tmp_path / "many.jsonl", questions)
    convert(tmp_path / "many.jsonl", tmp_path / "many.parquet")
    assert load_questions(tmp_path / "many.parquet") == questions


def test_flashrag_row_has_its_four_fields(tmp_path, source):
    convert(source, tmp_path / "f.jsonl", form="flashrag")
    _, row = next(read_jsonl(tmp_path / "f.jsonl"))
    assert list(row) == ["id", "question", "golden_answers", "metadata"]
    assert row["metadata"]["type"] == "bridge"


def test_selection_and_limit(tmp_path, source):
    assert convert(source, tmp_path / "t.jsonl", where={"fold": 3}).questions == 1
    assert convert(source, tmp_path / "t.jsonl", limit=2).questions == 2
    assert len(load_questions(tmp_path / "t.jsonl")) == 2


HOTPOTQA = [
    {
        "_id": "h1",
        "question": "Who?",
        "answer": "Ann",
        "supporting_facts": [["A", 0], ["B", 0]],
        "context": [["A", ["One.", " Two."]], ['"B" (song)', ["Three."]], ["C", ["Four."]]],
    },
    {
        "_id": "h2",
        "question": "When?",
        "answer": "1999",
        "supporting_facts": [["C", 0]],
        "context": [["C", ["Four."]], ["C", ["Five."]]],
    },
]


def test_context_lists_become_questions_and_a_pooled_corpus(tmp_path):
    (tmp_path / "hotpot.json").write_text(json.dumps(HOTPOTQA))
    done = convert(tmp_path / "hotpot.json", tmp_path / "q.jsonl", corpus=tmp_path / "c.jsonl.gz")
    assert (done.questions, done.passages, done.incomplete) == (2, 4, 1)
    documents = read_corpus(tmp_path / "c.jsonl.gz").documents
    assert [(d.id, d.title, d.text) for d in documents] == [
        ("0", "A", "One. Two."),
        ("1", '"B" (song)', "Three."),
        ("2", "C", "Four."),
        ("3", "C", "Five."),
    ]
    one, other = load_questions(tmp_path / "q.jsonl")
    assert (one.supporting_titles, one.extra["supporting_ids"]) == (["A", "B"], ["0"])
    assert (other.extra["supporting_ids"], other.extra["context_ids"]) == (["2", "3"], ["2", "3"])


def test_only_the_paragraphs_of_selected_rows_are_pooled(tmp_path):
    (tmp_path / "hotpot.json").write_text(json.dumps(HOTPOTQA))
    done = convert(tmp_path / "hotpot.json", tmp_path / "q.jsonl", corpus=tmp_path / "c.jsonl", where={"id": "h2"})
    assert (done.questions, done.passages) == (1, 2)


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        ("t.parquet", {"form": "flashrag"}, "flashrag is written as .jsonl"),
        ("t.jsonl", {"form": "search-r1"}, "search-r1 is written as .parquet"),
        ("t.jsonl", {"form": "squad"}, "must be one of questions, flashrag, search-r1, verl"),
        ("t.parquet", {"prompt": "Answer."}, "no {question}"),
        ("t.jsonl", {"corpus": "c.jsonl"}, "no row brings paragraphs"),
        ("t.jsonl", {"corpus": "t.jsonl"}, "two files"),
        ("t.jsonl", {"where": {"folds": 3}}, "did you mean fold?"),
        ("t.jsonl", {"limit": 0}, "limit=0"),
    ],
)
def test_wrong_options_are_refused_and_nothing_is_written(tmp_path, monkeypatch, source, target, options, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=message.replace("{", r"\{")):
        convert(source, target, **options)
    assert [path.name for path in tmp_path.iterdir()] == ["source.jsonl"]


def test_broken_row_leaves_the_old_target_whole(tmp_path):
    write_jsonl(tmp_path / "s.jsonl", [{"id": "1", "question": "Who?", "answer": "Ann"}, {"id": "2"}])
    (tmp_path / "t.jsonl").write_text("old\n")
    with pytest.raises(UserError, match=r"s\.jsonl, line 2"):
        convert(tmp_path / "s.jsonl", tmp_path / "t.jsonl")
    assert (tmp_path / "t.jsonl").read_text() == "old\n"


def test_real_questions_survive_parquet(tmp_path, real_data):
    pytest.importorskip("pyarrow")
    source = real_data / "musique" / "questions.jsonl.gz"
    convert(source, tmp_path / "musique.parquet")
    assert load_questions(tmp_path / "musique.parquet") == load_questions(source)
