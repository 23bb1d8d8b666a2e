import json

import pytest

from sleuth.errors import UserError
from sleuth.question_sets import limited, question_sets, split_off, without, world_files
from sleuth.recipes.loader import load_recipe, resolve
from sleuth.types import Question

SMALL_WORLD = [
    "world={train: {worlds: 3, questions: 30}, dev: {worlds: 2, questions: 8}, test: {worlds: 2, questions: 6}}"
]


@pytest.fixture
def rows(tmp_path):
    def write(name, *questions, **fields):
        lines = [
            {"id": f"{name}-{i}", "question": q, "golden_answers": ["x"], "data_source": name, "fold": i % 3} | fields
            for i, q in enumerate(questions)
        ]
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return str(path)

    return write


def sets(say=lambda line: None, **data):
    return question_sets(resolve({"data": data}), say=say)


def texts(questions):
    return [q.question for q in questions]


def test_filters_hold_for_their_own_split(rows):
    file = rows("a", "one", "two", "three", "four", "five", "six")
    found = sets(train=file, train_where={"fold": [0, 1]}, test=file, test_where={"fold": 2}, dev_size=1)
    assert texts(found.test) == ["three", "six"]
    assert sorted(texts([*found.train, *found.dev])) == ["five", "four", "one", "two"]


def test_null_drops_an_inherited_condition(rows):
    file = rows("a", "one", "two")
    assert len(sets(test=file, test_where={"fold": None}).test) == 2


def test_a_filter_that_leaves_nothing_is_refused(rows):
    with pytest.raises(UserError, match="fold"):
        sets(test=rows("a", "one"), test_where={"fold": 9})


def test_questions_of_the_test_set_leave_training_and_that_is_said(rows):
    said = []
    train = rows("train", "Who wrote it?", "Where is it?", "When was it?", "Why is it?")
    found = sets(said.append, train=train, test=rows("test", "who wrote it", "WHERE is  it ?"), dev_size=1)
    assert sorted(texts([*found.train, *found.dev])) == ["When was it?", "Why is it?"]
    assert found.shared == 2
    assert said == ["2 training questions are in the test set too; training leaves them out"]


def test_a_named_dev_set_stays_apart_from_test_and_train(rows):
    found = sets(train=rows("a", "one", "two", "three"), dev=rows("b", "two", "four"), test=rows("c", "four", "five"))
    assert (texts(found.train), texts(found.dev), texts(found.test)) == (["one", "three"], ["two"], ["four", "five"])


def test_training_on_nothing_but_test_questions_is_refused(rows):
    with pytest.raises(UserError, match="every training question"):
        sets(train=rows("a", "one"), test=rows("b", "one"))


def test_dev_is_split_off_by_seed_and_takes_at_most_half(rows):
    file = rows("a", *[f"question {i}" for i in range(10)])
    first, again = sets(train=file, dev_size=3), sets(train=file, dev_size=3)
    assert (len(first.train), len(first.dev)) == (7, 3)
    assert texts(first.dev) == texts(again.dev)
    assert len(sets(train=file, dev_size=100).dev) == 5


def test_the_same_question_is_never_in_train_and_dev():
    questions = [Question(str(i), f"question {i % 4}", ["x"]) for i in range(12)]
    rest, dev = split_off(questions, 2, seed=0)
    assert len(dev) == 6
    assert not set(texts(rest)) & set(texts(dev))


def test_a_question_about_another_part_of_the_corpus_is_another_question():
    one, two = Question("1", "who is it ?", ["x"], corpus="w1"), Question("2", "who is it ?", ["y"], corpus="w2")
    assert without([one], [two]) == ([one], 0)


def test_a_limit_holds_for_each_data_source_and_keeps_the_order():
    questions = [Question(f"{s}{i}", f"{s} {i}", ["x"], data_source=s) for i in range(9) for s in ("a", "b")]
    kept = limited([*questions, Question("c0", "c", ["x"], data_source="c")], 4, seed=1)
    assert [sum(q.data_source == s for q in kept) for s in "abc"] == [4, 4, 1]
    assert [q.id for q in kept if q.data_source == "a"] == sorted(q.id for q in kept if q.data_source == "a")
    assert kept != limited(questions, 4, seed=2)


def test_a_world_is_written_to_the_run_folder_once(tmp_path):
    recipe = load_recipe("laptop", SMALL_WORLD)
    files = world_files(recipe, tmp_path)
    before = files.corpus.stat().st_mtime_ns
    found = question_sets(recipe, files)
    assert (len(found.train), len(found.dev), len(found.test)) == (30, 8, 6)
    assert world_files(recipe, tmp_path).corpus.stat().st_mtime_ns == before
    assert {q.corpus for q in found.train}.isdisjoint({q.corpus for q in found.test})


def test_other_settings_write_the_world_again(tmp_path):
    first = world_files(load_recipe("laptop", SMALL_WORLD), tmp_path).corpus.read_bytes()
    assert world_files(load_recipe("laptop", [*SMALL_WORLD, "world.seed=9"]), tmp_path).corpus.read_bytes() != first


def test_a_sealed_benchmark_is_for_evaluation_alone(rows, tmp_path, monkeypatch):
    from sleuth.data.benchmarks.load import fetch_benchmark
    from sleuth.data.benchmarks.sealed import encrypt

    monkeypatch.setenv("SLEUTH_CACHE", str(tmp_path / "cache"))
    row = {"problem": encrypt("Which light?", "key"), "answer": encrypt("x", "key"), "canary": "key"}
    (tmp_path / "test.jsonl").write_text(json.dumps(row))
    fetch_benchmark("browsecomp", folder=tmp_path)
    recipe = resolve({"data": {"train": rows("a", "one", "two"), "test": "browsecomp"}})
    assert texts(question_sets(recipe, splits=["test"]).test) == ["Which light?"]
    with pytest.raises(UserError, match="browsecomp is published encrypted"):
        question_sets(recipe)
