import pytest

from sleuth.errors import UserError
from sleuth.evaluation.coverage import answer_coverage
from sleuth.retrieval.bm25 import BM25Retriever
from sleuth.retrieval.corpus import Corpus
from sleuth.types import Document, Question, SearchResult

CORPUS = Corpus([Document("1", "Paris", "The capital of France."), Document("2", "Rome", "The capital of Italy.")])


def questions(*rows):
    return [Question(str(n), text, list(answers)) for n, (text, *answers) in enumerate(rows)]


def test_the_share_of_questions_whose_answer_is_found():
    asked = questions(
        ("capital of France?", "paris!", "x"), ("capital of Italy?", "Rom"), ("capital of Spain?", "Italy")
    )
    coverage = answer_coverage(BM25Retriever(CORPUS), asked, 1)
    assert (coverage.questions, coverage.found) == (3, 1)
    assert answer_coverage(BM25Retriever(CORPUS), asked, 2).found == 2
    assert coverage.line() == ("retriever: 33% of 3 questions have their answer in the top 1 for the question itself")


def test_yes_and_no_are_not_looked_for():
    assert answer_coverage(BM25Retriever(CORPUS), questions(("Is Paris old?", "yes")), 3).questions == 0


def test_the_same_questions_are_drawn_each_time_and_not_all_of_many():
    many = questions(*((f"capital of France {n}?", "Paris") for n in range(500)))
    asked = []

    class Noting:
        def search(self, requests, k):
            asked.append([r.query for r in requests])
            return [SearchResult() for _ in requests]

    for _ in range(2):
        assert answer_coverage(Noting(), many, 3).questions == 200
    assert asked[0] == asked[1]


class Failing:
    def __init__(self, every):
        self.every = every

    def search(self, requests, k):
        return [SearchResult(error="down") if n % self.every == 0 else SearchResult() for n in range(len(requests))]


def test_some_failures_are_said_and_nothing_but_failures_stops():
    asked = questions(*((f"q{n}", "a") for n in range(4)))
    coverage = answer_coverage(Failing(2), asked, 3)
    assert (coverage.questions, coverage.failed) == (2, 2)
    assert "2 searches failed (down)" in coverage.line()
    with pytest.raises(UserError, match=r"every search failed \(down\)"):
        answer_coverage(Failing(1), asked, 3)
