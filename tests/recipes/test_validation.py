from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from sleuth.errors import UserError
from sleuth.recipes.validation import known_keys, nearest_key, validated


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")
    size: int
    name: str = "x"


class Outer(BaseModel):
    model_config = ConfigDict(extra="forbid")
    inner: Inner | str = "none"
    sizes: list[int] = []
    anything: dict[str, Any] = {}


def refusal(data, prefix="") -> str:
    with pytest.raises(UserError) as error:
        validated(Outer, data, where="here", prefix=prefix)
    return str(error.value)


def test_right_data_become_a_model():
    assert validated(Outer, {"inner": {"size": 3}}, where="here").inner == Inner(size=3)


def test_free_mappings_may_hold_any_key():
    assert validated(Outer, {"anything": {"whatever": 1}}, where="here").anything == {"whatever": 1}


def test_all_unknown_keys_are_named_with_their_prefix():
    message = refusal({"iner": 1, "inner": {"size": 1, "nam": "y"}}, prefix="group.of")
    assert "'group.of.iner'; did you mean 'group.of.inner'?" in message
    assert "'group.of.inner.nam'; did you mean 'group.of.inner.name'?" in message


def test_of_a_unions_complaints_the_one_about_the_inner_key_counts():
    assert refusal({"inner": {"size": "big"}}).startswith("here: inner.size='big' should be a valid integer")


def test_a_missing_key_is_called_missing():
    assert refusal({"inner": {"name": "a"}}) == "here: inner.size is missing"


def test_an_item_of_a_list_is_named_by_its_place():
    assert "sizes.1='b' should be a valid integer" in refusal({"sizes": [1, "b"]})


def test_known_keys_are_dotted_and_hold_the_groups():
    assert list(known_keys(Outer)) == ["inner", "inner.size", "inner.name", "sizes", "anything"]


@pytest.mark.parametrize(
    ("key", "nearest"), [("trainer.lrr", "trainer.lr"), ("lr", "trainer.lr"), ("model_lr", None), ("zzz", None)]
)
def test_the_nearest_key_may_be_in_another_group_but_must_be_near(key, nearest):
    assert nearest_key(key, ["trainer", "trainer.lr", "data.dev_size"]) == nearest
