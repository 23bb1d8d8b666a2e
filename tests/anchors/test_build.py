"""``sleuth anchors build`` as a user meets it."""

import json

import pytest

from sleuth.anchors.build import build_anchors
from sleuth.anchors.prompt import TeacherPrompt
from sleuth.anchors.rows import Anchor, AnchorRow, anchors_hash, read_anchors
from sleuth.cli import run
from sleuth.errors import UserError
from sleuth.retrieval.bm25 import BM25Retriever
from sleuth.types import Question

from .test_supporting import CORPUS

ROWS = [
    {"id": "a", "question": "Who founded Rome?", "golden_answers": ["Romulus"], "supporting_titles": ["Rome"]},
    {"id": "b", "question": "What is lost?", "golden_answers": ["x"], "supporting_titles": ["Atlantis"]},
    {"id": "c", "question": "Who knows?", "golden_answers": ["x"]},
]


@pytest.fixture
def files(tmp_path):
    questions, corpus = tmp_path / "questions.jsonl", tmp_path / "corpus.jsonl"
    questions.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    documents = [{"id": d.id, "title": d.title, "text": d.text} for d in CORPUS.documents]
    corpus.write_text("".join(json.dumps(row) + "\n" for row in documents))
    return questions, corpus, tmp_path / "anchors.jsonl"


def test_a_user_builds_anchors_and_is_told_what_is_wrong(files, capsys):
    questions, corpus, out = files
    assert run(["anchors", "build", str(questions), "--corpus", str(corpus), "-o", str(out)]) == 0
    said = capsys.readouterr()
    assert "1 of those made have anchors" in said.out
    assert 'b: "Atlantis": no such passage' in said.err
    assert "1 questions name no evidence" in said.err
    rows = read_anchors(out)
    assert rows["a"].anchors == (Anchor("Rome", "It was founded by ___.", "2"),)
    assert (rows["b"].anchors, "c" in rows) == ((), False)


def test_a_finished_file_says_that_there_is_nothing_to_do(files, capsys):
    questions, corpus, out = files
    command = ["anchors", "build", str(questions), "--corpus", str(corpus), "-o", str(out)]
    assert run(command) == 0
    whole = out.read_bytes()
    capsys.readouterr()
    assert run(command) == 0
    said = capsys.readouterr().out
    assert "2 rows were there, none is to be made" in said
    assert "of those made" not in said
    assert out.read_bytes() == whole


def test_a_file_is_gone_on_with_whatever_a_kill_has_left(files, capsys):
    questions, corpus, out = files
    command = ["anchors", "build", str(questions), "--corpus", str(corpus), "-o", str(out)]
    assert run(command) == 0
    whole = out.read_bytes()
    out.write_bytes(whole[: whole.index(b"\n") + 20])
    assert run(command) == 0
    assert out.read_bytes() == whole
    assert "1 rows made, 1 were there" in capsys.readouterr().out
    assert run([*command, "--answers", "allow"]) == 0
    assert out.read_bytes() == whole  # rows that are there stay …
    assert run([*command, "--answers", "allow", "--force"]) == 0
    assert "Romulus" in out.read_text()  # … unless they are to be made anew


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--answers", "show"], "hide, refuse or allow"),
        (["--model", "m"], "--collect"),
        (["--collect", "http://127.0.0.1:9/v1"], "--model NAME"),
    ],
)
def test_wrong_options_are_one_line(files, capsys, more, said):
    questions, corpus, out = files
    assert run(["anchors", "build", str(questions), "--corpus", str(corpus), "-o", str(out), *more]) == 2
    assert said in capsys.readouterr().err


def test_without_named_evidence_a_collector_is_needed(tmp_path):
    question = Question("c", "Who knows?", ["x"])
    retriever, out = BM25Retriever(CORPUS), tmp_path / "out.jsonl"
    with pytest.raises(UserError, match="--collect"):
        build_anchors([question], retriever, out)
    tries = []

    def collect(questions):
        tries.append(len(questions))
        return [None if len(tries) == 1 else AnchorRow(q.id, q.question, source="collected") for q in questions]

    assert build_anchors([question], retriever, out, collect=collect).failed == 1
    assert build_anchors([question], retriever, out, collect=collect).rows == 1
    assert build_anchors([question], retriever, out, collect=collect).kept == 1
    assert tries == [1, 1]


def test_strict_leaves_a_question_with_one_unsound_anchor_without_any(tmp_path):
    question = Question("a", "Who founded Rome?", ["Romulus"], supporting_titles=["Rome", "Atlantis"])
    for strict, kept in ((False, 1), (True, 0)):
        out = tmp_path / f"{strict}.jsonl"
        build_anchors([question], BM25Retriever(CORPUS), out, strict=strict)
        assert len(read_anchors(out)["a"].anchors) == kept


def test_other_files_are_refused(files):
    questions, _, _ = files
    with pytest.raises(UserError, match=r"questions\.jsonl, line 1"):
        read_anchors(questions)


def test_the_hash_is_of_what_a_teacher_reads():
    one, other = AnchorRow("a", "?", (Anchor("t", "e", "1"),)), AnchorRow("b", "?")
    assert anchors_hash([one, other]) == anchors_hash([other, AnchorRow("a", "!", (Anchor("t", "e"),))])
    assert anchors_hash([one]) != anchors_hash([AnchorRow("a", "?", (Anchor("t", "f"),))])


def test_the_teachers_prompt_has_all_parts_in_the_papers_order():
    asked = TeacherPrompt().question(Question("a", "Who {founded} Rome?", []), [Anchor("Rome", "a {city}")], "Remus")
    text = asked.question
    parts = ["Who {founded} Rome?", "Remus", "wrong", "- Rome: a {city}", "Do not answer straight"]
    assert [text.index(part) for part in parts] == sorted(text.index(part) for part in parts)
    assert "earlier attempt" not in TeacherPrompt().question(asked, [], None).question.replace(text, "")
    with pytest.raises(ValueError, match="anchors"):
        TeacherPrompt(prompt="{question}")
