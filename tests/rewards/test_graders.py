"""Set G of the conformance table, and what holds for any text."""

import string

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sleuth.errors import UserError
from sleuth.rewards.graders import GRADERS, Grade

SQUAD, ROBUST = GRADERS["squad"], GRADERS["robust"]
WRONG, RIGHT = Grade(0.0, 0.0, 0.0), Grade(1.0, 1.0, 1.0)

answers = st.text(max_size=20) | st.text(alphabet="aAtThe noyes.,-−–'’“”—éÉ\u0301ñ015½²_$%! \u00a0ßΣ北", max_size=12)


@pytest.mark.parametrize("grader", GRADERS)
def test_table_is_by_name(grader):
    assert GRADERS[grader].name == grader


@pytest.mark.parametrize(
    ("prediction", "gold", "squad", "robust"),
    [
        pytest.param("Beyonce", "Beyoncé", 0, 1, id="G1 diacritic"),
        pytest.param("Beyonce\u0301", "Beyoncé", 0, 1, id="G1 decomposed"),
        pytest.param("Don’t Stop", "Don't Stop", 0, 1, id="G2"),
        pytest.param("31.4", "314", 1, 0, id="G4 decimal point"),
        pytest.param("-5", "5", 1, 0, id="G4 sign"),
        pytest.param("−5", "-5", 0, 1, id="G4 minus"),
        pytest.param("1,000", "1000", 1, 1, id="G4 thousands"),
        pytest.param("a", "The", 0, 0, id="G5 articles"),
        pytest.param("!!!", "?", 0, 0, id="G5 punctuation"),
        pytest.param("", " ", 0, 0, id="G5 blank"),
        pytest.param(" ", "", 0, 0, id="G5 blank, swapped"),
        pytest.param("", "", 0, 0, id="G5 both empty"),
        pytest.param("The The", "The The", 1, 1, id="G5 same text"),
        pytest.param(" the the", "The The ", 1, 1, id="G5 same text, stripped and lower-cased"),
        pytest.param("???", "???", 1, 1, id="G5 same punctuation"),
        pytest.param("Paris", "The", 0, 0, id="G5 one side only"),
        pytest.param("“", "”", 0, 0, id="G5 quotes"),
        pytest.param("Á!", "á", 1, 1, id="an accented letter that folds to an article"),
        pytest.param("1000.0", "1,000", 0, 1, id="value"),
        pytest.param("U.S.", "US", 1, 1, id="abbreviation"),
        pytest.param("1990–1995", "1990-1995", 0, 1, id="dash"),
        pytest.param("10²", "102", 0, 0, id="superscript"),
        pytest.param("1.2", "12", 1, 0, id="decimal point within"),
    ],
)
def test_exact_match(prediction, gold, squad, robust):
    assert SQUAD.exact_match(prediction, [gold]) == squad
    assert ROBUST.exact_match(prediction, [gold]) == robust
    # Where both sides normalise to nothing, F1 and cover-EM follow.
    if not SQUAD.normalize(prediction) or not SQUAD.normalize(gold):
        assert SQUAD.grade(prediction, [gold]) == (RIGHT if squad else WRONG)
    if not ROBUST.normalize(prediction) or not ROBUST.normalize(gold):
        assert ROBUST.grade(prediction, [gold]) == (RIGHT if robust else WRONG)


@pytest.mark.parametrize("grader", GRADERS.values(), ids=GRADERS)
def test_cover_em_goes_by_tokens(grader):
    assert grader.cover_em("he plays piano", ["no"]) == 0.0
    assert grader.cover_em("He lived in New York City.", ["New York"]) == 1.0
    assert grader.cover_em("New Orleans and York", ["New York"]) == 0.0
    assert grader.cover_em("Berlin", "Paris") == 0.0  # a bare string is one answer, not five letters
    assert grader.cover_em("anything", ["the"]) == 0.0


def test_cover_em_of_robust_minds_signs():
    assert ROBUST.cover_em("It was -5 degrees", ["5"]) == 0.0
    assert SQUAD.cover_em("It was -5 degrees", ["5"]) == 1.0


@pytest.mark.parametrize("grader", GRADERS.values(), ids=GRADERS)
@pytest.mark.parametrize(
    ("prediction", "gold", "f1"),
    [
        ("Barack Obama", "Barack Hussein Obama", 0.8),
        ("the cat sat", "cat sat on a mat", 2 * 1.0 * 0.5 / 1.5),
        ("a b b", "b", 2 * 0.5 * 1.0 / 1.5),
        ("Paris", "Rome", 0.0),
        ("yes", "yes it is", 0.0),
        ("yes it is", "yes", 0.0),
        ("no", "No.", 1.0),
        ("noanswer", "noanswer given", 0.0),
        ("maybe yes", "yes maybe", 1.0),
    ],
)
def test_f1(grader, prediction, gold, f1):
    assert grader.f1(prediction, [gold]) == pytest.approx(f1)


def test_f1_is_computed_in_the_published_order_of_operations():
    precision, recall = 2 / 3, 2 / 7
    published = (2 * precision * recall) / (precision + recall)
    assert SQUAD.f1("x y q", ["x y a1 b c d e"]) == published


@pytest.mark.parametrize("grader", GRADERS.values(), ids=GRADERS)
def test_no_answer_scores_nothing(grader):
    assert grader.grade(None, ["Paris"]) == WRONG


@pytest.mark.parametrize("grader", GRADERS.values(), ids=GRADERS)
def test_each_score_is_the_best_over_the_golden_answers(grader):
    assert grader.grade("New York City", ["Boston", "New York City Hall", "York"]) == Grade(0.0, 6 / 7, 1.0)


@pytest.mark.parametrize("grader", GRADERS.values(), ids=GRADERS)
def test_all_forms_of_golden_answers_are_graded_alike(grader):
    for golds in ("Paris", ["Paris"], np.array(["Paris"]), {"target": ["Paris"]}, '["Paris"]'):
        assert grader.grade("paris", golds) == RIGHT
        assert grader.grade("Berlin", golds) == WRONG
    with pytest.raises(UserError, match="no golden answer"):
        grader.grade("Paris", [])


@given(answers, st.lists(answers, min_size=1, max_size=3))
def test_exact_match_is_never_above_f1_or_cover_em(prediction, golds):
    for grader in GRADERS.values():
        grade = grader.grade(prediction, golds)
        assert grade.em in (0.0, 1.0)
        assert grade.cover_em in (0.0, 1.0)
        assert 0.0 <= grade.em <= grade.f1 <= 1.0
        assert grade.em <= grade.cover_em


@given(answers, answers)
def test_exact_match_and_f1_are_symmetric(one, other):
    for grader in GRADERS.values():
        assert grader.exact_match(one, [other]) == grader.exact_match(other, [one])
        assert grader.f1(one, [other]) == pytest.approx(grader.f1(other, [one]))


@given(answers)
def test_a_golden_answer_is_right_unless_it_is_blank(gold):
    for grader in GRADERS.values():
        assert grader.grade(gold, [gold]) == (RIGHT if gold.strip() else WRONG)


@st.composite
def pairs_that_squad_accepts(draw):
    """A text without digits, and the same with ASCII punctuation, articles and other capitals strewn in."""
    text = draw(st.text(alphabet="aAtThe noyes.,-–’“—éÉ\u0301_$ \u00a0ßΣ北", max_size=12))
    variant = "".join(c.swapcase() + draw(st.sampled_from(["", "", "", *string.punctuation])) for c in text)
    variant = draw(st.sampled_from(["", "The ", "a "])) + variant + draw(st.sampled_from(["", "!", " an"]))
    assume(SQUAD.exact_match(text, [variant]))
    return text, variant


@given(pairs_that_squad_accepts())
def test_robust_accepts_what_squad_accepts_where_no_number_differs(pair):
    text, variant = pair
    assert ROBUST.grade(text, [variant]) == RIGHT


@given(st.lists(st.sampled_from(["The", "a", "Élan", "U.S.", "don't", "rock-'n'-roll", "(x)", "31.4", "-5", "1,000"])))
def test_robust_ignores_case_articles_and_spacing_beside_numbers(words):
    text = " ".join(words)
    assume(ROBUST.normalize(text))
    for variant in (text.upper(), f"The {text}", f"  {text}!", text.replace(" ", "\u2003"), text.replace("'", "’")):
        assert ROBUST.exact_match(variant, [text])


@given(st.integers(min_value=-(10**6), max_value=10**6), st.integers(min_value=-(10**6), max_value=10**6))
def test_robust_tells_different_numbers_apart(one, other):
    assert ROBUST.exact_match(str(one), [f"{other:,}"]) == float(one == other)
    assert ROBUST.exact_match(f"{one / 8} km", [f"{other / 8} km"]) == float(one == other)


@given(st.text(alphabet=string.punctuation + " ", min_size=1))
def test_punctuation_alone_only_matches_itself(text):
    assert SQUAD.exact_match(text, ["Paris"]) == 0.0
    assert ROBUST.exact_match(text, ["Paris"]) == 0.0
