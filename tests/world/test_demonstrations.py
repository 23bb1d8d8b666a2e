"""The demonstrator decides from what was really returned, and its errors are the ones that were set."""

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sleuth.errors import UserError
from sleuth.types import Document, Question, SearchResult
from sleuth.world.demonstrations import DemonstrationErrors, Demonstrator, demonstrate
from sleuth.world.questions import draw_questions
from sleuth.world.vocabulary import VOCABULARY
from sleuth.world.world import World

TURN = re.compile(r"<think> [^<>]+ </think> <(search|answer)> ([^<>]+) </\1>")


class Oracle:
    """Returns what shares most words with the query, shorter passages first, as lexical search does."""

    def __init__(self, *worlds):
        self.documents = {world.name: world.documents for world in worlds}
        self.calls = 0

    def search(self, requests, k):
        self.calls += 1
        return [SearchResult(self._best(set(r.query.split()), self.documents[r.corpus], k)) for r in requests]

    def _best(self, words, documents, k):
        def rank(document):
            text = document.text.split()
            return -len(words & set(text)), -text[:2].count(text[0]) if text[0] in words else 1, len(text)

        return sorted(documents, key=rank)[:k]


def play(demonstrator, retrieve):
    turns, text = [], demonstrator.next_turn(None)
    turns.append(text)
    while demonstrator.answer is None:
        text = demonstrator.next_turn(retrieve(demonstrator.query))
        turns.append(text)
    return turns


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.floats(0, 1), st.integers(1, 5))
def test_every_turn_is_a_thought_and_one_action_in_the_closed_vocabulary(seed, rate, searches):
    world = World.create("w", seed)
    errors = DemonstrationErrors(**dict.fromkeys(DemonstrationErrors.model_fields, min(rate, 0.5)))
    for demo in demonstrate(draw_questions(world, 10, seed), {"w": world}, Oracle(world), seed, errors, 3, searches):
        actions = [TURN.fullmatch(turn) for turn in demo.turns]
        assert all(actions)
        assert [match.group(1) for match in actions] == ["search"] * (len(demo.turns) - 1) + ["answer"]
        assert actions[-1].group(2) == demo.answer
        assert len(demo.documents) == len(demo.turns) - 1 <= searches
        assert set(" ".join(demo.turns).split()) <= set(VOCABULARY)


def test_the_expert_answers_nearly_everything():
    world = World.create("w", 0)
    demos = demonstrate(draw_questions(world, 300, 0), {"w": world}, Oracle(world), 0, DemonstrationErrors.none())
    by_kind = {}
    for demo in demos:
        by_kind.setdefault(demo.question.extra["kind"], []).append(demo.correct)
    quality = {kind: sum(right) / len(right) for kind, right in by_kind.items()}
    assert min(quality["single"], quality["bridge"], quality["comparison"]) >= 0.95
    assert quality["constraint"] >= 0.5  # Several names may have the same boss: k passages don't show them all.


@pytest.mark.parametrize("error", ["guess", "wrong_relation", "entity_only", "whole_question", "misread", "early"])
def test_each_error_costs_answers(error):
    world = World.create("w", 0)
    questions = draw_questions(world, 300, 0)

    def quality(**errors):
        settings = DemonstrationErrors.none().model_copy(update=errors)
        return sum(d.correct for d in demonstrate(questions, {"w": world}, Oracle(world), 0, settings)) / len(questions)

    assert quality(**{error: 0.5}) < quality() - 0.05
    assert quality(**{error: 1.0}) < quality(**{error: 0.5}) - 0.05


def chain(*relations, start="anna"):
    return Question(
        "q", "?", ["leon"], corpus="w", extra={"kind": "bridge", "entities": [start], "relations": list(relations)}
    )


def documents(*texts):
    return [Document(str(n), text.split()[0], text) for n, text in enumerate(texts)]


def expert(question, **errors):
    settings = DemonstrationErrors.none().model_copy(update=errors)
    return Demonstrator(question, World.create("w", 0), random.Random(0), settings)


def test_the_next_search_is_about_what_was_found():
    demonstrator = expert(chain("rival", "boss"))
    demonstrator.next_turn(None)
    assert {"anna", "rival"} <= set(demonstrator.query.split())
    demonstrator.next_turn(documents("otto rival is anna", "anna rival was karl", "anna rival today is nina"))
    assert {"nina", "boss"} <= set(demonstrator.query.split())
    demonstrator.next_turn(documents("nina boss is leon"))
    assert (demonstrator.answer, demonstrator.query) == ("leon", None)


def test_after_a_miss_it_asks_for_today():
    demonstrator = expert(chain("rival"))
    demonstrator.next_turn(None)
    demonstrator.next_turn(documents("anna rival was karl", "anna rival was emil", "anna rival was hugo"))
    assert {"anna", "rival", "today"} == set(demonstrator.query.split()) - {"of"}


def test_without_retry_a_miss_is_answered_from_what_is_there():
    demonstrator = expert(chain("rival"), retry=0)
    demonstrator.next_turn(None)
    demonstrator.next_turn(documents("anna rival was karl"))
    assert demonstrator.answer == "karl"


def test_nothing_found_at_all_ends_in_a_guess_within_the_search_limit():
    world = World.create("w", 0)
    for question in draw_questions(world, 60, 0):
        demonstrator = Demonstrator(question, world, random.Random(0), DemonstrationErrors.none(), max_searches=3)
        turns = play(demonstrator, lambda query: [])
        assert len(turns) <= 4
        assert demonstrator.answer in world.entities


def test_turns_out_of_order_are_refused():
    demonstrator = expert(chain("rival"))
    with pytest.raises(ValueError, match="first turn"):
        demonstrator.next_turn(documents("anna rival is karl"))
    demonstrator.next_turn(None)
    with pytest.raises(ValueError, match="first turn"):
        demonstrator.next_turn(None)
    demonstrator.next_turn(documents("anna rival is karl"))
    with pytest.raises(ValueError, match="answered already"):
        demonstrator.next_turn(documents("anna rival is karl"))


def test_the_seed_decides_and_a_repeated_question_is_played_anew():
    world = World.create("w", 0)
    questions = draw_questions(world, 40, 0)
    once = demonstrate(questions, {"w": world}, Oracle(world), 1)
    assert once == demonstrate(questions, {"w": world}, Oracle(world), 1)
    assert once != demonstrate(questions, {"w": world}, Oracle(world), 2)
    twice = demonstrate([*questions, *questions], {"w": world}, Oracle(world), 1)
    assert twice[:40] == once
    assert twice[40:] != once


def test_the_retriever_is_called_once_a_turn_for_all_questions():
    world = World.create("w", 0)
    oracle = Oracle(world)
    demos = demonstrate(draw_questions(world, 40, 0), {"w": world}, oracle, 0)
    assert oracle.calls == max(len(demo.documents) for demo in demos)


def test_a_failing_retriever_and_an_unknown_world_are_named():
    world = World.create("w", 0)
    questions = draw_questions(world, 3, 0)

    class Down:
        def search(self, requests, k):
            return [SearchResult(error="no connection") for _ in requests]

    with pytest.raises(UserError, match="no connection"):
        demonstrate(questions, {"w": world}, Down(), 0, DemonstrationErrors.none())
    with pytest.raises(UserError, match="no world called w"):
        demonstrate(questions, {}, Oracle(world), 0)
