from io import StringIO

from rich.console import Console

from sleuth.evaluation.recall import Evidence
from sleuth.evaluation.score import Score
from sleuth.evaluation.table import AVERAGE, NOT_COMPARABLE, markdown_table, rich_table, summarise
from sleuth.types import Status


def row(source, em, status=Status.ANSWERED, searches=1):
    value = None if em is None else float(em)
    return Score(f"{source}{em}", source, status, value, value, value, status is Status.ANSWERED, searches)


ROWS = [
    row("nq", 1),
    row("nq", 0, Status.NO_ANSWER, 3),
    row("nq", None, Status.RETRIEVER_FAILED, 5),
    row("hotpotqa", 0, Status.TRUNCATED),
]


def test_a_line_counts_what_became_of_its_rollouts():
    nq, hotpotqa, _ = summarise(ROWS)
    assert (nq.name, nq.n, nq.failed, nq.no_answer, nq.truncated) == ("nq", 2, 1, 1, 0)
    assert (nq.metrics["em"].mean, nq.format, nq.searches) == (0.5, 0.5, 2.0)
    assert (hotpotqa.n, hotpotqa.truncated) == (1, 1)


def test_sets_weigh_the_same_in_the_average_and_counts_add_up():
    average = summarise(ROWS)[-1]
    assert (average.name, average.n, average.metrics["em"].mean) == (AVERAGE, 3, 0.25)
    assert (average.no_answer, average.truncated, average.failed) == (1, 1, 1)


def test_one_set_needs_no_average():
    assert [line.name for line in summarise(ROWS[:2])] == ["nq"]


def test_a_set_whose_rollouts_all_failed_has_no_score_and_leaves_the_average_alone():
    lines = summarise([*ROWS, row("musique", None, Status.RETRIEVER_FAILED)])
    assert lines[2].metrics["em"] is None
    assert lines[2].as_json()["em"] is None
    assert lines[-1].metrics["em"].mean == 0.25
    assert "–" in markdown_table(lines)


def test_both_tables_show_the_intervals_and_what_cannot_be_compared():
    lines = summarise(ROWS)
    out = StringIO()
    Console(file=out, width=150).print(rich_table(lines, comparable=False))
    for text in (out.getvalue(), markdown_table(lines, comparable=False)):
        assert "0.500 [0.000, 1.000]" in text
        assert NOT_COMPARABLE in text
    assert NOT_COMPARABLE not in markdown_table(lines)


def test_markdown_has_the_same_number_of_cells_in_each_row():
    rows = markdown_table(summarise([row("a|b", 1)])).strip().splitlines()
    assert len({line.replace("\\|", "").count("|") for line in rows}) == 1


def sampled(question, sample, em, **more):
    return Score(f"{question}#{sample}", "s", Status.ANSWERED, em, em, em, True, 0, question=question, **more)


def test_samples_of_a_question_are_averaged_before_anything_else():
    rows = [sampled("a", 1, 1.0), sampled("a", 2, 0.0), sampled("b", 1, 1.0), sampled("b", 2, 1.0)]
    (line,) = summarise(rows)
    assert (line.n, line.metrics["em"].mean) == (2, 0.75)
    assert summarise([*rows, sampled("c", 1, None)])[0].n == 2


def test_recall_is_kept_apart_by_what_it_is_measured_by():
    rows = [
        sampled("a", 1, 1.0, evidence=Evidence.TITLES, recall=0.5, found=1.0),
        sampled("b", 1, 1.0, evidence=Evidence.ANSWER, recall=0.0, found=1.0),
        sampled("c", 1, 1.0, evidence=Evidence.ANSWER, recall=1.0, found=None),
        sampled("d", 1, 1.0),
    ]
    (line,) = summarise(rows)
    assert line.recall == {"titles": 0.5, "answer": 0.5}
    assert "| 0.50 titles, 0.50 answer | 1.00 titles, 1.00 answer |" in markdown_table([line])


def test_what_is_still_to_come_is_said_and_has_a_line_of_its_own():
    first, second, average = summarise([row("nq", 1)], expected={"musique": 2, "nq": 3})
    assert (first.name, first.n, first.pending, first.metrics["em"]) == ("musique", 0, 2, None)
    assert (second.name, second.pending, average.pending) == ("nq", 2, 4)


def test_the_order_of_rows_decides_on_no_figure():
    import random

    rows = [sampled(str(n), 1, float(n % 3 == 0)) for n in range(30)] + ROWS
    shuffled = random.Random(1).sample(rows, len(rows))
    expected = {line.name: line for line in summarise(rows)}
    assert {line.name: line for line in summarise(shuffled)} == expected
