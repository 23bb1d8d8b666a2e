"""Questions: answers follow from the world, and every kind is asked."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from sleuth.errors import UserError
from sleuth.world.questions import QuestionMix, draw_questions
from sleuth.world.vocabulary import AGE, VOCABULARY
from sleuth.world.world import World, WorldSettings, read_passage


def answers(world, question):
    """All names that answer a question, worked out from the text alone and the world's facts."""
    words = question.question.removesuffix(" ?").removesuffix(" is who").split()
    text = " ".join(words)
    if "older" in words or "younger" in words:
        a, b = [word for word in words if word in world.entities]
        ages = {name: int(world.facts[name, AGE]) for name in (a, b)}
        return [(max if "older" in words else min)(ages, key=ages.get)]
    if "has" in words:
        r1, a, _, r2, b = text.split("has ")[1].split()
        return [x for x in world.entities if world.facts[x, r1] == a and world.facts[x, r2] == b]
    if " of " in text:
        *relations, here = text.removeprefix("who is ").removeprefix("name the ").split(" of ")
        relations.reverse()
    else:
        here, *relations = words
    for relation in relations:
        here = world.facts[here, relation]
    return [here]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_the_golden_answer_is_the_only_one_that_follows_from_the_question(seed):
    world = World.create("w", seed)
    for question in draw_questions(world, 30, seed):
        assert question.golden_answers == answers(world, question)
        assert question.corpus == "w"
        assert set(question.question.split()) <= set(VOCABULARY)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6))
def test_supporting_passages_prove_the_answer(seed):
    world = World.create("w", seed)
    by_id = {document.id: document for document in world.documents}
    for question in draw_questions(world, 20, seed):
        proof = [by_id[i] for i in question.extra["supporting_ids"]]
        facts = [read_passage(document.text) for document in proof]
        assert len(proof) == question.extra["hops"]
        assert {document.title for document in proof} == set(question.supporting_titles)
        assert all(fact is not None and fact.current for fact in facts)
        assert [fact.relation for fact in facts] == question.extra["relations"]
        if "chain" in question.extra:
            chain = question.extra["chain"]
            assert [(fact.subject, fact.object) for fact in facts] == list(pairwise(chain))
            assert len(set(chain)) == len(chain) == question.extra["hops"] + 1


def test_no_question_is_asked_twice_in_a_world():
    questions = draw_questions(World.create("w", 0), 300, 0)
    asked = Counter(
        (q.extra["kind"], q.extra.get("pick"), tuple(q.extra["entities"]), tuple(q.extra["relations"]))
        for q in questions
    )
    assert max(asked.values()) == 1
    assert len({q.id for q in questions}) == 300


def test_the_mix_decides_what_is_asked():
    world = World.create("w", 0)
    everything = Counter((q.extra["kind"], q.extra["hops"]) for q in draw_questions(world, 400, 0))
    assert set(everything) == {("single", 1), ("bridge", 2), ("bridge", 3), ("comparison", 2), ("constraint", 2)}
    assert everything["bridge", 2] > everything["single", 1] > everything["constraint", 2]
    three = draw_questions(world, 50, 0, QuestionMix(chain=1, comparison=0, constraint=0, hops={3: 1.0}))
    assert {q.extra["hops"] for q in three} == {3}


def test_each_kind_has_several_phrasings():
    openings = {}
    for q in draw_questions(World.create("w", 0), 400, 0):
        first = " ".join(q.question.split()[:2])
        openings.setdefault(q.extra["kind"], set()).add(
            first if first in ("who is", "who has", "name the", "name who") else ""
        )
    assert {kind: len(found) for kind, found in openings.items()} == {
        "single": 3,
        "bridge": 3,
        "comparison": 2,
        "constraint": 2,
    }


def test_a_question_does_not_depend_on_how_many_are_drawn():
    world = World.create("w", 0)
    assert draw_questions(world, 40, 5)[:10] == draw_questions(world, 10, 5)


def test_a_world_too_small_for_so_many_questions_says_so():
    world = World.create("w", 0, WorldSettings(entities=8, relations=2))
    with pytest.raises(UserError, match="no 100 different questions"):
        draw_questions(world, 100, 0, QuestionMix(hops={1: 1.0}, chain=1, comparison=0, constraint=0))


@pytest.mark.parametrize(
    "bad",
    [
        {"hops": {4: 1.0}},
        {"hops": {}},
        {"hops": {1: 0.0}},
        {"chain": -1},
        {"chain": 0, "comparison": 0, "constraint": 0},
    ],
)
def test_an_impossible_mix_is_refused(bad):
    with pytest.raises(ValidationError):
        QuestionMix(**bad)
