import gzip
import json

import pytest

from sleuth.errors import UserError
from sleuth.jsonl import write_jsonl
from sleuth.retrieval.chunking import Chunking
from sleuth.retrieval.corpus import read_corpus, read_passages
from sleuth.retrieval.problems import Problem, Problems
from sleuth.retrieval.sources import source_files

ROWS = [{"id": "1", "contents": '"Paris"\nA city.'}, {"id": 2, "title": "Rome", "text": "Another."}]
PASSAGES = [("1", "Paris", "A city."), ("2", "Rome", "Another.")]


def read(source, strict=False, **settings):
    problems = Problems(strict=strict)
    found = [(p.document.id, p.document.title, p.document.text) for p in read_passages(source, problems, **settings)]
    return found, problems


@pytest.mark.parametrize("name", ["c.jsonl", "c.ndjson", "c.jsonl.gz", "c.jsonl.zst", "corpus"])
def test_lines_plain_or_packed(tmp_path, name):
    write_jsonl(tmp_path / name, ROWS)
    found, problems = read(tmp_path / name)
    assert found == PASSAGES
    assert problems.total == 0


def test_parquet(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pytest.importorskip("pyarrow").table({"id": ["1"], "contents": ['"Paris"\nA city.']})
    parquet.write_table(table, tmp_path / "c.parquet")
    assert read(tmp_path / "c.parquet")[0] == PASSAGES[:1]


def test_a_dataset_that_was_saved_to_disk(tmp_path):
    datasets = pytest.importorskip("datasets")
    datasets.Dataset.from_list([{"id": str(r["id"]), "text": "x"} for r in ROWS]).save_to_disk(str(tmp_path / "d"))
    assert [p[0] for p in read(tmp_path / "d")[0]] == ["1", "2"]


def test_a_folder_of_rows_is_read_file_after_file(tmp_path):
    write_jsonl(tmp_path / "b.jsonl.gz", ROWS[1:])
    write_jsonl(tmp_path / "a.jsonl", ROWS[:1])
    (tmp_path / "README").write_text("not read")
    assert read(tmp_path)[0] == PASSAGES
    assert [f.name for f in source_files(tmp_path)] == ["a.jsonl", "b.jsonl.gz"]


def test_a_folder_of_texts_becomes_passages_named_by_file_and_place(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "rail.md").write_text("# Rail\nTrains run.\n\n## Night\nSleepers too.")
    (tmp_path / "a.txt").write_text("one two three four five six seven eight nine ten. eleven twelve.")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "x.md").write_text("hidden")
    found, problems = read(tmp_path, chunking=Chunking(words=10))
    assert found == [
        ("a.txt#1", "a", "one two three four five six seven eight nine ten."),
        ("a.txt#2", "a", "eleven twelve."),
        ("sub/rail.md#1", "Rail", "Trains run."),
        ("sub/rail.md#2", "Rail › Night", "Sleepers too."),
    ]
    assert problems.total == 0


def test_an_unreadable_or_empty_text_is_counted_and_the_rest_is_read(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"caf\xe9")
    (tmp_path / "b.txt").write_text(" \n")
    (tmp_path / "c.txt").write_text("fine")
    found, problems = read(tmp_path)
    assert [p[2] for p in found] == ["fine"]
    assert problems.counts == {Problem.BROKEN: 1, Problem.EMPTY: 1}


def test_text_and_rows_in_one_folder_are_refused(tmp_path):
    write_jsonl(tmp_path / "a.jsonl", ROWS)
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(UserError, match="1 text files and 1 files of rows"):
        read(tmp_path)


def test_an_empty_folder_says_what_belongs_there(tmp_path):
    with pytest.raises(UserError, match=r"no passages; put \.txt"):
        read(tmp_path)


@pytest.fixture
def damaged(tmp_path):
    path = tmp_path / "c.jsonl"
    lines = [
        json.dumps(ROWS[0]).encode(),
        b'{"id": "x", "contents"',
        b"\xff",
        b"[1]",
        b"",
        json.dumps({"id": None, "text": "x"}).encode(),
        json.dumps({"id": "e", "title": " ", "text": ""}).encode(),
        json.dumps(ROWS[1]).encode(),
    ]
    path.write_bytes(b"\n".join(lines))
    return path


def test_what_is_wrong_is_counted_with_its_lines_and_the_rest_is_read(damaged):
    found, problems = read(damaged)
    assert found == PASSAGES
    assert problems.counts == {Problem.BROKEN: 3, Problem.WRONG_FIELD: 1, Problem.EMPTY: 1}
    said = list(problems.lines())
    assert "3 left out, broken line (lines 2, 3, 4)" in said[0]
    assert f"{damaged}, line 2: not JSON" in said[0]
    assert problems.as_json()["wrong field"] == {"count": 1, "lines": [6]}


def test_a_strict_reading_stops_at_the_first(damaged):
    with pytest.raises(UserError, match="line 2"):
        read(damaged, strict=True)
    with pytest.raises(UserError, match="line 2"):
        read_corpus(damaged)


def test_a_cut_archive_stops_every_reading(tmp_path):
    path = tmp_path / "c.jsonl.gz"
    path.write_bytes(gzip.compress(b"".join(json.dumps(r).encode() + b"\n" for r in ROWS))[:-9])
    with pytest.raises(UserError, match="cut off"):
        read(path)


def test_only_the_first_lines_are_listed(tmp_path):
    path = tmp_path / "c.jsonl"
    path.write_text("x\n" * 9)
    _, problems = read(path)
    assert "9 left out, broken line (lines 1, 2, 3, 4, 5, …)" in next(problems.lines())
