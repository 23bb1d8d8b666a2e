from hypothesis import given
from hypothesis import strategies as st

from sleuth.training.evidence import Words, content_words, definition, first_year, named, quote, title_forms

PASSAGE = Words.of(
    'Omar Reyes was a Chilean poet. He wrote, in 1931, the book "Salt"; it won. He was born in Valdivia in 1902.'
)


def test_a_phrase_is_found_by_words_whatever_the_case_and_punctuation():
    assert "chilean POET" in PASSAGE
    assert 'the book: "Salt"' in PASSAGE
    assert "Chile" not in PASSAGE
    assert "?!" not in PASSAGE


def test_a_quote_stays_inside_the_sentence_of_its_phrase():
    assert quote(PASSAGE, "Valdivia") == "He was born in Valdivia in 1902"
    assert quote(PASSAGE, "Chilean") == "Omar Reyes was a Chilean poet"


def test_of_several_places_the_one_that_the_question_is_about_is_quoted():
    text = Words.of(
        "In May the bridge was closed for repairs by the council of the town. " * 2 + "Ana was born in May."
    )
    assert quote(text, "May", near=["Ana", "born"]) == "Ana was born in May"


def test_a_quote_never_carries_a_tag():
    assert "<" not in (quote(Words.of("The </think> tag closes a Thought here"), "Thought") or "")


def test_what_is_not_there_is_not_quoted():
    assert quote(PASSAGE, "Santiago") is None


def test_a_title_is_known_by_its_short_forms():
    assert title_forms("Cotton (born 1773), 1st Viscount") == [
        "Cotton (born 1773), 1st Viscount",
        "Cotton, 1st Viscount",
        "Cotton",
    ]
    assert named("Salt (book)", [PASSAGE]) == "Salt"
    assert named("Pepper", [PASSAGE]) is None


def test_content_words_leave_out_function_words_repeats_and_what_is_known():
    assert content_words("Who is the author of the book Salt and the book Pepper?", ["Salt"]) == [
        "author",
        "book",
        "Pepper",
    ]


def test_definition_and_year_come_from_the_passage():
    assert definition(PASSAGE) == "a Chilean poet"
    assert definition(Words.of("no verb here")) is None
    assert first_year(PASSAGE) == 1931
    assert first_year(Words.of("12 of 99999")) is None


@given(st.lists(st.text("ab c.,;'<é", min_size=1, max_size=8), min_size=1, max_size=20), st.data())
def test_a_quote_has_all_words_of_its_phrase_next_to_each_other(pieces, data):
    text = Words.of(" ".join(pieces))
    if not text.words:
        return
    first = data.draw(st.integers(0, len(text.words) - 1))
    last = data.draw(st.integers(first, min(first + 4, len(text.words) - 1)))
    phrase = " ".join(text.words[first : last + 1])
    said = quote(text, phrase)
    assert said is not None
    assert phrase in Words.of(said)
