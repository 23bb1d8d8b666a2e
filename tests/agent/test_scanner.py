"""What a turn contains, in bytes."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleuth.agent.scanner import Stretch, TurnScanner, token_parts
from sleuth.types import Part, PartKind

KINDS = {"search": PartKind.QUERY, "answer": PartKind.ANSWER}
SCANNER = TurnScanner("think", KINDS, ["information"])
FRAGMENTS = [
    *(f"<{slash}{name}>" for name in ("think", "search", "answer", "information") for slash in ("", "/")),
    *("<Search>", "< answer >", "</search", ">", "<", "Paris", " ", "\n", "é", "</", "search"),
]
turns = st.lists(st.sampled_from(FRAGMENTS), max_size=14).map("".join)
opened = st.sampled_from([None, "think", "answer"])


def scan(text, opened=None):
    return SCANNER.scan(text.encode(), opened)


def test_a_thought_and_an_action_are_clean():
    turn = scan("<think>a</think>\n<search> who? </search>")
    assert (turn.action, turn.content, turn.thoughts, turn.clean) == ("search", b" who? ", 1, True)
    assert turn.stretches == [
        Stretch(PartKind.TAG, 0, 7),
        Stretch(PartKind.THINK, 7, 8),
        Stretch(PartKind.TAG, 8, 16),
        Stretch(PartKind.TAG, 17, 25),
        Stretch(PartKind.QUERY, 25, 31),
        Stretch(PartKind.TAG, 31, 40),
    ]


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("<Search>q</Search>", "malformed", 2),
        ("<search >q</ search>", "malformed", 2),
        ("<think><Search></think><search>q</search>", "malformed", 0),
        ("</answer><search>q</search>", "stray", 1),
        ("<answer>I think <search>q</search>", "stray", 1),
        ("<information>x</information><search>q</search>", "stray", 2),
        ("hm <search>q</search>", "free", True),
        ("<think>a</think> hm <search>q</search>", "free", True),
        (" \n<search>q</search>", "free", False),
        ("hm", "free", True),
        ("<search>q</search> \n", "trailing", False),
        ("<search>q</search> and", "trailing", True),
        ("<think>a</think><think>b</think><search>q</search>", "thoughts", 2),
    ],
)
def test_what_is_not_clean_is_counted(text, field, value):
    assert getattr(scan(text), field) == value


def test_a_later_opening_tag_abandons_an_earlier_one():
    assert scan("<answer>maybe <search>q</search>").action == "search"
    assert scan("<search>q <search>r</search>").content == b"r"
    assert scan("<search>q<think>x</think></search>").action is None


def test_an_action_that_the_environment_opened_can_not_be_abandoned():
    turn = scan(" Paris <search>q</search> <think>x</think></answer>", "answer")
    assert turn.action == "answer"
    assert turn.content == b" Paris <search>q</search> <think>x</think>"
    assert not turn.clean
    assert scan(" <answer> Paris </answer>", "answer").content == b" Paris "


def test_the_end_of_turn_token_is_no_trailing_content():
    turn = b"<answer>Paris</answer><eos>"
    assert SCANNER.scan(turn, None, turn.index(b"<eos>")).trailing is False
    assert SCANNER.scan(turn, None).trailing is True


def test_an_open_thought_goes_to_the_end_but_not_over_the_end_of_turn_token():
    assert SCANNER.scan(b"abc<eos>", "think", 3).stretches == [Stretch(PartKind.THINK, 0, 3)]
    assert SCANNER.scan(b"<eos>", "think", 0).stretches == []


def test_white_space_without_end_is_read_in_linear_time():
    assert scan("<" + " " * 200_000).action is None
    assert scan("<search" + " " * 200_000).action is None


@given(text=turns, opened=opened)
def test_stretches_are_ordered_apart_and_inside_the_turn(text, opened):
    turn = scan(text, opened)
    ends = [0] + [s.end for s in turn.stretches]
    assert all(before <= s.start < s.end for before, s in zip(ends, turn.stretches, strict=False))
    assert ends[-1] <= turn.end <= len(text.encode())


@given(text=turns, opened=opened, more=turns)
def test_what_follows_a_complete_action_does_not_change_it(text, opened, more):
    before, after = scan(text, opened), scan(text + more, opened)
    if before.action is not None:
        assert (after.action, after.content, after.end) == (before.action, before.content, before.end)
        assert after.stretches == before.stretches


@given(text=turns, opened=opened)
def test_the_cheap_question_has_the_same_answer(text, opened):
    assert SCANNER.completes(text.encode(), opened) == (scan(text, opened).action is not None)


@given(text=turns, cuts=st.lists(st.integers(0, 80), max_size=10))
def test_any_token_that_completes_an_action_can_close(text, cuts):
    turn = text.encode()
    action = SCANNER.scan(turn)
    bounds = sorted({0, *(c for c in cuts if c < len(turn)), len(turn)})
    for start, end in itertools.pairwise(bounds):
        if action.action is not None and start < action.end <= end:
            assert SCANNER.can_close(turn[start:end])


def test_few_tokens_can_close():
    assert [SCANNER.can_close(p) for p in (b">", b"ch>", b"</answer>", b" </search>.", b"x></search>")] == [True] * 5
    assert [SCANNER.can_close(p) for p in (b"->", b"</think>", b"<search>", b"search", b"<", b"")] == [False] * 6


def test_a_token_belongs_to_the_stretch_of_its_first_visible_byte():
    pieces = [
        b"<",
        b"think",
        b">",
        b"a",
        b"b",
        b"</",
        b"think",
        b">\n<",
        b"search",
        b">",
        b"q",
        b"\n",
        b" </search",
        b">.",
    ]
    parts = token_parts(pieces, scan(b"".join(pieces).decode()).stretches)
    assert parts == [
        Part(PartKind.TAG, 0, 3),
        Part(PartKind.THINK, 3, 5),
        Part(PartKind.TAG, 5, 8),
        Part(PartKind.TAG, 8, 10),
        Part(PartKind.QUERY, 10, 12),
        Part(PartKind.TAG, 12, 14),
    ]


@given(text=turns, cuts=st.lists(st.integers(0, 80), max_size=20))
def test_parts_are_ordered_apart_and_hold_text_of_their_stretch(text, cuts):
    turn = text.encode()
    bounds = [0, *sorted(c for c in cuts if c < len(turn)), len(turn)]
    pieces = [turn[a:b] for a, b in itertools.pairwise(bounds)]
    stretches = SCANNER.scan(turn).stretches
    parts = token_parts(pieces, stretches)
    assert all(p.start < p.end <= len(pieces) for p in parts)
    assert all(a.end <= b.start for a, b in itertools.pairwise(parts))
    for part in parts:
        for token in range(part.start, part.end):
            start = bounds[token] + len(pieces[token]) - len(pieces[token].lstrip() or pieces[token])
            assert any(s.kind is part.kind and s.start <= start < s.end for s in stretches)
