from concurrent.futures import ThreadPoolExecutor

import pytest

from sleuth.errors import UserError
from sleuth.retrieval.analysis import LUCENE_STOPWORDS, Analyzer, clean_query


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The Capital of France", ["capital", "france"]),
        ("Apollo 11, 1969; 3.14", ["apollo", "11", "1969", "3", "14"]),
        ("Beyoncé's São Paulo", ["beyoncé", "s", "são", "paulo"]),
        ("Beyonce\u0301", ["beyoncé"]),
        ("ﬁlm Ｆ１", ["film", "f1"]),
        ("Straße Ω", ["straße", "ω"]),
        ("北京 大学", ["北京", "大学"]),
        ("don't O'Neil U.S.", ["don", "t", "o", "neil", "u", "s"]),
        ("the of a", []),
        ("?! …", []),
        ("", []),
    ],
)
def test_words_are_lower_case_unicode_without_stop_words(text, words):
    assert Analyzer()(text) == words


def test_stop_words_can_be_others_or_none():
    assert Analyzer([])("The Who") == ["the", "who"]
    assert Analyzer(["WHO"])("The Who") == ["the"]
    assert len(LUCENE_STOPWORDS) == 33


def test_repeated_words_are_all_kept():
    assert Analyzer()("New York, New York") == ["new", "york", "new", "york"]


def test_surrogates_and_nul_become_replacement_characters():
    assert clean_query("a\ud800b\0c é") == "a\ufffdb\ufffdc é"
    assert clean_query("plain\0") == "plain\ufffd"


def test_words_are_stemmed_after_the_stop_words_are_out():
    pytest.importorskip("Stemmer")
    analyzer = Analyzer(stemmer="porter")
    assert analyzer("The cities were running into theirs") == ["citi", "were", "run", "their"]
    assert Analyzer.described(analyzer.description)("cities") == ["citi"]
    with pytest.raises(UserError, match="stemmer=klingon isn't known"):
        Analyzer(stemmer="klingon")


def test_threads_stem_alike():
    pytest.importorskip("Stemmer")
    analyzer = Analyzer(stemmer="english")
    with ThreadPoolExecutor(4) as pool:
        assert set(map(tuple, pool.map(analyzer, ["cities running"] * 40))) == {("citi", "run")}
