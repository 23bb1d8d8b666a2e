"""Worlds: what they state, and that the seed decides everything."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from sleuth.world.vocabulary import AGE, AGES, NAMES, RELATIONS, VOCABULARY
from sleuth.world.world import Fact, World, WorldSettings, read_passage

facts = st.builds(
    lambda s, r, o, state: Fact(s, r, o, current=state != "was", changed=state != "is"),
    st.sampled_from(NAMES),
    st.sampled_from([*RELATIONS, AGE]),
    st.sampled_from([*NAMES, *AGES]),
    st.sampled_from(["is", "today", "was"]),
)


@given(facts)
def test_a_passage_says_its_fact_and_nothing_is_lost(fact):
    assert read_passage(fact.text) == fact


@pytest.mark.parametrize("text", ["", "anna", "anna rival otto", "anna rival maybe is otto", "anna rival is otto ."])
def test_other_text_states_no_fact(text):
    assert read_passage(text) is None


@given(st.integers(0, 1000), st.integers(8, 96), st.integers(2, 8), st.floats(0, 1))
def test_passages_state_exactly_the_present_facts(seed, entities, relations, changed):
    settings = WorldSettings(entities=entities, relations=relations, changed=changed)
    world = World.create("w", seed, settings)
    stated = {(f.subject, f.relation): f.object for d in world.documents if (f := read_passage(d.text)) and f.current}
    assert stated == world.facts
    assert set(world.facts) == {(e, r) for e in world.entities for r in (*world.relations, AGE)}
    assert all(subject != value for (subject, _), value in world.facts.items())


def test_former_holders_are_distinct_and_none_of_them_is_the_present_one():
    world = World.create("w", 3, WorldSettings(changed=1, former=(3,)))
    past: dict[tuple[str, str], list[str]] = {}
    for document in world.documents:
        fact = read_passage(document.text)
        assert fact is not None
        if not fact.current:
            past.setdefault((fact.subject, fact.relation), []).append(fact.object)
    assert set(past) == set(world.facts)
    for key, holders in past.items():
        assert len({*holders, world.facts[key], key[0]}) == 5


def test_document_ids_are_unique_and_lead_to_the_present_fact():
    world = World.create("w0007", 0)
    by_id = {document.id: document for document in world.documents}
    assert len(by_id) == len(world.documents)
    for (subject, relation), value in world.facts.items():
        document = by_id[world.passage_of(subject, relation)]
        assert document.title == subject
        assert document.text.split()[-1] == value


def test_the_seed_and_the_name_decide_the_world():
    assert World.create("a", 1) == World.create("a", 1)
    assert World.create("a", 1).facts != World.create("a", 2).facts
    assert World.create("a", 1).facts != World.create("b", 1).facts


def test_the_world_of_seed_zero_stays_what_it_is():
    # Weights that were trained on one drawing of the worlds are evaluated on the next one.
    documents = World.create("w0000", 0).documents
    assert [d.text for d in documents[:3]] == ["rosa teacher is boris", "sofia boss is simon", "tanja friend was jacob"]
    assert len(documents) == 348


def test_names_are_reassigned_between_worlds():
    worlds = [World.create(f"w{n}", 0) for n in range(30)]
    objects = {world.facts[name, "rival"] for world in worlds for name in world.entities if name == "anna"}
    assert len(objects) >= 5


def test_every_word_is_in_the_vocabulary_once():
    assert len(set(VOCABULARY)) == len(VOCABULARY) <= 250
    words = {word for n in range(5) for d in World.create(f"w{n}", 0).documents for word in d.text.split()}
    assert words <= set(VOCABULARY)


@pytest.mark.parametrize(
    "bad",
    [
        {"entities": 97},
        {"entities": 2},
        {"relations": 9},
        {"changed": 1.5},
        {"noise": 1},
        {"former": ()},
        {"former": (9,)},
    ],
)
def test_impossible_settings_are_refused(bad):
    with pytest.raises(ValidationError):
        WorldSettings(**bad)
