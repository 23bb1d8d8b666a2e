import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from cities import CITIES

from sleuth.errors import UserError
from sleuth.jsonl import write_jsonl
from sleuth.retrieval import lucene
from sleuth.retrieval.lucene import make
from sleuth.types import Retriever, SearchRequest


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    pytest.importorskip("jnius_config", reason="pyjnius isn't installed")
    try:
        jar = lucene._jar(None)
        lucene.start_java()
    except UserError as error:
        pytest.skip(str(error))
    work = tmp_path_factory.mktemp("lucene")
    (work / "in").mkdir()
    rows = [{"id": row["id"], "contents": f'"{row["title"]}"\n{row["text"]}'} for row in CITIES]
    write_jsonl(work / "in" / "cities.jsonl", rows)
    java = Path(os.environ["JAVA_HOME"], "bin", "java") if "JAVA_HOME" in os.environ else "java"
    done = subprocess.run(
        [
            java, "-cp", jar, "io.anserini.index.IndexCollection", "-collection", "JsonCollection",
            "-input", work / "in", "-index", work / "index", "-generator", "DefaultLuceneDocumentGenerator",
            "-threads", "1", "-storeRaw",
        ],
        capture_output=True,
        text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return work / "index"


def test_an_index_of_lucene_is_searched_as_it_is(folder):
    retriever = make(str(folder), k1=1.2, b=0.75)
    assert isinstance(retriever, Retriever)
    queries = ["Beyoncé", "capital of Germany", "", "xyzzy", "the", "O'Neil's \"foo C++ ( -bar:*", "lyon\ud800 \0x"]
    found = retriever.search([SearchRequest(query) for query in queries], 3)
    assert not any(result.failed for result in found)
    firsts = [[d.id for d in result.documents][:1] for result in found]
    assert firsts == [["sao"], ["berlin"], [], [], [], [], ["lyon"]]
    document = found[0].documents[0]
    assert (document.title, document.text) == (CITIES[2]["title"], CITIES[2]["text"])
    assert document.score > 0
    assert [d.title for d in retriever.page("lyon")] == ["Lyon"]
    assert retriever.page("nowhere") == []
    assert retriever.search([SearchRequest("x", "part")], 1)[0].failed


def test_k_and_the_settings_of_bm25_are_heeded(folder):
    request = [SearchRequest("capital city france")]
    scores = [
        [(d.id, d.score) for d in make(str(folder), k1=k1, b=b).search(request, 2)[0].documents]
        for k1, b in [(0.9, 0.4), (0.9, 0.4), (2, 1)]
    ]
    assert len(scores[0]) == 2
    assert scores[0] == scores[1] != scores[2]


def test_threads_search_side_by_side(folder):
    retriever, found = make(str(folder)), {}

    def search(number):
        results = retriever.search([SearchRequest(("Lyon", "Berlin")[number % 2])] * 20, 1)
        found[number] = {d.id for result in results for d in result.documents}

    threads = [threading.Thread(target=search, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {0: {"lyon"}, 1: {"berlin"}, 2: {"lyon"}, 3: {"berlin"}}


def test_a_damaged_index_is_one_line(folder, tmp_path):
    (tmp_path / "segments_1").write_bytes(b"no index")
    with pytest.raises(UserError, match=r"Exception") as error:
        make(str(tmp_path))
    assert "\n" not in str(error.value)


def test_what_is_no_lucene_index_is_refused(tmp_path):
    with pytest.raises(UserError, match="no Lucene index in this folder"):
        make(str(tmp_path))
    with pytest.raises(UserError, match=r"retriever\.settings\.k2 is not known"):
        make(str(tmp_path), k2=1)
    with pytest.raises(UserError, match=r"retriever\.settings\.k1 must be a number"):
        make(str(tmp_path), k1="high")
    with pytest.raises(UserError, match="name the Lucene folder"):
        make()


def test_what_is_missing_is_said_in_one_line(tmp_path):
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "segments_1").touch()
    (tmp_path / "hidden" / "jnius_config").mkdir(parents=True)
    (tmp_path / "hidden" / "jnius_config" / "__init__.py").write_text("raise ImportError('hidden')")
    (tmp_path / "there" / "jnius_config").mkdir(parents=True)
    (tmp_path / "there" / "jnius_config" / "__init__.py").write_text("vm_running = False\nadd_classpath = print")
    (tmp_path / "there" / "pyserini").mkdir()
    (tmp_path / "there" / "pyserini" / "__init__.py").touch()

    def said(path, call):
        source = f"from sleuth.errors import UserError\nfrom sleuth.retrieval.lucene import make\ntry: {call}\n"
        source += "except UserError as error: print(error)"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(path), os.environ.get("PYTHONPATH", "")])}
        done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("\n") == 1
        return done.stdout

    index = str(tmp_path / "index")
    assert "needs pyjnius" in said(tmp_path / "hidden", f"make({index!r})")
    assert "needs Anserini's jar" in said(tmp_path / "there", f"make({index!r})")
    assert "jar=x.jar: no such file" in said(tmp_path / "there", f"make({index!r}, jar='x.jar')")
