import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleuth.recipes.yaml_text import YamlError, dump_yaml, parse_yaml

texts = st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S", "Zs"]), max_size=30)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts
values = st.recursive(scalars, lambda v: st.lists(v, max_size=4) | st.dictionaries(texts, v, max_size=4), max_leaves=12)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-6", 1e-6),
        ("3.0e-4", 3e-4),
        (".5", 0.5),
        ("-2", -2),
        ("no", "no"),
        ("on", "on"),
        ("true", True),
        ("012", "012"),
        ("1:30", "1:30"),
        ("2024-01-01", "2024-01-01"),
        ("1_000", "1_000"),
        ("", None),
        ("null", None),
        ("[a, 2, null]", ["a", 2, None]),
        ("{support: gold, fold: [2, 3]}", {"support": "gold", "fold": [2, 3]}),
    ],
)
def test_a_value_is_what_it_looks_like(text, value):
    parsed = parse_yaml(text)
    assert parsed == value
    assert type(parsed) is type(value)


def test_infinity_and_nan_are_floats():
    assert parse_yaml(".inf") == math.inf
    assert math.isnan(parse_yaml(".nan"))


@given(values)
def test_what_is_dumped_is_read_back(value):
    assert parse_yaml(dump_yaml(value)) == value


@pytest.mark.parametrize(
    "text", ["1e-6", "no", "true", "~", "", "012", "=", "<<", "a: b", "{question}", "x\n\ny ", "- a", "#"]
)
def test_a_text_stays_a_text(text):
    assert parse_yaml(dump_yaml({"key": text})) == {"key": text}


def test_a_key_that_stands_twice_is_refused_with_its_line():
    with pytest.raises(YamlError, match=r"line 3.*'lr' stands here twice"):
        parse_yaml("a: 1\nlr: 1\nlr: 2\n")


@pytest.mark.parametrize("text", ["a: [1", "a: b: c", "!!python/object:os.system x", "\t- a"])
def test_what_is_no_yaml_is_one_line(text):
    with pytest.raises(YamlError) as error:
        parse_yaml(text)
    assert "\n" not in str(error.value)
