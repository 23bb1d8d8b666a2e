import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleuth.errors import UserError
from sleuth.jsonl import replace_surrogates
from sleuth.retrieval.corpus import joined_contents, read_corpus
from sleuth.retrieval.store import PassageStore, StoreWriter, escaped_field, field_hash, without_duplicates
from sleuth.types import Document

TEXT = st.text(max_size=30).map(replace_surrogates) | st.sampled_from(
    ['","title":"', '","text":"', '"}', "\\", "\n", "\t\0"]
)


def written(folder, documents):
    writer = StoreWriter(folder)
    for document in documents:
        writer.add(document)
    writer.close()
    return PassageStore(folder)


@given(st.lists(st.builds(Document, TEXT, TEXT, TEXT), max_size=6))
def test_every_passage_comes_back_as_it_was(tmp_path_factory, documents):
    store = written(tmp_path_factory.mktemp("store"), documents)
    assert list(store.documents()) == documents
    for row, document in enumerate(documents):
        passages = store.passages([row, row])
        line = json.loads(passages.lines()[1])
        assert line == {"id": document.id, "contents": joined_contents(document)}
        assert store.fields(row) == (passages.ids()[1], passages.titles()[1], passages.texts()[1])
        assert [json.loads(b'"' + f + b'"') for f in store.fields(row)] == [document.id, document.title, document.text]


def test_the_lines_are_a_corpus_themselves(tmp_path):
    documents = [Document("1", "Beyoncé", 'a "b"\nc'), Document("2", "", "x")]
    written(tmp_path, documents)
    assert read_corpus(tmp_path / "passages.jsonl").documents == documents


def test_passages_are_found_by_id_and_title(tmp_path):
    documents = [Document(str(n), f"T{n % 2}", "x") for n in range(9)]
    written(tmp_path, documents).write_lookups()
    store = PassageStore(tmp_path)
    assert store.rows_of_id("7") == [7]
    assert store.rows_of_title("T1") == [1, 3, 5, 7]
    assert store.rows_of_id("T1") == store.rows_of_title("7") == []


def test_a_tail_behind_the_count_is_not_there_and_is_cut_by_the_next_writer(tmp_path):
    store = written(tmp_path, [Document("1", "", "a"), Document("2", "", "b")])
    one = PassageStore(tmp_path, 1)
    assert len(one) == 1
    assert one.bytes < store.bytes
    writer = StoreWriter(tmp_path, (one.bytes, 1))
    writer.add(Document("3", "", "c"))
    writer.close()
    assert [d.id for d in PassageStore(tmp_path).documents()] == ["1", "3"]


def test_a_store_that_was_cut_off_is_refused(tmp_path):
    written(tmp_path, [Document("1", "", "a" * 100)])
    lines = tmp_path / "passages.jsonl"
    lines.write_bytes(lines.read_bytes()[:50])
    with pytest.raises(UserError, match=r"cut off; build the index again"):
        PassageStore(tmp_path)
    with pytest.raises(UserError, match=r"can't be read"):
        PassageStore(tmp_path / "nowhere")


def test_the_first_passage_with_an_id_stays(tmp_path):
    documents = [Document(i, "", str(n)) for n, i in enumerate(["a", "b", "a", "c", "b", "a"])]
    written(tmp_path, documents)
    hashes = np.array([field_hash(escaped_field(d.id)) for d in documents], np.uint64)
    assert without_duplicates(tmp_path, hashes) == [("a", 2, 0), ("b", 4, 1), ("a", 5, 0)]
    assert [d.text for d in PassageStore(tmp_path).documents()] == ["0", "1", "3"]


def test_ids_of_the_same_hash_that_differ_both_stay(tmp_path):
    written(tmp_path, [Document("a", "", "1"), Document("b", "", "2")])
    assert without_duplicates(tmp_path, np.array([5, 5], np.uint64)) == []
    assert len(PassageStore(tmp_path)) == 2
