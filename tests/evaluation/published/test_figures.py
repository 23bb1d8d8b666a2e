"""The sums of published tables, done again."""

import re
from pathlib import Path

import pytest

from sleuth.data.benchmarks.catalogue import is_benchmark
from sleuth.evaluation.published import Figure, figures, flags, sources
from sleuth.evaluation.published.figures import SETUP

AVERAGES = {
    ("Qwen2.5-3B-Instruct", "GRPO on verl"): "avg is printed as 0.349; its values give 0.355",
    ("Qwen2.5-3B-Instruct", "SAPO"): "avgM is printed as 0.396; its values give 0.385",
    ("Qwen2.5-3B-Instruct", "GRPO + KL (unconditional)"): "avg is printed as 0.398; its values give 0.401",
}
BAMBOOGLE = {
    ("llds", 0.395),
    ("llds", 0.444),
    ("llds", 0.508),
    ("llds", 0.492),
    ("search_sapo", 0.266),
    ("search_sapo", 0.139),
    ("search_sapo-ablation", 0.333),
    ("search_sapo-ablation", 0.342),
    ("search_sapo-ablation", 0.369),
    ("search_sapo-ablation", 0.382),
    ("search_sapo-sizes", 0.548),
    ("search_sapo-families", 0.105),
    ("search_sapo-families", 0.306),
}


def test_every_value_is_a_share_on_a_known_benchmark_with_a_source_in_use():
    for row in figures():
        assert row.values or row.averages
        assert all(0 <= value <= 1 for value in [*row.values.values(), *row.averages.values()])
        assert all(is_benchmark(name) for name in row.values)
        assert set(row.source.setup) <= set(SETUP)
        assert row.source.where
    assert {row.source.name for row in figures()} == set(sources())
    assert len(figures()) == 90


def test_exactly_the_averages_that_do_not_add_up_are_flagged():
    found = {(row.model, row.method): flag for row in figures() for flag in flags(row) if "is printed as" in flag}
    assert found == AVERAGES


def test_exactly_the_bamboogle_scores_that_125_questions_cannot_give_are_flagged():
    flagged = {
        (row.source.name, row.values["bamboogle"]) for row in figures() for flag in flags(row) if "bamboogle" in flag
    }
    assert flagged == BAMBOOGLE


def test_what_is_printed_stays_as_it_is_printed():
    row = next(row for row in figures() if row.averages.get("avgM") == 0.396)
    assert row.recomputed("avgM") == pytest.approx(0.38475)
    assert row.averages["avgM"] == 0.396


def figure(values, averages, decimals=3, metric="em"):
    averaged = {"avg": tuple(values)}
    source = next(iter(sources().values()))
    return Figure(source, "m", "x", metric, values, averages, averaged, decimals)


@pytest.mark.parametrize(
    ("values", "average", "flagged"),
    [
        ({"nq": 0.1, "popqa": 0.2}, 0.150, False),
        ({"nq": 0.1, "popqa": 0.2}, 0.151, False),  # both values and the average may be rounded
        ({"nq": 0.1, "popqa": 0.2}, 0.152, True),
        ({"bamboogle": 0.4}, 0.4, False),
        ({"bamboogle": 0.395}, 0.395, True),
    ],
)
def test_rounding_is_no_fault(values, average, flagged):
    assert bool(flags(figure(values, {"avg": average}))) is flagged


def test_f1_may_be_anything_on_bamboogle():
    assert flags(figure({"bamboogle": 0.395}, {}, metric="f1")) == []


def test_known_rows_are_there():
    rows = {(row.source.name, row.model, row.method): row for row in figures()}
    search_r1 = rows["search-r1", "Qwen2.5-7B", "Search-R1 PPO"]
    assert search_r1.values["bamboogle"] == 0.432
    assert search_r1.averages == {"avg": 0.431}
    assert rows["tinker", "Qwen2.5-7B-Instruct", "tinker"].values == {
        "nq": 0.516,
        "triviaqa": 0.673,
        "hotpotqa": 0.497,
        "2wiki": 0.428,
    }
    assert rows["signbalance", "Qwen2.5-7B-Instruct", "SIGNBALANCE"].shown(0.3925) == "0.3925"


@pytest.mark.parametrize("name", ["published.md", "methods/search_sapo.md"])
def test_rows_are_those_of_the_notes_that_they_were_taken_from(name):
    notes = Path(__file__).resolve().parents[4] / "shared" / name
    if not notes.is_file():
        pytest.skip(f"needs {notes}")
    known = {(*row.values.values(), row.averages.get("avg")) for row in figures()}
    checked = 0
    for line in notes.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        numbers = tuple(float(cell) for cell in cells if re.fullmatch(r"\.\d{3}", cell))
        if len(numbers) != 8 or cells[0].endswith("-I"):  # no table of sets, but the course of a training run
            continue
        checked += 1
        assert numbers in known, line
    assert checked >= 12
