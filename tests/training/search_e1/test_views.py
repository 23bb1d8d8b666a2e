"""Both views of a pair: same response ids, and a prompt that fits the protocol's own template."""

import copy
from dataclasses import replace

import pytest

from sleuth.agent.codec import TokenCodec
from sleuth.agent.episode import Limits
from sleuth.agent.tags import TagProtocol, TagSettings
from sleuth.agent.tool_calls import ToolCallProtocol
from sleuth.training.playback import play
from sleuth.training.search_e1.pairs import Pair
from sleuth.training.search_e1.settings import DistillSettings
from sleuth.training.search_e1.views import reference_text, teacher_question, view, views_of
from sleuth.types import Action, ActionType, Document, Question

QUESTION = Question("q1", "What is the capital of France?", ["Paris"])
PAGE = Document("7", "Paris", "Paris is the capital of France. People like it.")
LIMITS = Limits(max_turns=4, max_searches=3, max_tokens=4000, max_turn_tokens=500, max_observation_tokens=500)
CHAT = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls or [] %}"
    '<tool_call>\n{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}\n</tool_call>'
    "{% endfor %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(params=["tags", "tags in a chat", "tags with an opened thought", "tool calls"])
def protocol(request, bpe_tokenizer):
    tokenizer = copy.deepcopy(bpe_tokenizer)
    if request.param != "tags":
        tokenizer.chat_template = CHAT
    codec = TokenCodec(tokenizer)
    if request.param == "tool calls":
        return ToolCallProtocol(codec)
    return TagProtocol(codec, TagSettings(prepend_think=request.param == "tags with an opened thought"))


def rollout(protocol, queries, answer, id):
    searches = [protocol.write_turn(f"look for {q}", Action(ActionType.SEARCH, query=q)) for q in queries]
    opening = protocol.opening(False)[0]
    turns = [opening + t for t in [*searches, protocol.write_turn("so", Action(ActionType.ANSWER, text=answer))]]
    return play(QUESTION, turns, [[PAGE]] * len(queries), protocol, LIMITS, id=id)


@pytest.fixture
def pair(protocol):
    return Pair(
        rollout(protocol, ["capital of France"], "Paris", "r"), rollout(protocol, ["France", "it"], "Rome", "s")
    )


def test_both_views_end_in_the_same_sampled_ids(pair, protocol):
    v = view(pair, protocol, DistillSettings())
    assert v.response == pair.student.completion_ids
    assert v.student == pair.student.prompt_ids
    assert v.teacher != v.student
    assert v.kept == [bool(m) for m in pair.student.completion_mask]
    assert v.tokens == pair.student.policy_tokens
    assert v.ids == ("s", "r")


def test_the_teachers_prompt_is_the_protocols_own_with_question_and_reference_in_it(pair, protocol):
    v = view(pair, protocol, DistillSettings())
    text = protocol.codec.decode(v.teacher)
    head, tail = (protocol.codec.decode(v.student).split(QUESTION.question)[i] for i in (0, -1))
    assert text.startswith(head)
    assert text.endswith(tail)
    assert QUESTION.question in text
    assert "capital of France" in text
    assert PAGE.text in text
    assert "Rome" not in text.replace(tail, "")


def test_a_reference_shows_no_marks_of_the_template(pair, protocol):
    text = reference_text(pair.reference, protocol)
    assert "<|im_start|>" not in text
    assert "<|im_end|>" not in text
    assert "Paris" in text


def test_views_of_a_reference(pair, protocol):
    without = reference_text(pair.reference, protocol, "no_passages")
    assert PAGE.text not in without
    assert "look for capital of France" in without
    assert reference_text(pair.reference, protocol, "queries") == "capital of France\nParis"


def test_passages_of_a_reference_can_be_cut(pair, protocol):
    short = reference_text(pair.reference, protocol, passage_tokens=3)
    assert PAGE.text not in short
    assert "look for capital of France" in short
    assert "Paris" in short


def test_braces_in_what_is_shown_stay_as_they_are(pair, protocol):
    asked = replace(pair.student, question="{reference} or {question}?")
    settings = DistillSettings(teacher_question="{question} | {reference} | {question}")
    shown = teacher_question(Pair(pair.reference, asked), protocol, settings).question
    first, middle, last = shown.split(" | ")
    assert first == last == "{reference} or {question}?"
    assert "capital of France" in middle


def test_a_pair_that_does_not_fit_is_counted_and_never_cut(pair, protocol):
    whole = view(pair, protocol, DistillSettings())
    size = len(whole.teacher) + len(whole.response)
    assert views_of([pair], protocol, DistillSettings(), size) == ([whole], 0)
    assert views_of([pair], protocol, DistillSettings(), size - 1) == ([], 1)
    assert views_of([pair], protocol, DistillSettings(), None) == ([whole], 0)
