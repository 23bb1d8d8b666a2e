import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleuth.objectives.parameters import CalibAdv
from sleuth.objectives.silver import Searches, edit_distance, search_scores, silver_documents, similarity
from sleuth.types import Document, Span, SpanKind, Status, Trajectory

RELEASED = CalibAdv(preset="released")
PAPER = CalibAdv()


def searched(reward):
    """One search that showed document A, then an answer."""
    spans = [
        Span(SpanKind.PROMPT, [1]),
        Span(SpanKind.POLICY, [2], "<think>t</think><search>x</search>"),
        Span(SpanKind.OBSERVATION, [3], documents=[Document("A", "A")]),
        Span(SpanKind.POLICY, [4], "<answer>x</answer>"),
    ]
    return Trajectory("a", "q", "?", ["a"], spans, reward=reward, format_valid=True, status=Status.ANSWERED)


def test_malformed_rollouts_give_no_silver():
    group = [Searches([["A"]], ["t"], 1.0, well_formed=False), Searches([["B"]], ["t"], 0.9)]
    assert silver_documents(group, PAPER) == silver_documents(group, RELEASED) == {"B"}


def test_threshold_is_inclusive_and_in_units_of_the_reward():
    group = [Searches([["A"]], ["t"], 0.7), Searches([["B"]], ["t"], 0.69)]
    assert silver_documents(group, PAPER) == {"A"}
    assert silver_documents(group, CalibAdv(threshold=0.5)) == {"A", "B"}
    assert silver_documents(group, CalibAdv(threshold=0.9)) == set()


def test_equal_bests_are_merged():
    group = [Searches([["A"]], ["t"], 0.9), Searches([["B"], ["C"]], ["t", "u"], 0.9), Searches([["D"]], ["t"], 0.8)]
    assert silver_documents(group, RELEASED) == {"A", "B", "C"}
    assert silver_documents(group[::-1], RELEASED) == {"A", "B", "C"}


@pytest.mark.parametrize("reward", [float("nan"), None])
def test_a_rollout_without_a_reward_gives_no_silver(reward):
    group = [Searches.of(searched(reward), RELEASED), Searches([["B"]], ["t"], 0.8)]
    assert silver_documents(group, RELEASED) == silver_documents(group, PAPER) == {"B"}


def scores(documents, thoughts=None, silver="ABCDEFGH", **settings):
    thoughts = thoughts or [f"thought{i}" for i in range(len(documents))]
    searches = Searches([list(d) for d in documents], thoughts, 0.0)
    return search_scores(searches, set(silver), CalibAdv(**settings))


def test_novelty_counts_a_document_once():
    assert scores(["ABX", "AC", "C"], silver="ABC", novelty=True) == pytest.approx([2 / 3, 1 / 2, 0])
    assert scores(["ABX", "AC", "C"], silver="ABC") == pytest.approx([2 / 3, 1, 1])
    # within one search, too; the formula's sets know no repeats
    assert scores(["AAB"], novelty=True) == pytest.approx([2 / 3])
    assert scores(["AAX"]) == pytest.approx([1 / 2])


def test_a_search_that_shares_two_documents_with_one_earlier_search_scores_nothing():
    shared = {"max_shared": 1}
    assert scores(["ABC", "ADE"], **shared) == [1, 1]
    assert scores(["ABC", "ABD"], **shared) == [1, 0]
    assert scores(["ABX", "CDX", "ACE"], **shared) == pytest.approx([2 / 3, 2 / 3, 1])  # one with each: two in all
    assert scores(["ABC", "XYZ", "ABD"], **shared) == [1, 0, 0]  # any earlier one, not just the last


def test_a_search_whose_thought_repeats_an_earlier_one_scores_nothing():
    similar = {"max_similarity": 0.5}
    thoughts = ["who wrote the book", "when was it", "who wrote that book"]
    assert scores(["A", "B", "C"], thoughts, **similar) == [1, 1, 0]
    assert scores(["A", "B"], ["a b", "a c"], **similar) == [1, 1]  # exactly one half is not above it
    assert scores(["A", "B"], ["a b c", "a b d"], **similar) == [1, 0]
    assert scores(["A", "B"], ["", ""], **similar) == [1, 1]  # no thought is no repetition


def test_a_search_that_found_nothing_scores_nothing():
    assert scores(["", "AB"], novelty=True) == [0, 1]
    assert scores([""]) == [0]


def table_distance(a, b):
    """Levenshtein's distance by the plain table."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, start=1):
        above, row = row, [i]
        for j, y in enumerate(b, start=1):
            row.append(min(above[j] + 1, row[-1] + 1, above[j - 1] + (x != y)))
    return row[-1]


@given(st.text("abc", max_size=90), st.text("abc", max_size=90))
def test_edit_distance_is_that_of_the_plain_table(a, b):
    assert edit_distance(a, b) == table_distance(a, b)


def test_similarity_is_over_words():
    assert similarity(["who", "wrote", "the", "book"], ["who", "wrote", "a", "book"]) == 0.75
    assert similarity(["a"], ["b"]) == 0
    assert similarity(["a", "b"], ["a", "b"]) == 1
    assert similarity([], []) == similarity([], ["a"]) == 0
