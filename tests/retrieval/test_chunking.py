import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from sleuth.retrieval.chunking import Chunking, chunk_file

TEN = Chunking(words=10)


def chunks(text, name="notes.txt", chunking=TEN):
    return [(c.title, c.text, c.line) for c in chunk_file(text, name, chunking)]


def test_whole_paragraphs_share_a_passage_while_they_fit():
    text = "one two three four\n\nfive six\nseven\n\neight nine ten eleven"
    assert chunks(text) == [
        ("notes", "one two three four\n\nfive six\nseven", 1),
        ("notes", "eight nine ten eleven", 6),
    ]


def test_a_long_paragraph_is_cut_at_sentences():
    text = "A b c d e f. G h i j. K l m n o p q."
    assert [t for _, t, _ in chunks(text)] == ["A b c d e f. G h i j.", "K l m n o p q."]


def test_a_sentence_without_end_is_cut_between_words():
    assert [t for _, t, _ in chunks(" ".join("abcdefghijkl"))] == ["a b c d e f g h i j", "k l"]


def test_headings_of_markdown_become_titles_and_their_text_stays_apart():
    text = "# Handbook\nIntro.\n\n## Travel\nBy rail.\n\n### Trains ###\nFirst class.\n\n## Food\nLunch."
    assert chunks(text, "a/b.md") == [
        ("Handbook", "Intro.", 2),
        ("Handbook › Travel", "By rail.", 5),
        ("Handbook › Travel › Trains", "First class.", 8),
        ("Handbook › Food", "Lunch.", 11),
    ]


def test_underlined_headings_count_and_rulers_do_not():
    assert chunks("Guide\n=====\nText.\n\nPart\n----\nMore.\n\n---\nEnd.", "g.md") == [
        ("Guide", "Text.", 3),
        ("Guide › Part", "More.\n\n---\nEnd.", 7),
    ]


def test_a_comment_in_a_code_block_is_no_heading():
    assert chunks("# T\n```sh\n# not a heading\n```", "g.md") == [("T", "```sh\n# not a heading\n```", 2)]


def test_a_hash_in_plain_text_is_text():
    assert chunks("# one") == [("notes", "# one", 1)]


def test_pages_of_a_pdf_end_a_paragraph_but_not_a_passage():
    assert chunks("first page\n\fsecond page") == [("notes", "first page\n\nsecond page", 1)]


def test_the_next_passage_repeats_the_last_sentences():
    text = "A b c d. E f g. H i. J k l m n o."
    found = [t for _, t, _ in chunks(text, chunking=Chunking(words=10, overlap=3))]
    assert found == ["A b c d. E f g. H i.", "H i.\n\nJ k l m n o."]


def test_text_without_spaces_is_cut_too():
    found = [t for _, t, _ in chunks("北京是首都。" * 20)]
    assert "".join(found) == "北京是首都。" * 20
    assert max(map(len, found)) == 30


def test_nothing_gives_nothing():
    assert chunks(" \n\n") == []


@given(st.text(alphabet="ab .\n#-=`\f", max_size=300), st.booleans())
def test_no_word_is_lost_or_made_up(text, markdown):
    name = "x.md" if markdown else "x.txt"
    found = list(chunk_file(text, name, TEN))
    words = " ".join(c.text for c in found).split()
    if markdown:  # headings moved into titles
        assert len(words) <= len(text.split())
    else:
        assert words == text.split()
    assert all(len(c.text.split()) <= 10 for c in found)


def test_an_overlap_that_would_never_go_on_is_refused():
    with pytest.raises(ValidationError, match="at most half"):
        Chunking(words=10, overlap=6)
