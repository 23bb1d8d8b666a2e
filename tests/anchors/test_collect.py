"""A model that looks for evidence: what it lists counts only if a search has shown it."""

import pytest

from sleuth.anchors.collect import CollectSettings, collect_anchors
from sleuth.retrieval.bm25 import BM25Retriever
from sleuth.samplers.writer import Written
from sleuth.types import Question, SearchResult

from .test_supporting import CORPUS

QUESTION = Question("q", "Who founded the city of the Colosseum?", ["Romulus"])


class Scripted:
    """Says its lines, one a call for every question, and remembers what it was told."""

    def __init__(self, *lines):
        self.lines = list(lines)
        self.seen = []

    def write(self, requests, params):
        line = self.lines.pop(0)
        self.seen.append(requests[0].messages)
        return [line if isinstance(line, Written) else Written(line) for _ in requests]


@pytest.fixture
def retriever():
    return BM25Retriever(CORPUS)


def test_it_searches_reads_and_lists(retriever):
    writer = Scripted("SEARCH: colosseum rome", "SEARCH: city founded", "- 1 | Colosseum | the arena that is meant")
    (row,) = collect_anchors([QUESTION], writer, retriever)
    assert "[1] Colosseum: The Colosseum is an arena." in writer.seen[1][-1].content
    assert [(a.title, a.explanation, a.passage) for a in row.anchors] == [("Colosseum", "the arena that is meant", "1")]
    assert row.source == "collected"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("- 9 | Rome | a city", "no such passage"),
        ("- 0 | Rome | a city", "no such passage"),
        ("- 1 | Atlantis | a city", "the passage is called"),
        ("- 1 | Colosseum | Romulus built it", "gives the answer away"),
        ("I don't know.", "listed nothing"),
    ],
)
def test_what_it_makes_up_or_gives_away_is_a_problem(retriever, line, problem):
    (row,) = collect_anchors([QUESTION], Scripted("SEARCH: colosseum", line), retriever)
    assert row.anchors == ()
    assert problem in row.problems[0]


def test_searches_are_limited_and_that_is_said(retriever):
    writer = Scripted("SEARCH: a colosseum", "SEARCH: rome", "SEARCH: more")
    (row,) = collect_anchors([QUESTION], writer, retriever, settings=CollectSettings(searches=2))
    assert "no more searches" in writer.seen[2][-1].content
    assert row.problems == ("the model listed nothing",)


def test_a_failure_is_no_row_but_another_try(retriever):
    assert collect_anchors([QUESTION], Scripted(Written(error="down")), retriever) == [None]

    class Down:
        def search(self, requests, k):
            return [SearchResult(error="down") for _ in requests]

    assert collect_anchors([QUESTION], Scripted("SEARCH: x"), Down()) == [None]
