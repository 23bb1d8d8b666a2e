import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleuth.assembly import build_retriever, build_tools
from sleuth.errors import UserError
from sleuth.recipes.loader import resolve
from sleuth.retrieval.build import IndexSettings, build_index
from sleuth.retrieval.pages import cut_page, show_page, visit_tool
from sleuth.types import Document


class Library:
    def __init__(self, **pages):
        self.pages = pages

    def page(self, name):
        return [Document(f"{name}-{n}", name, text) for n, text in enumerate(self.pages.get(name, []))]


LONG = Library(Rome=["one two three four", "five six\nseven"], Short=["only this"], **{"Apollo 11": ["moon"]})


def test_a_page_is_read_part_by_part():
    assert show_page(LONG, "Rome", 1, 3) == "Rome\none two three\n(part 1 of 3; the next one is Rome #2)"
    assert show_page(LONG, "Rome", 2, 3) == "Rome\nfour\n\nfive six\n(part 2 of 3; the next one is Rome #3)"
    assert show_page(LONG, " Rome #3 ", 1, 3) == "Rome\nseven"
    assert show_page(LONG, "Rome, part 3", 1, 3) == "Rome\nseven"
    assert show_page(LONG, "Short", 1, 3) == "Short\nonly this"


def test_what_is_not_there_is_said():
    assert show_page(LONG, "Oslo", 1, 3) == 'There is no page "Oslo".'
    assert show_page(LONG, "Short", 2, 3) == 'The page "Short" has 1 part; there is no part 2.'
    assert show_page(LONG, "Rome", 0, 3) == 'The page "Rome" has 3 parts; there is no part 0.'


def test_a_number_may_belong_to_the_title():
    library = Library(**{"Area #51": ["desert"]})
    assert show_page(library, "Area #51", 1, 9) == "Area #51\ndesert"
    assert show_page(LONG, "Apollo 11", 1, 9) == "Apollo 11\nmoon"


@given(st.text(alphabet="ab \n", max_size=80), st.integers(1, 6))
def test_no_word_of_a_page_is_lost(text, words):
    parts = cut_page(text, words)
    assert " ".join(parts).split() == text.split()
    assert all(len(part.split()) <= words for part in parts)


def test_the_tool_can_be_called_by_name_and_described():
    from transformers.utils import get_json_schema

    visit = visit_tool(LONG, 3)
    assert visit(page="Rome", part=3) == "Rome\nseven"
    parameters = get_json_schema(visit)["function"]["parameters"]
    assert parameters["required"] == ["page"]


def test_a_recipe_turns_it_on(tmp_path, corpus):
    build_index(str(corpus), tmp_path / "index", IndexSettings())
    recipe = resolve({"retriever": {"kind": "index", "corpus": str(tmp_path / "index"), "visit": True}})
    tools = build_tools(recipe, build_retriever(recipe)[0])
    assert tools["visit"](page="Paris").startswith("Paris\nParis is the capital of France.")
    assert "visit" not in build_tools(resolve({}))
    own = resolve({"retriever": {"visit": True}, "protocol": {"tools": {"visit": "math:sqrt"}}})
    with pytest.raises(UserError, match="two tools"):
        build_tools(own)


def test_a_retriever_without_pages_is_refused():
    class Bare:
        def search(self, requests, k):
            return []

    with pytest.raises(UserError, match="a Bare has no pages"):
        build_tools(resolve({"retriever": {"visit": True}}), Bare())


def test_passages_in_process_have_pages_too(corpus):
    recipe = resolve({"retriever": {"corpus": str(corpus), "visit": True}})
    tools = build_tools(recipe, build_retriever(recipe)[0])
    assert "The Louvre" in tools["visit"](page="paris-2")
