import threading

import pytest
from cities import CITIES, die, killed

from sleuth.errors import UserError
from sleuth.jsonl import write_jsonl
from sleuth.retrieval import changes
from sleuth.retrieval.build import IndexSettings, build_index
from sleuth.retrieval.changes import change_index
from sleuth.retrieval.index import open_index
from sleuth.types import SearchRequest

pytest.importorskip("tantivy")

NEW = [{"id": "oslo", "title": "Oslo", "text": "Oslo is the capital of Norway."}]


@pytest.fixture
def folder(tmp_path, corpus):
    build_index(str(corpus), tmp_path / "index", IndexSettings(kind="tantivy"))
    return tmp_path / "index"


@pytest.fixture
def more(tmp_path):
    write_jsonl(tmp_path / "more.jsonl", NEW)
    return str(tmp_path / "more.jsonl")


def found(folder, query="capital"):
    return {d.id for d in open_index(folder).search([SearchRequest(query)], 9)[0].documents}


def test_added_passages_are_found_and_keep_their_text(folder, more):
    before = open_index(folder).corpus_hash
    change = change_index(folder, add=more)
    assert (change.added, change.replaced, change.deleted) == (1, 0, 0)
    assert found(folder) == {"paris", "berlin", "oslo"}
    index = open_index(folder)
    assert index.corpus_hash != before
    assert index.page("Oslo")[0].text == NEW[0]["text"]
    assert len(index) == 6


def test_deleted_passages_are_found_no_more_and_have_no_page(folder):
    assert change_index(folder, delete=["paris"]).deleted == 1
    assert found(folder) == {"berlin"}
    index = open_index(folder)
    assert [d.id for d in index.page("Paris")] == ["paris-2"]
    assert index.page("paris") == []
    assert len(index) == 4


def test_an_id_that_is_there_is_replaced(folder, tmp_path):
    write_jsonl(tmp_path / "new.jsonl", [{"id": "berlin", "title": "Berlin", "text": "A seat of government."}])
    change = change_index(folder, add=str(tmp_path / "new.jsonl"))
    assert (change.added, change.replaced) == (0, 1)
    assert found(folder) == {"paris"}
    assert found(folder, "government") == {"berlin"}
    assert len(open_index(folder)) == len(CITIES)


def test_the_hash_tells_the_same_changes_from_others(tmp_path, corpus, more):
    hashes = []
    for name, deleted in [("a", ["lyon"]), ("b", ["lyon"]), ("c", ["sao"])]:
        build_index(str(corpus), tmp_path / name, IndexSettings(kind="tantivy"))
        change_index(tmp_path / name, add=more, delete=deleted)
        hashes.append(open_index(tmp_path / name).corpus_hash)
    assert hashes[0] == hashes[1] != hashes[2]


def test_an_unknown_id_changes_nothing(folder, more):
    before = open_index(folder).corpus_hash
    with pytest.raises(UserError, match=r"no passage has the id 'nowhere'; nothing was changed"):
        change_index(folder, add=more, delete=["paris", "nowhere"])
    assert open_index(folder).corpus_hash == before
    assert found(folder) == {"paris", "berlin"}


def test_only_tantivy_can_be_changed(tmp_path, corpus, more):
    build_index(str(corpus), tmp_path / "fixed", IndexSettings())
    with pytest.raises(UserError, match="a bm25 index can't be changed"):
        change_index(tmp_path / "fixed", add=more)


def test_two_at_once_are_refused(folder, more):
    with changes._locked(folder), pytest.raises(UserError, match="another process is changing"):
        threading_result(lambda: change_index(folder, add=more))


def threading_result(work):
    box = []

    def run():
        try:
            box.append(work())
        except BaseException as error:
            box.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if isinstance(box[0], BaseException):
        raise box[0]
    return box[0]


def kill_in(monkeypatch, folder, more, target, name):
    with monkeypatch.context() as patched:
        patched.setattr(target, name, die)
        assert killed(lambda: change_index(folder, add=more, delete=["paris"]))


def test_killed_before_the_commit_nothing_has_changed(folder, more, monkeypatch):
    from sleuth.retrieval.store import StoreWriter
    from sleuth.retrieval.tantivy_index import TantivyWriter

    for target, name in [(StoreWriter, "close"), (changes, "_coming"), (TantivyWriter, "commit")]:
        kill_in(monkeypatch, folder, more, target, name)
        assert found(folder) == {"paris", "berlin"}
    change_index(folder, add=more)
    assert found(folder) == {"paris", "berlin", "oslo"}
    assert open_index(folder).page("oslo")[0].text == NEW[0]["text"]


def test_killed_after_the_commit_everything_has_changed(folder, more, monkeypatch):
    original = changes._finish
    calls = []

    def finish_once(path):
        calls.append(1)
        if len(calls) == 2:
            die()
        original(path)

    with monkeypatch.context() as patched:
        patched.setattr(changes, "_finish", finish_once)
        assert killed(lambda: change_index(folder, add=more, delete=["paris"]))
    assert (folder / changes.COMING).exists()
    assert found(folder) == {"berlin", "oslo"}
    assert not (folder / changes.COMING).exists()
    assert open_index(folder).page("oslo")[0].text == NEW[0]["text"]
