import subprocess
import sys

import pytest
from cities import CITIES

from sleuth.errors import UserError
from sleuth.jsonl import write_jsonl
from sleuth.retrieval.lucene import make
from sleuth.types import Retriever, SearchRequest


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    pytest.importorskip("pyserini.search.lucene", reason="pyserini, or what it imports, isn't installed")
    work = tmp_path_factory.mktemp("lucene")
    (work / "in").mkdir()
    rows = [{"id": row["id"], "contents": f'"{row["title"]}"\n{row["text"]}'} for row in CITIES]
    write_jsonl(work / "in" / "cities.jsonl", rows)
    done = subprocess.run(
        [
            sys.executable, "-m", "pyserini.index.lucene", "--collection", "JsonCollection", "--input", work / "in",
            "--index", work / "index", "--generator", "DefaultLuceneDocumentGenerator", "--threads", "1", "--storeRaw",
        ],
        capture_output=True,
        text=True,
    )  # fmt: skip
    if done.returncode:
        pytest.skip(f"pyserini can't build an index here: {done.stderr.strip()[-200:]}")
    return work / "index"


def test_an_index_of_lucene_is_searched_as_it_is(folder):
    retriever = make(str(folder), k1=1.2, b=0.75)
    assert isinstance(retriever, Retriever)
    queries = ["Beyoncé", "capital of Germany", "", "xyzzy", "O'Neil's \"foo C++ ( -bar:*", "lyon\ud800x"]
    found = retriever.search([SearchRequest(query) for query in queries], 3)
    assert not any(result.failed for result in found)
    assert [[d.id for d in result.documents][:1] for result in found] == [["sao"], ["berlin"], [], [], [], ["lyon"]]
    document = found[0].documents[0]
    assert (document.title, document.text) == (CITIES[2]["title"], CITIES[2]["text"])
    assert [d.title for d in retriever.page("lyon")] == ["Lyon"]
    assert retriever.search([SearchRequest("x", "part")], 1)[0].failed


def test_what_is_no_lucene_index_is_refused(tmp_path):
    with pytest.raises(UserError, match="no Lucene index in this folder"):
        make(str(tmp_path))
    with pytest.raises(UserError, match=r"retriever\.settings\.k2 is not known"):
        make(str(tmp_path), k2=1)
    with pytest.raises(UserError, match="name the Lucene folder"):
        make()
