import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleuth.errors import UserError
from sleuth.rewards.answers import golden_answers

FORMS_OF_PARIS = [
    "Paris",
    ["Paris"],
    ("Paris",),
    np.array(["Paris"]),
    np.array(["Paris"], dtype=object),
    np.array("Paris"),
    {"target": "Paris"},
    {"target": ["Paris"]},
    {"target": np.array(["Paris"], dtype=object)},
    '["Paris"]',
    {"text": ["Paris"], "answer_start": [3]},
    {"value": "Paris", "aliases": ["Paris"]},
]


@pytest.mark.parametrize("form", FORMS_OF_PARIS, ids=repr)
def test_all_forms_of_one_answer_are_equal(form):
    assert golden_answers(form) == ["Paris"]


@given(st.lists(st.text(), min_size=1))
def test_list_array_target_and_json_list_hold_the_same_answers(answers):
    forms = [answers, np.array(answers, dtype=object), {"target": answers}]
    assert all(golden_answers(form) == answers for form in forms)
    assert golden_answers(json.dumps(answers)) == answers


@pytest.mark.parametrize("nothing", [[], (), None, np.array([]), {"target": []}, {"target": None}, "[]"], ids=repr)
def test_no_answer_is_refused_with_the_row(nothing):
    with pytest.raises(UserError, match=r"dev\.jsonl, line 3 \(id q17\): no golden answer"):
        golden_answers(nothing, "dev.jsonl, line 3 (id q17)")


@pytest.mark.parametrize(
    "wrong",
    [
        *([None], [["Paris"]], [True], True, [{"text": "Paris"}], {"answer": "Paris"}),
        *({"value": ["Paris"]}, {"value": {"a": 1}}, {"value": None}, {"value": "Paris", "aliases": [["Rome"]]}),
    ],
    ids=repr,
)
def test_an_answer_that_is_not_text_is_refused_with_the_row(wrong):
    with pytest.raises(UserError, match=r"^row 5: "):
        golden_answers(wrong, "row 5")


@pytest.mark.parametrize("answer", ["[sic]", "[Paris", '["Paris", null]', "['Paris']", '{"target": "x"}', "1984"])
def test_text_that_is_no_json_list_of_answers_is_itself_an_answer(answer):
    assert golden_answers(answer) == [answer]


def test_numbers_become_text():
    assert golden_answers([1984, 2.5]) == ["1984", "2.5"]
    assert golden_answers(np.array([1984])) == ["1984"]
    assert golden_answers("[1984]") == ["1984"]


def test_an_alias_that_is_one_text_is_one_answer():
    assert golden_answers({"value": "Paris", "aliases": "City of Light"}) == ["Paris", "City of Light"]
    assert golden_answers({"value": "Paris", "aliases": None}) == ["Paris"]
