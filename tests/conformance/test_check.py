"""Every line of sets G, E and V, for Sleuth itself; and the suite on functions with known faults."""

import re
import string
from pathlib import Path

import numpy as np
import pytest

from sleuth.conformance import own
from sleuth.conformance.adapters import shape_of
from sleuth.conformance.cases import FILES, SEAMS, Case, cases, evaluation_rows, file_text
from sleuth.conformance.check import Functions, check, check_own, tallies
from sleuth.errors import UserError

TESTS = Path(__file__).resolve().parents[1]
RUN_BY_OTHER_TESTS = {"V4": "training/test_epochs.py", "V5": "training/test_run.py"}


@pytest.mark.parametrize("case", cases(), ids=lambda case: f"{case.title}, {case.seam}")
def test_sleuth_conforms(case):
    (verdict,) = check_own([case])
    if case.seam == "resume":
        source = (TESTS / RUN_BY_OTHER_TESTS[case.id]).read_text()
        assert f'"""{case.id}' in source  # stopping and resuming takes a training run, which has tests of its own
        assert verdict.passed is None
    else:
        assert verdict.passed, verdict.as_dict()


def test_the_files_hold_what_the_suite_names():
    assert set(FILES) == {"G", "E", "V"}
    assert {case.seam for case in cases()} == set(SEAMS)
    assert len(cases()) == len({(case.title, case.seam) for case in cases()}) == 68
    ids = {case.id for case in cases()}
    assert {"G1", "G2", "G4", "G5", "G6", "G8", "V1", "V2", "V3", "V4", "V5"} <= ids
    assert {f"E{n}" for n in (1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 15, 17, 18)} <= ids


def test_every_line_of_the_notes_is_in_the_suite():
    notes = TESTS.parents[1] / "shared" / "conformance.md"
    if not notes.is_file():
        pytest.skip(f"needs {notes}")
    text = notes.read_text()
    named = set(re.findall(r"^\| ([GE]\d+) \|", text, re.MULTILINE)) | set(re.findall(r"\b(V\d): ", text))
    assert named == {case.id for case in cases()}


def test_no_case_line_is_longer_than_a_screen_of_an_editor_but_v3():
    assert all(len(line) < 2_000 for line in file_text("grading.jsonl").splitlines())


# Functions with known faults ------------------------------------------------------------------------------------------


def normal(text):
    text = "".join(c for c in text.lower() if c not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def published_em(prediction, golden_answers):
    golds = [golden_answers] if isinstance(golden_answers, str) else golden_answers
    return any(normal(prediction) == normal(gold) for gold in golds)


def last_answer(text):
    found = re.findall(r"<answer>(.*?)</answer>", text, re.DOTALL)
    return found[-1].strip() if found else None


def whole_text_reward(solution_str, ground_truth):
    print("noise on stdout")
    answer = last_answer(solution_str)
    return 0.0 if answer is None else float(published_em(answer, ground_truth["target"]))


def trl_reward(completions, golden_answers, **kwargs):
    pairs = zip(completions, golden_answers, strict=True)
    return [whole_text_reward(c[0]["content"], {"target": g}) for c, g in pairs]


def failed(functions):
    return {verdict.case.title for verdict in check(functions) if verdict.passed is False}


def test_the_published_grader_fails_where_nothing_is_left_of_an_answer():
    assert failed(Functions(grader=published_em)) == {
        "G5 two articles",
        "G5 two kinds of punctuation",
        "G5 nothing and a space",
        "G8 golden answers as target",
        "G8 no golden answer at all",
    }


def test_robust_rules_ask_for_more():
    titles = failed(Functions(grader=published_em, rules="robust"))
    assert {"G1 an accent left out", "G2 a curly apostrophe", "G4 a decimal point"} <= titles


@pytest.mark.parametrize(
    "functions",
    [Functions(grader=whole_text_reward, shape="solution"), Functions(grader=trl_reward, shape="completions")],
)
def test_a_reward_that_reads_everything_fails_on_pages_and_thoughts(functions, capsys):
    titles = failed(functions)
    assert {"E2 a page holds an answer element", "E3 tags in a thought are text"} <= titles
    assert "E1 no answer; the prompt's example is the golden one" not in titles
    assert capsys.readouterr().out == ""  # what a grader prints is kept out of our output


def test_with_its_prompt_it_fails_on_the_example_too():
    titles = failed(Functions(grader=whole_text_reward, shape="solution", with_prompt=True))
    assert "E1 no answer; the prompt's example is the golden one" in titles


def test_containment_by_letters_is_found():
    titles = failed(Functions(cover_em=lambda prediction, golden_answers: golden_answers[0] in prediction))
    assert "G6 containment goes by tokens" in titles


def test_extractors_are_held_to_the_declared_answer():
    assert "E2 a page holds an answer element" in failed(Functions(extractor=last_answer))
    assert "E6 two searches in one turn" not in failed(Functions(extractor=last_answer))


@pytest.mark.parametrize("form", [tuple, dict])
def test_parsers_are_held_to_one_action(form):
    def parser(text):
        found = re.search(r"<(search|answer)>(.*?)</\1>", text, re.DOTALL)
        if found is None:
            return None
        return (found[1], found[2]) if form is tuple else {"action": found[1], "content": found[2]}

    titles = failed(Functions(parser=parser))
    assert titles == {
        "E3 tags in a thought are text",
        "E4 a search that a thought only speaks of",
        "E12 an empty search",
        "E12 a search for spaces",
    }


def test_an_evaluation_that_drops_or_mixes_rows_is_found():
    def answer(row):
        return last_answer(row["response"])

    def right(rows, batch_size):
        return [{"id": row["id"], "em": float(answer(row) in row["golden_answers"])} for row in rows]

    assert failed(Functions(evaluator=right)) == set()
    assert failed(Functions(evaluator=own.evaluator)) == set()
    drops = lambda rows, batch: right(rows, batch)[: len(rows) // batch * batch]  # noqa: E731
    assert failed(Functions(evaluator=drops)) == {"V1 125 rows, batches of 256", "V2 any batch, any order"}
    mixes = lambda rows, batch: [r | {"em": 1.0} if batch == 7 else r for r in right(rows, batch)]  # noqa: E731
    assert failed(Functions(evaluator=mixes)) == {"V2 any batch, any order"}
    lazy = lambda rows, batch: [r | {"em": 0.0} for r in right(rows, batch)]  # noqa: E731
    assert failed(Functions(evaluator=lazy)) == {"V1 125 rows, batches of 256", "V2 any batch, any order"}
    with pytest.raises(UserError, match="an evaluator returns rows of id and em"):
        check(Functions(evaluator=lambda rows, batch: None))


def test_a_function_that_raises_fails_only_where_it_should_not():
    def strict(prediction, golden_answers):
        if not len(golden_answers):
            raise ValueError("no golden answers\nand more")
        return published_em(prediction, golden_answers)

    verdicts = {v.case.title: v for v in check(Functions(grader=strict))}
    refusal = verdicts["G8 no golden answer at all"]
    assert (refusal.passed, refusal.got) == (True, "raised ValueError: no golden answers")


@pytest.mark.parametrize(
    ("functions", "said"),
    [
        (
            Functions(grader=lambda prediction, golden_answers: "1.0"),
            r"returned '1.0' \(str\) .*a grader returns a number",
        ),
        (Functions(grader=lambda prediction, golden_answers: None), r"returned None \(NoneType\)"),
        (Functions(grader=lambda prediction, golden_answers: [1.0, 0.0]), r"returned \[1.0, 0.0\] \(list\)"),
        (Functions(grader=lambda prediction, golden_answers: np.zeros(3)), r"\(ndarray\)"),
        (Functions(grader=lambda solution_str, ground_truth: {"reward": 1.0}, shape="solution"), "the number as score"),
        (Functions(grader=lambda completions, **k: [0.0, 1.0], shape="completions"), "a number .or None. for each"),
        (Functions(grader=lambda completions, **k: 1, shape="completions"), None),
        (Functions(grader=lambda solution_str, ground_truth: {"score": np.float32(1)}, shape="solution"), None),
        (Functions(grader=lambda completions, **k: [None], shape="completions"), None),
        (Functions(extractor=lambda text: ["Paris"]), "an extractor returns the answer's text, or None"),
        (Functions(parser=lambda text: "search"), "a parser returns .action, content."),
        (Functions(parser=lambda text: (1, 2)), "a parser returns .action, content."),
    ],
)
def test_a_result_of_another_type_is_the_callers_mistake_and_no_verdict(functions, said):
    if said is None:
        assert check(functions)
    else:
        with pytest.raises(UserError, match=said):
            check(functions)


def test_a_broken_rule_of_our_own_is_found(monkeypatch):
    case = next(case for case in cases() if case.title.startswith("E2 a page holds"))
    monkeypatch.setattr(own, "transcript", lambda case, overshoot: {**case.expect, "em": 1.0, "text": ""})
    assert check_own([case])[0].passed is False


def test_shapes_are_told_by_argument_names():
    assert shape_of(whole_text_reward) == "solution"
    assert shape_of(trl_reward) == "completions"
    assert shape_of(published_em) == "answer"
    assert shape_of(published_em, "solution") == "solution"
    with pytest.raises(UserError, match="--as pairs is not known"):
        shape_of(published_em, "pairs")


def test_tallies_count_what_was_asked():
    verdicts = check(Functions(grader=published_em))
    found = tallies(verdicts)
    assert set(found) == {"G"}
    assert (found["G"].passed, found["G"].asked) == (17, 22)


def test_rows_of_the_evaluator_are_the_same_every_time():
    assert evaluation_rows(125) == evaluation_rows(125)
    assert isinstance(cases()[0], Case)
