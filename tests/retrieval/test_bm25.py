import math
import threading
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from sleuth.retrieval import bm25, postings
from sleuth.retrieval.analysis import Analyzer
from sleuth.retrieval.bm25 import BM25Retriever, BM25Settings
from sleuth.retrieval.corpus import Corpus
from sleuth.types import Document, Retriever, SearchRequest

CITIES = Corpus(
    [
        Document("paris", "Paris", "Paris is the capital of France. It lies on the Seine."),
        Document("berlin", "Berlin", "Berlin is the capital of Germany."),
        Document("sao", "São Paulo", "A city in Brazil. Beyoncé sang there in 2010."),
        Document("lyon", "Lyon", "Lyon is a city in France."),
    ]
)


def ids(results):
    return [[document.id for document in result.documents] for result in results]


def search(retriever, *queries, k=3, corpus=None):
    return retriever.search([SearchRequest(query, corpus) for query in queries], k)


def plain_bm25(texts, words, k1, b):
    """Lucene's formula, word by word and passage by passage."""
    passages = [Analyzer()(text) for text in texts]
    mean = sum(map(len, passages)) / len(passages)
    scores = []
    for passage in passages:
        counts, score = Counter(passage), 0.0
        for word in words:
            df = sum(word in other for other in passages)
            idf = math.log(1 + (len(passages) - df + 0.5) / (df + 0.5))
            tf = counts[word]
            score += idf * tf / (tf + k1 * (1 - b + b * len(passage) / mean)) if tf else 0.0
        scores.append(score)
    return scores


WORDS = st.sampled_from(["ada", "bo", "cy", "dee", "eve"])
TEXTS = st.lists(st.lists(WORDS, max_size=8).map(" ".join), min_size=1, max_size=12)


@given(
    texts=TEXTS,
    query=st.lists(WORDS | st.just("unknown"), max_size=6),
    k=st.integers(1, 15),
    k1=st.floats(0.1, 3),
    b=st.floats(0, 1),
)
def test_scores_are_those_of_the_formula_and_the_best_come_first(texts, query, k, k1, b):
    corpus = Corpus([Document(str(i), "", text) for i, text in enumerate(texts)])
    retriever = BM25Retriever(corpus, BM25Settings(k1=k1, b=b))
    (result,) = search(retriever, " ".join(query), k=k)
    # Without any word in the corpus there is no mean length to speak of.
    expected = plain_bm25(texts, query, k1, b) if any(texts) else [0.0] * len(texts)
    positive = sorted((score for score in expected if score > 0), reverse=True)
    assert [d.score for d in result.documents] == pytest.approx(positive[:k], rel=1e-5)
    for document in result.documents:
        assert document.score == pytest.approx(expected[int(document.id)], rel=1e-5)
    assert len({d.id for d in result.documents}) == len(result.documents)


def test_it_is_a_retriever_and_returns_whole_passages():
    retriever = BM25Retriever(CITIES)
    assert isinstance(retriever, Retriever)
    (result,) = search(retriever, "Where did Beyoncé sing in 2010?", k=1)
    document = result.documents[0]
    assert (document.id, document.title, document.text) == ("sao", "São Paulo", CITIES.documents[2].text)
    assert document.score > 0
    assert not result.failed


def test_the_title_counts():
    corpus = Corpus([Document("1", "", "a river"), Document("2", "Seine", "a river")])
    assert ids(search(BM25Retriever(corpus), "seine")) == [["2"]]


def test_k_beyond_the_corpus_returns_distinct_passages():
    corpus = Corpus([Document("1", "", "red"), Document("2", "", "red blue")])
    assert ids(search(BM25Retriever(corpus), "red", k=3)) == [["1", "2"]]


@pytest.mark.parametrize("query", ["北京", "the", "", "   ", "?!", "xyzzy", "\ud800", "\0"])
def test_a_query_without_known_words_finds_nothing_and_does_not_fail(query):
    (result,) = search(BM25Retriever(CITIES), query)
    assert result.documents == []
    assert result.error is None


def test_passages_without_a_word_of_the_query_are_not_returned():
    assert ids(search(BM25Retriever(CITIES), "germany unknownword", k=4)) == [["berlin"]]


def test_each_query_of_a_batch_gets_its_own_pages_in_order():
    retriever = BM25Retriever(CITIES)
    results = search(retriever, "berlin", "lyon", "berlin", "nothing known", "são")
    assert [found[:1] for found in ids(results)] == [["berlin"], ["lyon"], ["berlin"], [], ["sao"]]
    results[0].documents[0].score = -1.0
    results[0].documents.append(results[1].documents[0])
    assert results[2].documents[0].score > 0
    assert ids(results)[2] == ["berlin"]
    assert CITIES.documents[1].score is None


@given(texts=TEXTS, queries=st.lists(st.lists(WORDS, max_size=4).map(" ".join), min_size=1, max_size=8))
def test_results_do_not_depend_on_the_batch(texts, queries):
    retriever = BM25Retriever(Corpus([Document(str(i), "", text) for i, text in enumerate(texts)]))
    together = search(retriever, *queries)
    assert together == [search(retriever, query)[0] for query in queries]


def test_the_best_of_many_are_those_of_a_sort_ties_in_the_order_of_the_corpus():
    rng = np.random.default_rng(0)
    for passages, k in [(1, 1), (63, 3), (640, 9), (641, 10), (5000, 3), (5000, 77), (5000, 78), (5000, 5001)]:
        scores = rng.integers(0, 40, passages).astype(np.float32)
        scores[rng.random(passages) < rng.random()] = 0
        expected = [row for row in np.argsort(-scores, kind="stable").tolist() if scores[row] > 0][:k]
        assert postings._best(scores, k) == expected


def test_equal_scores_keep_the_order_of_the_corpus():
    corpus = Corpus([Document(str(i), "", "red" if i % 2 else "blue") for i in range(40)])
    retriever = BM25Retriever(corpus)
    assert ids(search(retriever, "red", k=5)) == [["1", "3", "5", "7", "9"]]
    assert ids(search(retriever, "red blue", k=3)) == [["0", "1", "2"]]


def test_surrogates_and_nul_separate_words_and_the_batch_is_answered():
    assert [found[:1] for found in ids(search(BM25Retriever(CITIES), "lyon\ud800x", "\0berlin\0", "paris"))] == [
        ["lyon"],
        ["berlin"],
        ["paris"],
    ]


def test_an_empty_batch():
    assert BM25Retriever(CITIES).search([], 3) == []


def test_k_below_one_is_a_programming_error():
    with pytest.raises(ValueError, match="at least 1"):
        search(BM25Retriever(CITIES), "paris", k=0)


def test_a_corpus_without_any_word_finds_nothing():
    corpus = Corpus([Document("1", "The", "?"), Document("2", "", "")])
    assert ids(search(BM25Retriever(corpus), "the", "x")) == [[], []]


# ---------------------------------------------------------------------------------------------------------------------
# Parts

WORLDS = Corpus(
    [
        Document("a1", "Mira", "Mira lives in Oslo."),
        Document("b1", "Mira", "Mira lives in Rome."),
        Document("a2", "Oslo", "Oslo is cold."),
        Document("b2", "Rome", "Rome is warm. Mira likes it."),
        Document("free", "Mira", "Belongs to no world."),
    ],
    ["a", "b", "a", "b", None],
)


def test_a_search_stays_inside_its_part():
    retriever = BM25Retriever(WORLDS)
    requests = [SearchRequest("mira", part) for part in ("a", "b", None, "a")]
    results = retriever.search(requests, 10)
    assert [sorted(found) for found in ids(results)] == [["a1"], ["b1", "b2"], ["a1", "b1", "b2", "free"], ["a1"]]


def test_a_part_is_scored_as_if_it_were_the_whole_corpus():
    alone = BM25Retriever(Corpus([WORLDS.documents[1], WORLDS.documents[3]]))
    inside = BM25Retriever(WORLDS)
    assert search(inside, "mira likes rome", corpus="b") == search(alone, "mira likes rome")


def test_an_unknown_part_fails_alone():
    results = BM25Retriever(WORLDS).search([SearchRequest("mira", "c"), SearchRequest("mira", "a")], 3)
    assert results[0].failed
    assert results[0].error == 'the corpus has no part "c"'
    assert results[0].documents == []
    assert ids(results)[1] == ["a1"]


def test_an_index_is_built_once_and_only_for_parts_asked_for(monkeypatch):
    built = []
    original = bm25._Index

    def index(documents, *rest):
        built.append([document.id for document in documents])
        return original(documents, *rest)

    monkeypatch.setattr(bm25, "_Index", index)
    retriever = BM25Retriever(WORLDS)
    search(retriever, "mira", "oslo", corpus="a")
    search(retriever, "mira", corpus="a")
    assert built == [["a1", "a2"]]


def test_threads_get_the_same_answers_from_one_index(monkeypatch):
    built = []
    original = bm25._Index
    monkeypatch.setattr(bm25, "_Index", lambda *arguments: built.append(1) or original(*arguments))
    retriever = BM25Retriever(WORLDS)
    answers = []
    start = threading.Barrier(8)

    def work():
        start.wait()
        answers.append(search(retriever, "mira rome", corpus="b"))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(built) == 1
    assert len(answers) == 8
    assert all(answer == answers[0] for answer in answers)


# ---------------------------------------------------------------------------------------------------------------------
# Settings


def test_stop_words_can_be_searched_when_asked_for():
    corpus = Corpus([Document("1", "The Who", "a band"), Document("2", "Queen", "a band")])
    assert ids(search(BM25Retriever(corpus), "the")) == [[]]
    assert ids(search(BM25Retriever(corpus, BM25Settings(stopwords="none")), "the")) == [["1"]]
    own = BM25Settings(stopwords=["band"])
    assert ids(search(BM25Retriever(corpus, own), "band", "the")) == [[], ["1"]]


@pytest.mark.parametrize(
    "wrong",
    [
        {"k1": -1},
        {"k1": float("nan")},
        {"k1": float("inf")},
        {"b": 1.1},
        {"b": -0.1},
        {"stopwords": "german"},
        {"k2": 1},
    ],
)
def test_impossible_settings_are_refused(wrong):
    with pytest.raises(ValidationError):
        BM25Settings(**wrong)


def test_the_index_keeps_no_state_between_settings():
    low, high = BM25Settings(k1=0.0, b=0.0), BM25Settings(k1=3.0, b=0.0)
    corpus = Corpus([Document("1", "", "red"), Document("2", "", "red red red red")])
    assert ids(search(BM25Retriever(corpus, low), "red")) == [["1", "2"]]
    assert ids(search(BM25Retriever(corpus, high), "red")) == [["2", "1"]]


def test_prepared_parts_are_not_built_again_and_unknown_ones_are_left(monkeypatch):
    corpus = Corpus([Document("1", "a", "one"), Document("2", "b", "two")], ["x", "y"])
    retriever = BM25Retriever(corpus)
    retriever.prepare(["x", None, "nowhere"])
    monkeypatch.setattr(bm25, "_Index", None)
    assert ids(search(retriever, "one", corpus="x")) == [["1"]]
    assert ids(search(retriever, "two")) == [["2"]]
    with pytest.raises(TypeError):
        search(retriever, "two", corpus="y")
