"""Anchors from what a data set names, and what makes one unsound."""

import pytest

from sleuth.anchors.passages import Passages
from sleuth.anchors.supporting import supporting_anchors
from sleuth.anchors.verify import gives_away, hide_answers
from sleuth.retrieval.bm25 import BM25Retriever
from sleuth.retrieval.corpus import Corpus
from sleuth.types import Document, Question

CORPUS = Corpus(
    [
        Document("1", "Colosseum", "The Colosseum is an arena. It stands in Rome, Italy, and is old."),
        Document("2", "Rome", "Rome is a city. It was founded by Romulus."),
        Document("3", "Rome", "Rome has many fountains."),
    ]
)


@pytest.fixture
def passages():
    return Passages(BM25Retriever(CORPUS))


def _question(**fields):
    given = {"id": "q", "question": "Who founded the city of the Colosseum?", "golden_answers": ["Romulus"]}
    return Question(**{**given, **fields})


def test_titles_give_the_sentence_that_says_most(passages):
    row = supporting_anchors(_question(supporting_titles=["Colosseum", "Rome"]), passages)
    assert [(a.title, a.explanation, a.passage) for a in row.anchors] == [
        ("Colosseum", "The Colosseum is an arena.", "1"),
        ("Rome", "It was founded by ___.", "2"),
    ]
    assert row.problems == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Edward Wood Jr. (born 1924) founded Rome. He died.", "Edward Wood Jr. (born 1924) founded Rome."),
        ("Selle v. Gibb is about Rome. It was won.", "Selle v. Gibb is about Rome."),
        ("The city stands in the U.S. Bank of Rome. Old.", "The city stands in the U.S. Bank of Rome."),
        ("An arena is old. Who? The city of the Colosseum.", "The city of the Colosseum."),
    ],
)
def test_a_full_stop_of_an_abbreviation_ends_no_sentence(text, said):
    passages = Passages(BM25Retriever(Corpus([Document("1", "Rome", text)])))
    row = supporting_anchors(_question(supporting_titles=["Rome"], question="Who founded the city of Rome?"), passages)
    assert [a.explanation for a in row.anchors] == [said]


def test_ids_come_before_titles(passages):
    row = supporting_anchors(_question(supporting_titles=["Colosseum"], extra={"supporting_ids": ["3"]}), passages)
    assert [a.passage for a in row.anchors] == ["3"]


def test_named_sentences_are_taken_as_they_are(passages):
    extra = {
        "supporting_facts": {"title": ["Rome"], "sent_id": [1]},
        "context": {"title": ["Rome"], "sentences": [["Rome is a city.", "It was founded by Romulus."]]},
    }
    row = supporting_anchors(_question(supporting_titles=["Rome"], extra=extra), passages, "allow")
    assert row.anchors[0].explanation == "It was founded by Romulus."


def test_a_passage_that_is_not_there_is_a_problem(passages):
    row = supporting_anchors(_question(supporting_titles=["Rome", "Atlantis"]), passages)
    assert [a.title for a in row.anchors] == ["Rome"]
    assert row.problems == ('"Atlantis": no such passage',)


def test_an_explanation_that_gives_the_answer_away_is_refused(passages):
    row = supporting_anchors(_question(supporting_titles=["Rome"]), passages, "refuse")
    assert row.anchors == ()
    assert "gives the answer away" in row.problems[0]


def test_answers_are_found_word_by_word():
    assert gives_away("founded by ROMULUS .", ["Romulus"])
    assert not gives_away("the Romuluses", ["Romulus"])
    assert not gives_away("no , yes", ["yes", "no"])


def test_hidden_answers_are_gone_longest_first():
    assert hide_answers("New York City, New York", ["New York", "New York City"]) == "___, ___"
    assert hide_answers("yes it is", ["yes"]) == "yes it is"


def test_other_retrievers_are_searched_for_the_title():
    class Server:
        def __init__(self):
            self.inner = BM25Retriever(CORPUS)

        def search(self, requests, k):
            return self.inner.search(requests, k)

    found = Passages(Server()).titled("rome", None)
    assert {d.id for d in found} == {"2", "3"}
