import json

import pytest
from cities import CITIES

from sleuth.cli import run
from sleuth.jsonl import write_jsonl
from sleuth.retrieval.index import open_index
from sleuth.types import SearchRequest


@pytest.fixture
def sleuth(capsys):
    def command(*arguments):
        code = run([str(a) for a in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return command


def found(folder, query):
    return [d.id for d in open_index(folder).search([SearchRequest(query)], 5)[0].documents]


def test_an_index_is_built_after_an_estimate(sleuth, tmp_path, corpus):
    code, _, said = sleuth("index", corpus, "-o", tmp_path / "index", "--k1", 0.9, "--b", 0.4)
    assert code == 0
    assert said.index("estimate: about 5 passages") < said.index("5 passages,", said.index("indexing"))
    assert found(tmp_path / "index", "museum") == ["paris-2"]
    code, out, _ = sleuth("index", tmp_path / "index", "--json")
    assert (code, json.loads(out)["settings"]) == (0, {"k1": 0.9, "b": 0.4})


def test_a_folder_that_is_not_there_is_said(sleuth, tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")

    def not_on_the_hub(*arguments, **settings):
        raise FileNotFoundError("Couldn't find it")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(datasets, "load_dataset", not_on_the_hub)
    for missing in ("docs", "my/docs", "docs/", "docs.jsonl"):
        code, _, said = sleuth("index", missing, "-o", "index")
        assert code == 2
        assert "no such file" in said
        assert said.startswith(f"sleuth: {missing}")
        assert said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_serving_a_corpus_says_that_it_wants_an_index(sleuth, corpus):
    for module in ("uvicorn", "prometheus_client"):
        pytest.importorskip(module)
    code, _, said = sleuth("serve", corpus, "--port", 0)
    assert code == 2
    assert said == f"sleuth: {corpus}: a file, and no index; index it first: sleuth index {corpus} -o DIR\n"


def test_a_dry_run_builds_nothing(sleuth, tmp_path, corpus):
    code, _, said = sleuth("index", corpus, "-o", tmp_path / "index", "--dry-run")
    assert code == 0
    assert "estimate" in said
    assert not (tmp_path / "index").exists()


def test_a_folder_of_texts(sleuth, tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("# Rail\nTrains run at night.")
    assert sleuth("index", tmp_path / "docs", "-o", tmp_path / "index", "--chunk-words", 20)[0] == 0
    assert found(tmp_path / "index", "night trains") == ["a.md#1"]


def test_bad_lines_are_said_and_strict_stops(sleuth, tmp_path):
    path = tmp_path / "c.jsonl"
    path.write_text(json.dumps(CITIES[0]) + "\n{\n")
    code, _, said = sleuth("index", path, "-o", tmp_path / "a")
    assert code == 0
    assert "warning: 1 left out, broken line (lines 2)" in said
    code, _, said = sleuth("index", path, "-o", tmp_path / "b", "--strict")
    assert code == 2
    assert f"{path}, line 2: not JSON" in said
    assert not (tmp_path / "b").exists()


def test_passages_are_added_and_deleted(sleuth, tmp_path, corpus):
    pytest.importorskip("tantivy")
    index = tmp_path / "index"
    assert sleuth("index", corpus, "-o", index, "--kind", "tantivy")[0] == 0
    write_jsonl(tmp_path / "more.jsonl", [{"id": "oslo", "text": "Oslo is a capital."}])
    (tmp_path / "ids").write_text("paris\nlyon\n")
    code, _, said = sleuth("index", "-o", index, "--add", tmp_path / "more.jsonl", "--delete", f"@{tmp_path / 'ids'}")
    assert code == 0
    assert "1 added, 0 replaced, 2 deleted" in said
    assert sorted(found(index, "capital")) == ["berlin", "oslo"]


@pytest.mark.parametrize(
    "option", [["--kind", "bm25"], ["--k1", "1"], ["--stemmer", "porter"], ["--device", "cpu"], ["--dry-run"]]
)
def test_a_change_takes_no_option_of_a_build(sleuth, tmp_path, corpus, option):
    pytest.importorskip("tantivy")
    index = tmp_path / "index"
    assert sleuth("index", corpus, "-o", index, "--kind", "tantivy")[0] == 0
    code, _, said = sleuth("index", "-o", index, "--delete", "paris", *option)
    assert code == 2
    assert f"{option[0]} means nothing for --add and --delete; drop it" in said
    assert "paris" in found(index, "capital")


def test_a_change_of_what_is_no_index_says_how_to_build_one(sleuth, tmp_path, corpus):
    code, _, said = sleuth("index", "-o", tmp_path / "nowhere", "--add", corpus)
    assert code == 2
    assert "no such folder; build one: sleuth index" in said
    (tmp_path / "empty").mkdir()
    code, _, said = sleuth("index", "-o", tmp_path / "empty", "--delete", "x")
    assert "no index in this folder" in said
    assert list((tmp_path / "empty").iterdir()) == []


def test_each_warning_is_one_line(sleuth, tmp_path):
    path = tmp_path / ("a-long-name-of-a-folder-" * 5) / "c.jsonl"
    path.parent.mkdir()
    path.write_text(json.dumps(CITIES[0]) + "\n{\n{}\n")
    _, _, said = sleuth("index", path, "-o", tmp_path / "a")
    assert [line.split()[0] for line in said.splitlines()] == [
        "estimate:", "reading", "indexing", "warning:", "warning:", f"{tmp_path / 'a'}:", "search",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--kind", "bm52"], "bm25"),
        (["--encoder", "x"], "--encoder means nothing for --kind bm25"),
        (["--kind", "tantivy", "--k1", "0.9"], "tantivy has k1=1.2 and b=0.75"),
        (["--kind", "dense"], "needs --encoder"),
        (["--k1", "-1"], "bm25.k1"),
        (["--chunk-words", "3"], "chunking.words"),
        (["--words", "tantivy"], "--words means nothing"),
    ],
)
def test_a_wrong_option_is_one_line(sleuth, tmp_path, corpus, arguments, says):
    for module in ("tantivy", "faiss"):
        pytest.importorskip(module)
    code, _, said = sleuth("index", corpus, "-o", tmp_path / "index", *arguments)
    assert code == 2
    assert says in said
    assert said.count("\n") == 1


def test_what_is_missing_is_said(sleuth, tmp_path, corpus):
    assert "name the index folder" in sleuth("index", corpus)[2]
    assert "name the passages" in sleuth("index", "-o", tmp_path / "i")[2]
    assert "no such file" in sleuth("index", tmp_path / "no.jsonl", "-o", tmp_path / "i")[2]
