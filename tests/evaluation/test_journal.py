import json

import pytest

from sleuth.errors import UserError
from sleuth.evaluation.folder import EvaluationFolder, question_settings
from sleuth.evaluation.journal import Journal
from sleuth.types import Document, EndReason, Question, Span, SpanKind, Status, Trajectory


def answered(id, answer="a", status=Status.ANSWERED, group=None, source="set"):
    end = {Status.ANSWERED: EndReason.ANSWER, Status.RETRIEVER_FAILED: EndReason.RETRIEVER_FAILED}[status]
    spans = [Span(SpanKind.OBSERVATION, [], documents=[Document("1", "T", "text")])]
    return Trajectory(
        id, group or id, "q?", ["a"], spans, source, answer=answer, status=status, end=end, supporting_titles=["T", "U"]
    )


def test_what_is_appended_is_there_for_the_next_call(tmp_path):
    journal = Journal(tmp_path, "rag-greedy")
    assert journal.open() == set()
    journal.append([answered("1"), answered("2")])
    journal.close(whole=False)
    assert Journal(tmp_path, "rag-greedy").open() == {"1", "2"}


def test_a_line_that_a_kill_cut_off_is_answered_again(tmp_path):
    journal = Journal(tmp_path, "x")
    journal.open()
    journal.append([answered("1"), answered("2")])
    journal.close(whole=False)
    content = journal.path.read_bytes()
    for cut in (1, 5, len(content.splitlines()[1])):
        journal.path.write_bytes(content[:-cut])
        assert journal.open() == {"1"}
        journal.append([answered("2")])
        journal.close(whole=False)
        assert [t.id for t in journal.trajectories()] == ["1", "2"]


def test_failed_answers_are_tried_again_and_no_other(tmp_path):
    journal = Journal(tmp_path, "x")
    journal.open()
    journal.append([answered("1"), answered("2", None, Status.RETRIEVER_FAILED)])
    journal.close(whole=False)
    assert [t.id for t in journal.trajectories()] == ["1", "2"]
    assert journal.open() == {"1"}


def test_a_whole_journal_is_packed_and_can_still_be_read_and_continued(tmp_path):
    journal = Journal(tmp_path, "x")
    journal.open()
    journal.append([answered("1")])
    journal.close(whole=True)
    assert (journal.path.exists(), journal.packed.exists()) == (False, True)
    assert [t.id for t in journal.trajectories()] == ["1"]
    assert journal.open() == {"1"}
    journal.append([answered("2")])
    journal.close(whole=True)
    assert [t.id for t in journal.trajectories()] == ["1", "2"]


SETTINGS = {
    "schema": "sleuth.evaluation/1",
    "model": "m",
    "limits": {"k": 3, "max_turns": 4},
    "grader": "squad",
    "sets": {"set": 2},
    "systems": {"rag-greedy": {"temperature": 0.0, "samples": 1}},
}


def test_systems_may_join_and_nothing_else_may_change(tmp_path):
    folder = EvaluationFolder(tmp_path / "e")
    folder.begin(SETTINGS)
    folder.begin(SETTINGS)
    folder.begin({**SETTINGS, "systems": {"direct-greedy": {"temperature": 0.0, "samples": 1}}})
    assert folder.systems == ["rag-greedy", "direct-greedy"]
    for changed, said in (
        ({"model": "n"}, 'begun with other settings: model was "m", now it is "n"; set them'),
        ({"limits": {"k": 5, "max_turns": 4}}, "limits.k was 3, now it is 5"),
        (
            {"systems": {"rag-greedy": {"temperature": 0.5, "samples": 1}}},
            "rag-greedy.temperature was 0.0, now it is 0.5",
        ),
    ):
        with pytest.raises(UserError) as refused:
            folder.begin({**SETTINGS, **changed})
        assert said in str(refused.value)
        assert "another folder with -o" in str(refused.value)


def test_all_changes_are_named_at_once_and_a_part_of_the_settings_can_be_checked(tmp_path):
    folder = EvaluationFolder(tmp_path / "e")
    folder.begin({**SETTINGS, "corpus": "a" * 64})
    folder.check({"model": "m", "limits": {"k": 3}, "systems": {"rag-greedy": {"samples": 1}}}, partly=True)
    with pytest.raises(UserError) as refused:
        folder.check({"model": "n", "limits": {"k": 5}, "grader": "robust"}, partly=True)
    assert 'model was "m", now it is "n"; limits.k was 3, now it is 5; grader was' in str(refused.value)
    assert "--table --grader NAME" in str(refused.value)
    with pytest.raises(UserError, match="corpus was SHA-256 aaaaaaaaaaaa…, now it is SHA-256 bbbbbbbbbbbb…;"):
        folder.check({**SETTINGS, "corpus": "b" * 64})


def test_one_process_writes_at_a_time(tmp_path):
    folder = EvaluationFolder(tmp_path)
    with folder.lock(), pytest.raises(UserError, match="another evaluation writes to it"), folder.lock():
        pass
    with folder.lock():
        pass


def test_scores_are_made_of_the_answers_and_carry_the_recall(tmp_path):
    folder = EvaluationFolder(tmp_path)
    folder.begin(SETTINGS)
    folder.write_recall({"1": 0.5, "2": None})
    journal = folder.journal("rag-greedy")
    journal.open()
    journal.append([answered("2", "b"), answered("1"), answered("1#2", "b", group="1")])
    journal.close(whole=False)
    one, second, two = folder.scores("rag-greedy")
    assert (one.id, one.em, one.recall, one.found, one.evidence) == ("1", 1.0, 0.5, 0.5, "titles")
    assert (second.question, second.recall, two.recall) == ("1", 0.5, None)
    folder.write_scores("rag-greedy")
    rows = [json.loads(line) for line in (tmp_path / "scores-rag-greedy.jsonl").read_text().splitlines()]
    assert (rows[0]["question_id"], rows[0]["question"], rows[0]["prediction"]) == ("2", "q?", "b")
    assert rows[0]["titles"] == [["T"]]


def test_the_order_of_questions_is_no_setting():
    questions = [Question(str(n), f"q{n}", ["a"], "s") for n in range(5)]
    assert question_settings(questions) == question_settings(questions[::-1])
    assert question_settings(questions) != question_settings(questions[1:])
    questions[0].golden_answers = ["b"]
    assert question_settings(questions)["sets"] == {"s": 5}


def test_a_folder_of_something_else_is_refused(tmp_path):
    with pytest.raises(UserError, match="no evaluation is in it"):
        EvaluationFolder.find(tmp_path)
    (tmp_path / "evaluation.json").write_text("{}")
    with pytest.raises(UserError, match="not of this version"):
        _ = EvaluationFolder.find(tmp_path).settings


def test_a_sealed_benchmarks_texts_are_never_written_in_the_open(tmp_path):
    secret = answered("1", "the hidden answer", source="browsecomp")
    secret.question, secret.golden_answers = "a hidden question", ["the hidden answer"]
    secret.spans.append(Span(SpanKind.POLICY, [5, 6], "a hidden thought", [-0.1, -0.1]))
    secret.extra = {"canary": "key"}
    folder = EvaluationFolder(tmp_path)
    folder.begin(SETTINGS)
    journal = folder.journal("rag-greedy")
    journal.open()
    journal.append([secret])
    journal.close(whole=True)
    folder.write_scores("rag-greedy")
    from sleuth.jsonl import read_jsonl

    written = str([row for _, row in read_jsonl(journal.packed)]) + (tmp_path / "scores-rag-greedy.jsonl").read_text()
    assert "hidden" not in written
    assert "[5, 6]" not in written
    (back,) = journal.trajectories()
    assert (back.question, back.answer, back.spans[-1].text) == (secret.question, secret.answer, "a hidden thought")
    assert folder.scores("rag-greedy")[0].em == 1.0
    assert journal.open() == {"1"}
