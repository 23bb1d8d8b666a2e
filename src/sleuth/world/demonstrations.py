"""A scripted agent of settable quality: what the tiny policy imitates before reinforcement learning.

It plays a question turn by turn against the documents that a retriever really returned, so that a demonstration holds
nothing that the agent could not have known. Its errors are those that reinforcement learning has to remove: guessing,
asking the wrong thing, misreading, giving up after a miss, answering a hop too early.
"""

from __future__ import annotations

import random
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict, Field

from sleuth.errors import UserError
from sleuth.seeds import derive_seed
from sleuth.types import Document, Question, Retriever, SearchRequest
from sleuth.world.vocabulary import AGE
from sleuth.world.world import Fact, World, read_passage

FIRST_THOUGHTS = ("need {r} of {e}", "first find {r} of {e}", "look up {e} {r}", "need {r} {e} first")
NEXT_THOUGHTS = (
    "so {o} . now find {r}",
    "got {o} next {r} of {o}",
    "it is {o} . then need {r}",
    "{o} . look up {r} of {o}",
)
AGE_THOUGHTS = ("so {e} {o} . now find age of {x}", "{e} is {o} next age {x}")
BACKWARD_THOUGHTS = ("need who has {r} {o}", "find {r} {o} first")
BACKWARD_NEXT_THOUGHTS = ("{xs} . now find {r} {o}", "maybe {xs} next {r} {o}")
RETRY_THOUGHTS = ("not here . look again {r} of {e} today", "{r} of {e} is not here . find today")
ANSWER_THOUGHTS = ("so answer is {o}", "it is {o}", "answer must be {o}")
GUESS_THOUGHTS = ("maybe {o}", "answer must be {o}")
COMPARISON_THOUGHT = "{a} {x} {b} {y} {older} older so {o}"
CONSTRAINT_THOUGHT = "{xs} and {ys} so {o}"

QUERIES = ("{r} of {e}", "{e} {r}", "{r} {e}", "who is {r} of {e}", "{e} {r} today")
"""Phrasings of a right query; the last one also finds what has changed."""

BACKWARD_QUERIES = ("{r} {e}", "who has {r} {e}", "{r} is {e}")
RETRY_QUERIES = ("{e} {r} today", "{r} of {e} today")


class DemonstrationErrors(BaseModel):
    """Probabilities of the demonstrator's errors; all 0 and ``retry`` 1 is the best that it can do."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    guess: float = Field(default=0.10, ge=0, le=1, description="answers without any search (once a question)")
    wrong_relation: float = Field(
        default=0.06, ge=0, le=1, description="asks for a relation that isn't in question (a search)"
    )
    entity_only: float = Field(default=0.10, ge=0, le=1, description="leaves the relation out of the query (a search)")
    whole_question: float = Field(default=0.06, ge=0, le=1, description="takes the question as the query (a search)")
    misread: float = Field(default=0.10, ge=0, le=1, description="reads some other passage (a search)")
    early: float = Field(default=0.18, ge=0, le=1, description="answers before the last hop (a hop)")
    retry: float = Field(default=0.50, ge=0, le=1, description="asks again when the passage isn't there (a miss)")

    @classmethod
    def none(cls) -> DemonstrationErrors:
        """The expert: no error, and it asks again after every miss."""
        return cls(guess=0, wrong_relation=0, entity_only=0, whole_question=0, misread=0, early=0, retry=1)


class Demonstrator:
    """Plays one question. ``next_turn(None)`` opens; then give it what each search returned, until ``answer`` is set.

    Attributes:
        query: the query of the last turn, None when that turn answered.
        answer: the answer, None until it is given.
    """

    def __init__(
        self,
        question: Question,
        world: World,
        rng: random.Random,
        errors: DemonstrationErrors | None = None,
        max_searches: int = 5,
    ):
        self.query: str | None = None
        self.answer: str | None = None
        self._question, self._world, self._rng = question, world, rng
        self._errors = errors or DemonstrationErrors()
        self._searches_left = max_searches
        self._thought = ""
        self._script = self._play()

    def next_turn(self, documents: Sequence[Document] | None) -> str:
        """The text of the next policy turn: a thought and a search, or a thought and the answer.

        Args:
            documents: what the last turn's search returned, best first; None for the first turn.

        Raises:
            ValueError: the answer was given already, or the first turn was given documents.
        """
        if self.answer is not None:
            raise ValueError(f"question {self._question.id} is answered already")
        if (documents is None) != (self.query is None):
            raise ValueError("the first turn takes no documents, every later one takes those of the last search")
        return next(self._script) if documents is None else self._script.send(documents)

    # The script: a coroutine that yields policy turns and is sent the documents.

    def _play(self) -> Generator[str, Sequence[Document], None]:
        if self._happens(self._errors.guess):
            name = self._any_name()
            yield self._answer(name, self._say(GUESS_THOUGHTS, o=name))
            return
        kind = self._question.extra["kind"]
        if kind == "comparison":
            yield from self._compare()
        elif kind == "constraint":
            yield from self._intersect()
        else:
            yield from self._walk()

    def _walk(self) -> Generator[str, Sequence[Document], None]:
        """A chain: look the first entity up, then what was found, and so on."""
        (here,), relations = self._question.extra["entities"], self._question.extra["relations"]
        self._thought = self._say(FIRST_THOUGHTS, r=relations[0], e=here)
        for hop, relation in enumerate(relations, 1):
            here = yield from self._look_up(here, relation)
            if hop == len(relations) or not self._searches_left or self._happens(self._errors.early):
                break
            self._thought = self._say(NEXT_THOUGHTS, o=here, r=relations[hop])
        yield self._answer(here, self._say(ANSWER_THOUGHTS, o=here))

    def _compare(self) -> Generator[str, Sequence[Document], None]:
        a, b = self._question.extra["entities"]
        self._thought = self._say(FIRST_THOUGHTS, r=AGE, e=a)
        x = yield from self._look_up(a, AGE)
        self._thought = self._say(AGE_THOUGHTS, e=a, o=x, x=b)
        y = yield from self._look_up(b, AGE)
        # A misread age may be a name, or equal to the other one: then it is a toss-up.
        known = x.isdigit() and y.isdigit() and x != y
        older, younger = (a, b) if (int(x) > int(y) if known else self._happens(0.5)) else (b, a)
        name = older if self._question.extra["pick"] == "older" else younger
        yield self._answer(name, COMPARISON_THOUGHT.format(a=a, x=x, b=b, y=y, older=older, o=name))

    def _intersect(self) -> Generator[str, Sequence[Document], None]:
        (a, b), (r1, r2) = self._question.extra["entities"], self._question.extra["relations"]
        self._thought = self._say(BACKWARD_THOUGHTS, r=r1, o=a)
        first = yield from self._look_back(a, r1)
        self._thought = self._say(BACKWARD_NEXT_THOUGHTS, xs=" ".join(first), r=r2, o=b)
        second = yield from self._look_back(b, r2)
        name = next((x for x in first if x in second), first[0])
        yield self._answer(name, CONSTRAINT_THOUGHT.format(xs=" ".join(first), ys=" ".join(second), o=name))

    def _look_up(self, entity: str, relation: str) -> Generator[str, Sequence[Document], str]:
        """Search for the object of a fact, again after a miss; returns what the demonstrator takes for it."""
        if not self._searches_left:
            return self._any_name()
        if self._happens(self._errors.wrong_relation):
            relation = self._rng.choice(self._world.relations)
        phrasings: Sequence[str] = QUERIES
        while True:
            facts = _read((yield self._search(entity, relation, phrasings)))
            found = [f.object for f in facts if f.current and (f.subject, f.relation) == (entity, relation)]
            if found and not self._happens(self._errors.misread):
                return found[0]
            if found or not self._searches_left or not self._happens(self._errors.retry):
                return self._rng.choice(facts).object if facts else self._any_name()
            phrasings = RETRY_QUERIES
            self._thought = self._say(RETRY_THOUGHTS, r=relation, e=entity)

    def _look_back(self, entity: str, relation: str) -> Generator[str, Sequence[Document], list[str]]:
        """Search for the subjects whose ``relation`` is ``entity``; never empty."""
        if not self._searches_left:
            return [self._any_name()]
        facts = _read((yield self._search(entity, relation, BACKWARD_QUERIES)))
        found = [f.subject for f in facts if f.current and (f.relation, f.object) == (relation, entity)]
        if found and not self._happens(self._errors.misread):
            return list(dict.fromkeys(found))
        return [self._rng.choice(facts).subject if facts else self._any_name()]

    # Turns

    def _search(self, entity: str, relation: str, phrasings: Sequence[str]) -> str:
        draw = self._rng.random()
        if draw < self._errors.entity_only:
            query = entity
        elif draw < self._errors.entity_only + self._errors.whole_question:
            query = self._question.question
        else:
            query = self._rng.choice(phrasings).format(r=relation, e=entity)
        self.query = query
        self._searches_left -= 1
        return f"<think> {self._thought} </think> <search> {query} </search>"

    def _answer(self, name: str, thought: str) -> str:
        self.query, self.answer = None, name
        return f"<think> {thought} </think> <answer> {name} </answer>"

    def _say(self, thoughts: Sequence[str], **words: str) -> str:
        return self._rng.choice(thoughts).format(**words)

    def _any_name(self) -> str:
        return self._rng.choice(self._world.entities)

    def _happens(self, probability: float) -> bool:
        return self._rng.random() < probability


@dataclass(slots=True)
class Demonstration:
    """One played question: ``turns`` of the policy, ``documents`` of each search (one list fewer than turns)."""

    question: Question
    turns: list[str] = field(default_factory=list)
    documents: list[list[Document]] = field(default_factory=list)
    answer: str = ""

    @property
    def correct(self) -> bool:
        return self.answer in self.question.golden_answers


def demonstrate(
    questions: Iterable[Question],
    worlds: Mapping[str, World],
    retriever: Retriever,
    seed: int,
    errors: DemonstrationErrors | None = None,
    k: int = 3,
    max_searches: int = 5,
) -> list[Demonstration]:
    """Play all questions side by side, one retriever call a turn. ``worlds`` by name.

    Raises:
        UserError: a question's world isn't among ``worlds``, or the retriever failed.
    """
    played: list[Demonstration] = []
    live: list[tuple[Demonstration, Demonstrator]] = []
    for question in questions:
        world = worlds.get(question.corpus or "")
        if world is None:
            raise UserError(f"question {question.id}: no world called {question.corpus}; give the set's own questions")
        # The place in the list is part of the seed: a question may be played more than once.
        rng = random.Random(derive_seed("demonstration", seed, len(played), question.id))
        demonstration = Demonstration(question)
        demonstrator = Demonstrator(question, world, rng, errors, max_searches)
        demonstration.turns.append(demonstrator.next_turn(None))
        played.append(demonstration)
        live.append((demonstration, demonstrator))
    while live:
        searching = []
        for demonstration, demonstrator in live:
            if demonstrator.answer is None:
                searching.append((demonstration, demonstrator))
            else:
                demonstration.answer = demonstrator.answer
        live = searching
        requests = [SearchRequest(d.query or "", demo.question.corpus) for demo, d in live]
        for (demonstration, demonstrator), result in zip(
            live, retriever.search(requests, k) if live else [], strict=True
        ):
            if result.failed:
                raise UserError(f"question {demonstration.question.id}: the retriever failed: {result.error}")
            demonstration.documents.append(result.documents)
            demonstration.turns.append(demonstrator.next_turn(result.documents))
    return played


def _read(documents: Sequence[Document]) -> list[Fact]:
    return [fact for document in documents if (fact := read_passage(document.text)) is not None]
