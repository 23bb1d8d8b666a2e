import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleuth.data.forms import question_of, question_row
from sleuth.data.rows import Row
from sleuth.errors import UserError
from sleuth.types import Question


def read(fields):
    return question_of(Row(fields, "sets/dev.jsonl, line 3", 3))


def test_own_form():
    row = {
        "id": "w1-7",
        "question": "Who?",
        "golden_answers": ["Ann"],
        "data_source": "hopworld",
        "corpus": "w1",
        "supporting_titles": ["A", "B"],
        "hops": 2,
    }
    assert read(row) == Question("w1-7", "Who?", ["Ann"], "hopworld", "w1", ["A", "B"], {"hops": 2})
    assert question_row(read(row)) == row


def test_flashrag():
    facts = {"title": ["A", "B", "A"], "sent_id": [0, 1, 2]}
    row = {
        "id": "dev_0",
        "question": "Who?",
        "golden_answers": ["Ann"],
        "metadata": {"type": "bridge", "supporting_facts": facts},
    }
    question = read(row)
    assert (question.id, question.supporting_titles) == ("dev_0", ["A", "B"])
    assert question.extra == {"type": "bridge", "supporting_facts": facts}


def test_search_r1_parquet():
    row = {
        "id": "train_0",
        "question": "Who?",
        "golden_answers": ["Ann"],
        "data_source": "nq",
        "prompt": [{"role": "user", "content": "Answer. Question: Who?\n"}],
        "ability": "fact-reasoning",
        "reward_model": {"style": "rule", "ground_truth": {"target": ["Ann"]}},
        "extra_info": {"index": 0, "split": "train"},
        "metadata": None,
    }
    question = read(row)
    assert question.id == "nq_train_0"
    assert question.golden_answers == ["Ann"]
    assert question.extra["extra_info"] == {"index": 0, "split": "train"}
    assert not question.extra.keys() & {"prompt", "reward_model"}


@pytest.mark.parametrize("extra", [{}, {"question": "Who is it?"}])
def test_verl_row_without_a_question_column(extra):
    prompt = [
        {"role": "system", "content": "Help."},
        {"role": "user", "content": "For example: Question: X? Now. Question: Who is it?\n"},
    ]
    row = {
        "data_source": "searchR1_nq",
        "prompt": prompt,
        "reward_model": {"ground_truth": {"target": ["Ann"]}},
        "extra_info": {"index": 7, "split": "test", **extra},
    }
    question = read(row)
    assert (question.id, question.question, question.golden_answers) == ("searchR1_nq_test_7", "Who is it?", ["Ann"])


def test_ids_that_only_count_within_a_split_do_not_collide_between_sets():
    rows = [{"id": "train_0", "question": "?", "answer": "a", "data_source": source} for source in ("nq", "hotpotqa")]
    assert [read(row).id for row in rows] == ["nq_train_0", "hotpotqa_train_0"]
    assert read({"id": "train_x", "question": "?", "answer": "a", "data_source": "nq"}).id == "train_x"


@pytest.mark.parametrize(
    "facts",
    [[["A", 0], ["B", 1], ["A", 2]], {"title": ["A", "B", "A"], "sent_id": [0, 1, 2]}],
    ids=["pairs", "columns"],
)
def test_hotpotqa(facts):
    row = {"_id": "5a8b", "question": "Who?", "answer": "Ann", "supporting_facts": facts, "level": "hard"}
    question = read(row)
    assert (question.id, question.golden_answers, question.supporting_titles) == ("5a8b", ["Ann"], ["A", "B"])
    assert question.extra == {"supporting_facts": facts, "level": "hard"}


def test_musique():
    paragraphs = [
        {"idx": 0, "title": "A", "paragraph_text": "…", "is_supporting": True},
        {"idx": 1, "title": "C", "paragraph_text": "…", "is_supporting": False},
    ]
    row = {"id": "2hop__1", "question": "Who?", "answer": "Ann", "answer_aliases": ["Anna", "Ann"]}
    question = read(row | {"paragraphs": paragraphs, "answerable": True})
    assert question.golden_answers == ["Ann", "Anna"]
    assert question.supporting_titles == ["A"]
    assert question.extra == {"paragraphs": paragraphs, "answerable": True}


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ({"answers": {"text": ["Ann", "Anna"], "answer_start": [1, 2]}}, ["Ann", "Anna"]),
        ({"answer": {"value": "Ann", "aliases": ["Anna", "Ann"]}}, ["Ann", "Anna"]),
        ({"answer": ["Ann", "Anna"]}, ["Ann", "Anna"]),
        ({"answer": "Ann", "answer_aliases": []}, ["Ann"]),
        ({"possible_answers": '["Ann", "Anna"]'}, ["Ann", "Anna"]),
        ({"reward_model": {"ground_truth": "Ann"}}, ["Ann"]),
        ({"golden_answers": None, "ground_truth": {"target": "Ann"}}, ["Ann"]),
    ],
    ids=["squad", "triviaqa", "nq_open", "no aliases", "popqa", "verl", "null column"],
)
def test_golden_answers_of_each_form(answers, expected):
    question = read({"id": 3, "question": "Who?", **answers})
    assert (question.id, question.golden_answers) == ("3", expected)


def test_row_without_id_is_named_after_file_and_row():
    assert read({"question": "Who?", "answer": "Ann"}).id == "dev-3"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"question": None}, 'no "question"'),
        ({"question": ["Who?"]}, 'list as "question"'),
        ({"question": " "}, '"question" is blank'),
        ({"golden_answers": []}, r'\(id "q17"\), "golden_answers": no golden answer'),
        ({"golden_answers": ["", " "]}, '"golden_answers" is blank'),
        ({"golden_answers": None}, "no golden answers; give them as"),
        ({"golden_answers": [None]}, "a golden answer is None"),
        ({"reward_model": {"style": "rule"}, "golden_answers": None}, r'"reward_model": no golden answer'),
        ({"id": ["q"]}, r"\"id\" is \['q'\]"),
        ({"id": ""}, "\"id\" is ''"),
        ({"data_source": 3}, '"data_source" is 3, not text'),
        ({"corpus": 3}, '"corpus" is 3, not text'),
        ({"supporting_titles": "A"}, "supporting titles must be a list of strings"),
    ],
)
def test_broken_row_is_named_with_its_field(change, message):
    with pytest.raises(UserError, match=rf"^sets/dev\.jsonl, line 3.*{message}") as caught:
        read({"id": "q17", "question": "Who?", "golden_answers": ["Ann"]} | change)
    assert "\n" not in str(caught.value)


text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
visible = text.filter(str.strip)
json_values = st.recursive(st.none() | st.booleans() | st.integers() | text, lambda v: st.lists(v, max_size=2))
field_names = st.sampled_from(["hops", "type", "level", "fold", "decomposition", "answer", "split", "support"])


@st.composite
def questions(draw):
    identity = draw(visible.filter(lambda s: not s.startswith(("train_", "dev_", "test_", "validation_"))))
    return Question(
        identity,
        draw(visible),
        draw(st.lists(visible, min_size=1, max_size=3)),
        draw(text),
        draw(st.none() | text),
        draw(st.lists(text, max_size=3, unique=True)),
        draw(st.dictionaries(field_names, json_values, max_size=3)),
    )


@given(questions())
def test_a_question_survives_its_row(question):
    assert read(question_row(question)) == question


@pytest.mark.parametrize("carried", ["", '"text"', "[1]", "{", "[" * 100_000])
def test_a_damaged_box_of_our_own_parquet_is_refused_with_its_row(carried):
    with pytest.raises(UserError, match=r"line 3: \"extra_info\.sleuth\" holds no JSON object"):
        read({"id": "q17", "question": "Who?", "golden_answers": ["Ann"], "extra_info": {"sleuth": carried}})


def test_aliases_that_are_no_list_are_answers_or_refused():
    assert read({"question": "Who?", "answer": "Ann", "answer_aliases": 5}).golden_answers == ["Ann", "5"]
    assert read({"question": "Who?", "answer": "Ann", "answer_aliases": []}).golden_answers == ["Ann"]
    with pytest.raises(UserError, match=r'"answer_aliases": a golden answer is True'):
        read({"question": "Who?", "answer": "Ann", "answer_aliases": True})
