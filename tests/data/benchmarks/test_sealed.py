"""BrowseComp's encryption, on rows made here: none of the benchmark's own."""

import csv
import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleuth.data.benchmarks import load_benchmark, sealed_row
from sleuth.data.benchmarks.load import fetch_benchmark
from sleuth.data.benchmarks.sealed import decrypt, encrypt, opened_row
from sleuth.errors import UserError
from sleuth.types import Question

CANARY = "a canary of this test"
SECRET, ANSWER = "Which unheard-of lighthouse did the invented keeper leave?", "Zzyzx Light"


@pytest.fixture
def rows():
    return [
        {
            "problem": encrypt(SECRET, CANARY),
            "answer": encrypt(ANSWER, CANARY),
            "problem_topic": "Other",
            "canary": CANARY,
        },
        {
            "problem": encrypt("Second?", CANARY),
            "answer": encrypt("2", CANARY),
            "problem_topic": "Art",
            "canary": CANARY,
        },
    ]


@pytest.fixture
def folder(tmp_path, rows):
    with (tmp_path / "test.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return tmp_path


def test_the_published_scheme():
    # SHA-256 of "key" starts with 2c70e12b: XOR of "abcd" with it is 4d 12 82 4f.
    assert encrypt("abcd", "key") == "TRKCTw=="
    assert decrypt("TRKCTw==", "key") == "abcd"


@given(st.text(), st.text(min_size=1))
def test_decrypting_gives_the_text_back(text, canary):
    assert decrypt(encrypt(text, canary), canary) == "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)


def test_questions_are_read_in_plain_text(folder):
    loaded = load_benchmark("browsecomp", folder=folder)
    question = loaded.questions[0]
    assert (question.question, question.golden_answers) == (SECRET, [ANSWER])
    assert (question.id, question.extra["qtype"]) == ("browsecomp_0", "Other")
    assert loaded.provenance.sealed
    assert (loaded.provenance.questions, loaded.provenance.expected) == (2, 1266)


def test_no_plain_text_in_any_file_of_the_cache(folder, cache):
    fetch_benchmark("browsecomp", folder=folder)
    assert load_benchmark("browsecomp").questions[0].question == SECRET
    files = [path for path in cache.rglob("*") if path.is_file()]
    assert len(files) == 3
    for path in files:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        assert SECRET.encode() not in content
        assert ANSWER.encode() not in content
        assert b"lighthouse" not in content


def test_what_is_written_down_is_sealed_and_can_be_opened(folder):
    question = load_benchmark("browsecomp", folder=folder).questions[0]
    row = {
        "id": question.id,
        "data_source": "browsecomp",
        "question": SECRET,
        "golden_answers": [ANSWER],
        "prediction": None,
        "em": 0.0,
        "spans": [{"text": f"asks {SECRET}", "ids": [1, 2]}],
    }
    written = sealed_row(row, question)
    assert "lighthouse" not in json.dumps(written)
    assert "Zzyzx" not in json.dumps(written)
    assert (written["id"], written["em"], written["spans"][0]["ids"]) == (question.id, 0.0, [1, 2])
    assert opened_row(written, CANARY) == row


def test_rows_of_open_benchmarks_stay_as_they_are():
    row = {"id": "q", "question": "Who?"}
    assert sealed_row(row, Question("q", "Who?", ["a"])) == row


def test_a_row_that_cannot_be_read_is_refused_with_its_place(folder, tmp_path):
    bad = tmp_path / "bad"
    bad.mkdir()
    (bad / "test.jsonl").write_text(json.dumps({"problem": "%%%", "answer": "aa==", "canary": CANARY}))
    with pytest.raises(UserError, match=r"line 1: a sealed text can't be read"):
        load_benchmark("browsecomp", folder=bad)
    (bad / "test.jsonl").write_text(json.dumps({"problem": encrypt("x", CANARY), "answer": encrypt("y", CANARY)}))
    with pytest.raises(UserError, match='no "canary"'):
        load_benchmark("browsecomp", folder=bad)


def test_a_file_under_the_published_name_must_be_the_published_one(folder):
    (folder / "test.csv").rename(folder / "browse_comp_test_set.csv")
    with pytest.raises(UserError, match=r"not the published browse_comp_test_set.csv \(SHA-256"):
        load_benchmark("browsecomp", folder=folder)


def test_without_a_network_it_is_one_line(monkeypatch):
    def refuse(*args, **kwargs):
        raise OSError("Name or service not known")

    monkeypatch.setattr("urllib.request.urlopen", refuse)
    with pytest.raises(UserError, match=r"can't be reached \(Name or service not known\).*--from FOLDER"):
        load_benchmark("browsecomp")


def test_a_download_with_another_hash_is_refused(monkeypatch, folder, cache):
    monkeypatch.setattr("urllib.request.urlopen", lambda *args, **kwargs: (folder / "test.csv").open("rb"))
    with pytest.raises(UserError, match="not the published file"):
        load_benchmark("browsecomp")
    assert not (cache / "browsecomp").exists()
