import pytest

from sleuth.data.contexts import Paragraph, Pool, paragraphs_of, pooled_question
from sleuth.data.forms import question_of
from sleuth.data.rows import Row
from sleuth.errors import UserError

HOTPOTQA = {
    "_id": "h1",
    "question": "Who?",
    "answer": "Ann",
    "supporting_facts": [["A", 0]],
    "context": [["A", ["One. ", " Two."]], ["B", ["Three."]]],
}
HUB = HOTPOTQA | {"context": {"title": ["A", "B"], "sentences": [["One. ", " Two."], ["Three."]]}}
FLASHRAG = {
    "id": "dev_1",
    "question": "Who?",
    "golden_answers": ["Ann"],
    "metadata": {"context": HUB["context"], "supporting_facts": {"title": ["A"], "sent_id": [0]}},
}
MUSIQUE = {
    "id": "m1",
    "question": "Who?",
    "answer": "Ann",
    "paragraphs": [
        {"idx": 0, "title": "A", "paragraph_text": "One. Two.", "is_supporting": True},
        {"idx": 1, "title": "B", "paragraph_text": "Three.", "is_supporting": False},
        {"idx": 2, "title": "A", "paragraph_text": "Another part of A.", "is_supporting": False},
    ],
    "question_decomposition": [
        {"id": 1, "question": "First?", "answer": "X", "paragraph_support_idx": 0},
        {"id": 2, "question": "#1 then?", "answer": "Ann", "paragraph_support_idx": None},
    ],
}


def row(fields):
    return Row(fields, "dev.json, row 1", 1)


def pooled(fields, pool):
    return pooled_question(question_of(row(fields)), paragraphs_of(row(fields)), pool)


@pytest.mark.parametrize("fields", [HOTPOTQA, HUB, FLASHRAG], ids=["hotpotqa", "hub", "flashrag"])
def test_context_lists(fields):
    assert paragraphs_of(row(fields)) == [Paragraph("A", "One. Two."), Paragraph("B", "Three.")]
    pool = Pool()
    question = pooled(fields, pool)
    assert question.extra["context_ids"] == ["0", "1"]
    assert question.extra["supporting_ids"] == ["0"]
    assert question.supporting_titles == ["A"]
    assert "context" not in question.extra


def test_musique_marks_paragraphs_one_by_one_and_brings_steps():
    question = pooled(MUSIQUE, Pool())
    assert question.extra == {
        "context_ids": ["0", "1", "2"],
        "supporting_ids": ["0"],
        "decomposition": [
            {"question": "First?", "answer": "X", "title": "A"},
            {"question": "#1 then?", "answer": "Ann", "title": None},
        ],
        "hops": 2,
    }


def test_pool_keeps_each_paragraph_once():
    pool = Pool()
    one, other = Paragraph("A", "One."), Paragraph("A", "Two.")
    assert list(pool.add([one, other, one])) == [
        {"id": "0", "contents": '"A"\nOne.'},
        {"id": "1", "contents": '"A"\nTwo.'},
    ]
    assert list(pool.add([other])) == []
    assert pool.id_of(other) == "1"


def test_row_without_paragraphs_is_a_plain_question():
    question = pooled({"id": "1", "question": "Who?", "answer": "Ann", "context": "a text"}, Pool())
    assert question.extra == {"context": "a text"}


@pytest.mark.parametrize(
    ("context", "message"),
    [
        ([["A"]], '"context" 1: neither a pair'),
        ([["A", [1]]], '"context" 1: title and text must be text'),
        ([["A", ["x"]], {"title": "B"}], '"context" 2: title and text must be text'),
        ({"title": ["A"], "sentences": []}, '"context" as columns'),
        ({"sentences": [["x"]]}, '"context" as columns'),
    ],
)
def test_broken_context_is_named(context, message):
    with pytest.raises(UserError, match=rf"dev\.json, row 1, {message}|dev\.json, row 1: {message}"):
        paragraphs_of(row(HOTPOTQA | {"context": context}))
