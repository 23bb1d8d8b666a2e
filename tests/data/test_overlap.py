from hypothesis import given
from hypothesis import strategies as st

from sleuth.data.benchmarks import load_benchmark
from sleuth.data.overlap import (
    SharedStep,
    overlap_report,
    question_key,
    shared_questions,
    shared_steps,
    step_questions,
)
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


# Steps ----------------------------------------------------------------------------------------------------------------


def stepped(identity, *steps):
    decomposition = [{"question": question, "answer": answer, "title": None} for question, answer in steps]
    return Question(identity, "the whole?", [steps[-1][1]], extra={"decomposition": decomposition})


def test_steps_are_found_with_the_earlier_answers_put_in():
    test = [stepped("m", ("Who made X?", "Ann"), ("When was #1 born?", "1990"))]
    train = asked("when was Ann born", "Who made Y?")
    assert shared_steps(test, train) == [SharedStep("When was Ann born?", "m", 2, "q0", last=True)]
    assert shared_steps(test, asked("who made x"))[0].last is False


def test_relations_and_references_to_nothing_are_no_questions():
    test = [stepped("m", ("X >> maker", "Ann"), ("When was #7 born?", "1990"), ("", "x"))]
    assert [text for _, _, text in step_questions(test[0])] == ["When was #7 born?"]
    assert shared_steps(asked("no steps at all"), asked("no steps at all")) == []


def test_the_report_tells_what_leaks_from_what_only_touches():
    test = [
        stepped("first", ("Who made X?", "Ann"), ("When was #1 born?", "1990")),
        stepped("last", ("Who made Y?", "Bo"), ("When was #1 born?", "1991")),
        *asked("Plain?"),
    ]
    report = overlap_report(test, {"nq": asked("who made x", "when was bo born"), "mine": asked("plain")})
    assert report.leaking == {"last", "q0"}
    assert report.touched == {"first", "last", "q0"}
    assert report.lines("musique") == [
        "musique: 0 of 3 questions are in nq too",
        "musique: 1 of 3 questions are in mine too",
        "musique: 2 of 2 questions with steps have a step that is a question of nq; for 1 it is the last step, "
        "whose answer is the question's",
        "musique: 0 of 2 questions with steps have a step that is a question of mine; for 0 it is the last step, "
        "whose answer is the question's",
    ]
    assert report.as_dict()["steps"]["nq"][0]["other_id"] == "q0"


def test_real_steps_of_musique_are_questions_of_nq_and_squad(real_data):
    test = load_benchmark("musique", folder=real_data).questions
    sources = {name: load_questions(real_data / name / "questions.jsonl.gz") for name in ("nq", "squad")}
    report = overlap_report(test, sources)
    assert {name: len(found) for name, found in report.steps.items()} == {"nq": 2, "squad": 4}
    assert len(report.leaking) == 5
    assert report.with_steps == 100
