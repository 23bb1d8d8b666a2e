from hypothesis import given
from hypothesis import strategies as st

from sleuth.data.overlap import question_key, shared_questions
from sleuth.data.questions import load_questions
from sleuth.types import Question


def asked(*texts, prefix="q"):
    return [Question(f"{prefix}{n}", text, ["a"]) for n, text in enumerate(texts)]


def test_spelling_does_not_hide_a_shared_question():
    train = asked("who wrote Émile", "What is 5 − 3?", "When?")
    test = asked("Who wrote “Emile”?", "what is 5 − 3", "What is 5 − 4?", prefix="t")
    shared = shared_questions(test, train)
    assert [(s.id, s.other_id) for s in shared] == [("t0", "q0"), ("t1", "q1")]
    assert shared[0].question == "Who wrote “Emile”?"


def test_repeated_test_question_counts_each_time():
    shared = shared_questions(asked("Who?", "who", prefix="t"), asked("Who?", "Who?"))
    assert [(s.id, s.other_id) for s in shared] == [("t0", "q0"), ("t1", "q0")]


@given(st.lists(st.text(), max_size=5))
def test_a_set_shares_everything_with_itself(texts):
    assert len(shared_questions(asked(*texts), asked(*texts))) == len(texts)


def test_questions_of_articles_alone_stay_apart():
    assert question_key("The?") != question_key("A?")


def test_real_sets_of_one_source_share_no_question_across_folds(real_data):
    path = real_data / "nq" / "questions.jsonl.gz"
    test = load_questions(path, where={"fold": [0, 1]})
    train = load_questions(path, where={"fold": range(2, 10)})
    assert shared_questions(test, train) == []
