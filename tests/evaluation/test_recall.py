from sleuth.evaluation.recall import Evidence, evidence_kind, recall, recall_of_questions
from sleuth.types import Document, Question, SearchResult

PARIS, ROME = Document("1", "Paris", "in France"), Document("2", "Rome_(city)", "in Italy")


def test_by_titles_where_there_are_some():
    assert evidence_kind(["Paris"], ["yes"]) is Evidence.TITLES
    assert recall([PARIS, PARIS], ["paris", "Rome (city)"], ["x"]) == 0.5
    assert recall([PARIS, ROME], ["paris", "Rome (city)"], ["x"]) == 1.0
    assert recall([], ["Paris"], ["x"]) == 0.0


def test_else_by_the_answers_words_but_not_for_yes_and_no():
    assert evidence_kind([], ["Italy"]) is Evidence.ANSWER
    assert recall([PARIS, ROME], [], ["Italy"]) == 1.0
    assert recall([PARIS], [], ["Ital"]) == 0.0
    assert evidence_kind([], ["Yes"]) is None
    assert recall([PARIS], [], ["yes"]) is None


def test_recall_of_questions_is_at_k_and_unknown_where_the_search_failed():
    class Library:
        def search(self, requests, k):
            return [SearchResult(error="down") if r.query == "bad" else SearchResult([PARIS, ROME]) for r in requests]

    asked = [
        Question("a", "q", ["Italy"]),
        Question("b", "bad", ["Italy"]),
        Question("c", "q", ["x"], "", None, ["Paris"]),
    ]
    assert recall_of_questions(Library(), asked, 1) == {"a": 0.0, "b": None, "c": 1.0}
    assert recall_of_questions(Library(), asked, 2)["a"] == 1.0
