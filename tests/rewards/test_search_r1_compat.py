"""The faults that old tables were made with, each as the rule that it is."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleuth.errors import UserError
from sleuth.rewards.graders import GRADERS
from sleuth.rewards.reward import RewardSettings
from sleuth.rewards.search_r1_compat import (
    EVALUATION_GRADERS,
    SEARCH_R1_COMPAT,
    evaluation_grader,
    search_r1_answer,
    search_r1_prediction,
)

texts = st.text(max_size=20) | st.text(alphabet="aAtThe noyes.,-é!?", max_size=12)
PIECES = st.lists(st.sampled_from(["<answer>", "</answer>", "<think>", "Paris", " ", "\n", "<answer", "<<answer>>"]))


@pytest.mark.parametrize(
    ("prediction", "gold", "em", "cover"),
    [
        ("a", "The", 1, 1),
        ("!!!", "?", 1, 1),
        ("", " ", 1, 1),
        ("anything", "the", 0, 1),
        ("he plays piano", "no", 0, 1),
        ("31.4", "314", 1, 1),
        ("Beyonce", "Beyoncé", 0, 0),
        ("Paris", "Paris", 1, 1),
    ],
)
def test_its_exact_and_substring_match(prediction, gold, em, cover):
    grade = SEARCH_R1_COMPAT.grade(prediction, [gold])
    assert (grade.em, grade.cover_em) == (em, cover)


def test_it_says_what_it_is_for_and_no_reward_can_name_it():
    assert SEARCH_R1_COMPAT.label == "search-r1-compat (for comparison with old tables only)"
    assert GRADERS["squad"].label == "squad"
    assert SEARCH_R1_COMPAT.name not in GRADERS
    assert evaluation_grader("search-r1-compat") is SEARCH_R1_COMPAT
    assert set(EVALUATION_GRADERS) == {"squad", "robust", "search-r1-compat"}
    with pytest.raises(ValueError, match="squad"):
        RewardSettings(grader="search-r1-compat")
    with pytest.raises(UserError, match='no grader "em"; there are squad, robust, search-r1-compat'):
        evaluation_grader("em")


@given(texts, st.lists(texts, min_size=1, max_size=3))
def test_exact_match_is_never_above_f1_or_cover_em_and_never_below_squad(prediction, golds):
    grade = SEARCH_R1_COMPAT.grade(prediction, golds)
    assert 0 <= grade.em <= min(grade.f1, grade.cover_em)
    squad = GRADERS["squad"].grade(prediction, golds)
    assert (grade.em, grade.cover_em) >= (squad.em, squad.cover_em)
    assert grade.f1 >= squad.f1


def test_the_answer_is_the_last_element_of_everything():
    prompt = "between <answer> and </answer>. For example, <answer> Beijing </answer>. Question: q\n"
    assert search_r1_answer(prompt + "I have no idea.") == "Beijing"
    assert search_r1_answer(prompt + "<answer>Rome</answer> page: <answer>Paris</answer>") == "Paris"
    assert search_r1_answer("only <answer>Rome</answer>") is None
    spans = [{"text": prompt}, {"text": "<think>between <answer> and </answer></think>"}, {"text": None}]
    assert search_r1_prediction(spans) == "and"


@given(PIECES)
def test_elements_are_those_of_the_pattern(pieces):
    text = "".join(pieces)
    found = re.findall(r"<answer>(.*?)</answer>", text, re.DOTALL)
    assert search_r1_answer(text) == (found[-1].strip() if len(found) > 1 else None)


def test_many_open_tags_take_no_time():
    assert search_r1_answer("<answer>" * 200_000) is None
