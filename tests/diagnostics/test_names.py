"""The catalogue of metrics, and that docs have it word for word."""

from pathlib import Path

import pytest

from sleuth.diagnostics.names import CATALOGUE, KINDS, SIGNS, TURNS, describe, is_known, parse, table

DOCS = Path(__file__).parents[2] / "docs" / "diagnosis.md"


def _examples(pattern):
    names = [pattern]
    for placeholder, values in (
        ("[<split>/]", ["", *(f"{s}/" for s in SIGNS), *(f"{s}/{x}/" for s in SIGNS for x in (*KINDS, *TURNS))]),
        ("<sign>", SIGNS),
        ("<kind>", KINDS),
        ("<status>", ["no_answer", "retriever_failed"]),
        ("<name>", ["search_sapo"]),
    ):
        names = [name.replace(placeholder, value) for name in names for value in values]
    return set(names)


def test_every_name_belongs_to_one_line_of_the_catalogue():
    owners = {}
    for metric in CATALOGUE:
        for name in _examples(metric.pattern):
            assert owners.setdefault(name, metric) is metric
            assert parse(name).metric is metric
            assert describe(name)
    assert len(owners) > 300


@pytest.mark.parametrize(
    ("name", "sign", "kind", "turn"),
    [
        ("ratio/q01", None, None, None),
        ("ratio/pos/q01", "pos", None, None),
        ("ratio/neg/query/max", "neg", "query", None),
        ("ratio/pos/turn2/below_0.5", "pos", None, 2),
        ("ratio/pos/turn6+/min", "pos", None, 6),
        ("entropy/answer", None, "answer", None),
        ("likelihood/pos", "pos", None, None),
    ],
)
def test_a_name_tells_its_place(name, sign, kind, turn):
    known = parse(name)
    assert (known.sign, known.kind, known.turn) == (sign, kind, turn)


@pytest.mark.parametrize(
    "name", ["", "my_reward", "ratio", "ratio/zero/q01", "ratio/turn1/q01", "ratio/pos/q02", "share/lost", "xreward"]
)
def test_other_names_are_not_known(name):
    assert not is_known(name)
    assert describe(name) is None


def test_what_is_bad_depends_on_the_sign():
    assert parse("ratio/pos/q01").bad == "down"
    assert parse("ratio/neg/q01").bad == "none"
    assert parse("ratio/neg/max").bad == "up"
    assert parse("ratio/pos/query/max").bad == "none"
    assert parse("ratio/q01").bad == "down"


def test_descriptions_name_the_place_in_words():
    assert describe("ratio/neg/turn6+/max") == "highest r; tokens of negative advantage in turn 6 or later"


def test_docs_hold_the_catalogue_word_for_word():
    assert table() in DOCS.read_text(encoding="utf-8")
