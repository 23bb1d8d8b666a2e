import json
from pathlib import Path

import pytest

from sleuth.errors import UserError
from sleuth.jsonl import write_jsonl
from sleuth.retrieval.corpus import Corpus, corpus_hash, read_corpus, split_contents
from sleuth.types import Document

SHARED = Path(__file__).parents[3] / "shared" / "data"


def written(tmp_path, *rows, name="corpus.jsonl"):
    path = tmp_path / name
    write_jsonl(path, rows)
    return path


def test_both_forms_give_the_same_passage(tmp_path):
    path = written(
        tmp_path,
        {"id": "a", "contents": '"Ed Wood (film)"\nEd Wood is a film.\nBy Tim Burton.'},
        {"id": 7, "title": "Ed Wood (film)", "text": "Ed Wood is a film.\nBy Tim Burton.", "sources": ["x"]},
    )
    first, second = read_corpus(path).documents
    assert first == Document("a", "Ed Wood (film)", "Ed Wood is a film.\nBy Tim Burton.")
    assert second == Document("7", first.title, first.text)


@pytest.mark.parametrize(
    ("contents", "title", "text"),
    [
        ('"Paris"\nA city.', "Paris", "A city."),
        ("Paris\nA city.", "Paris", "A city."),
        ('"Paris"', "Paris", ""),
        ("A city.", "", "A city."),
        ('"Harriet "Hattie" Elizabeth Wilcox"\nx', 'Harriet "Hattie" Elizabeth Wilcox', "x"),
        ('"The "Globus""\nx', 'The "Globus"', "x"),
        ('""Heroes" (album)"\nx', '"Heroes" (album)', "x"),
        ('"""Heroes"" (album)"\nx', '"Heroes" (album)', "x"),
        ('"Merry Go Round (Royce da 5\'9" song)"\nx', "Merry Go Round (Royce da 5'9\" song)", "x"),
        ("Merry Go Round 5'9\"\nx", "Merry Go Round 5'9\"", "x"),
        ('"\nx', '"', "x"),
        ('""\nx', "", "x"),
        ('  "Paris" \r\n A city. \n', "Paris", "A city."),
        ("", "", ""),
    ],
)
def test_the_title_is_the_first_line_without_its_outer_quotes(contents, title, text):
    assert split_contents(contents) == (title, text)


def test_title_and_text_win_over_contents(tmp_path):
    path = written(tmp_path, {"id": "1", "contents": '"A"\nb', "title": "C", "text": "d"})
    assert read_corpus(path).documents == [Document("1", "C", "d")]


def test_parts_are_kept_and_listed_in_order(tmp_path):
    rows = [
        {"id": str(i), "text": "x", **({"corpus": part} if part else {})} for i, part in enumerate(["a", "b", "", "a"])
    ]
    corpus = read_corpus(written(tmp_path, *rows))
    assert corpus.parts == ["a", "b", None, "a"]
    assert corpus.members() == {"a": [0, 3], "b": [1]}


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"contents": "x"}, '"id"'),
        ({"id": None, "contents": "x"}, '"id"'),
        ({"id": True, "contents": "x"}, '"id"'),
        ({"id": "", "contents": "x"}, '"id"'),
        ({"id": "2"}, 'neither "contents" nor "text"'),
        ({"id": "2", "title": "x"}, 'neither "contents" nor "text"'),
        ({"id": "2", "contents": ["x"]}, '"contents" must be a string'),
        ({"id": "2", "text": None}, '"text" must be a string'),
        ({"id": "2", "title": 3, "text": "x"}, '"title" must be a string'),
        ({"id": "2", "text": "x", "corpus": 3}, '"corpus" must be a string'),
        ({"id": "1", "text": "x"}, 'id "1" was used on line 1'),
        ({"id": 1, "text": "x"}, 'id "1" was used on line 1'),
    ],
)
def test_a_broken_row_is_named_by_file_and_line(tmp_path, row, says):
    path = written(tmp_path, {"id": "1", "text": "y"}, row)
    with pytest.raises(UserError) as error:
        read_corpus(path)
    assert f"{path}, line 2" in str(error.value)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_an_empty_corpus_is_refused(tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_text("\n\n")
    with pytest.raises(UserError, match="no passages"):
        read_corpus(path)


def test_surrogates_in_a_passage_become_replacement_characters(tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_text(json.dumps({"id": "1", "title": "\ud800", "text": "a\udfffb"}))
    assert read_corpus(path).documents == [Document("1", "\ufffd", "a\ufffdb")]


def test_the_hash_depends_on_content_alone(tmp_path):
    contents = read_corpus(written(tmp_path, {"id": "1", "contents": '"A"\nb', "extra": 1}, name="a.jsonl.gz"))
    fields = read_corpus(written(tmp_path, {"id": 1, "title": "A", "text": "b"}, name="b.jsonl.zst"))
    assert corpus_hash(contents) == fields.hash
    assert len(fields.hash) == 64


def test_the_hash_sees_every_field_its_borders_and_the_order():
    def corpus(*rows, parts=()):
        return Corpus([Document(*row) for row in rows], list(parts))

    one = ("1", "ab", "c")
    variants = [
        corpus(one),
        corpus(("2", "ab", "c")),
        corpus(("1", "a", "bc")),
        corpus(("1", "", "abc")),
        corpus(one, parts=[""]),
        corpus(one, parts=["p"]),
        corpus(one, ("2", "", "")),
        corpus(("2", "", ""), one),
    ]
    assert len({v.hash for v in variants}) == len(variants)


def test_as_many_parts_as_passages():
    with pytest.raises(ValueError, match="2 parts for 1 documents"):
        Corpus([Document("1", "")], ["a", "b"])


@pytest.mark.skipif(not SHARED.exists(), reason="the shared Wikipedia passages are not here")
def test_the_real_corpora_read_whole():
    assert len(read_corpus(SHARED / "squad" / "corpus.jsonl.gz")) == 240
    assert read_corpus(SHARED / "search_r1_example" / "corpus.jsonl").documents[0].title == "Evan Morris"
