"""A world: entities, relations between them, and the passages that state who is what to whom.

Names are reused and reassigned in every world, so that nothing can be memorised and an agent has to search. What makes
the search hard is in the passages, and fixed by the seed: some facts have *changed*, and the former holders still have
passages of their own. Those are shorter than the passage of the present holder, so lexical search ranks them above it,
and where there are three of them the present holder is missing from the top 3 until the query says ``today``.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict, Field, model_validator

from sleuth.seeds import derive_seed
from sleuth.types import Document
from sleuth.world.vocabulary import AGE, AGES, NAMES, RELATIONS


class WorldSettings(BaseModel):
    """The size of a world and how much of it is noise."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    entities: int = Field(default=32, ge=8, le=len(NAMES), description="entities of a world")
    relations: int = Field(
        default=6, ge=2, le=len(RELATIONS), description="relations that every entity has to another one"
    )
    changed: float = Field(default=0.3, ge=0, le=1, description="share of facts that had other holders before")
    former: tuple[int, ...] = Field(
        default=(1, 3), description="how many former holders a changed fact has, drawn evenly"
    )

    @model_validator(mode="after")
    def _former_holders_exist(self) -> WorldSettings:
        most = min(len(AGES), self.entities - 1) - 1
        if not self.former or not all(0 <= count <= most for count in self.former):
            raise ValueError(f"former needs at least one number, each from 0 to {most}: the values are all different")
        return self


@dataclass(frozen=True, slots=True)
class Fact:
    """``subject``'s ``relation`` is (or was, when not ``current``) ``object``. ``changed`` facts had former holders."""

    subject: str
    relation: str
    object: str
    current: bool = True
    changed: bool = False

    @property
    def text(self) -> str:
        """The passage: ``anna rival is otto``, ``anna rival today is otto`` (changed) or ``anna rival was karl``."""
        today = " today" if self.current and self.changed else ""
        return f"{self.subject} {self.relation}{today} {'is' if self.current else 'was'} {self.object}"


def read_passage(text: str) -> Fact | None:
    """The fact that a passage states; None when the text is not one of a world's passages."""
    match text.split():
        case [subject, relation, "is", value]:
            return Fact(subject, relation, value)
        case [subject, relation, "today", "is", value]:
            return Fact(subject, relation, value, changed=True)
        case [subject, relation, "was", value]:
            return Fact(subject, relation, value, current=False, changed=True)
    return None


@dataclass
class World:
    """One world, decided by ``seed`` and ``settings`` alone; :meth:`create` makes it.

    Attributes:
        name: the part of the corpus that holds its passages, and the ``corpus`` of its questions.
        entities: their names, drawn from :data:`~sleuth.world.vocabulary.NAMES`.
        relations: the relations in use, without ``age``.
        facts: the present state, (subject, relation) → object; ``age`` included.
        documents: the passages in shuffled order; title = subject, ``text`` a sentence of 4 or 5 words.
    """

    name: str
    entities: list[str]
    relations: list[str]
    facts: dict[tuple[str, str], str] = field(default_factory=dict)
    documents: list[Document] = field(default_factory=list)
    _passage_of: dict[tuple[str, str], str] = field(default_factory=dict)

    @classmethod
    def create(cls, name: str, seed: int, settings: WorldSettings | None = None) -> World:
        """Draw the world called ``name`` of the set with this ``seed``. Same arguments, same world."""
        settings = settings or WorldSettings()
        rng = random.Random(derive_seed("world", seed, name))
        world = cls(name, rng.sample(NAMES, settings.entities), list(RELATIONS[: settings.relations]))
        statements = [
            statement
            for subject in world.entities
            for relation in (*world.relations, AGE)
            for statement in world._draw_fact(subject, relation, settings, rng)
        ]
        rng.shuffle(statements)
        for number, fact in enumerate(statements):
            document = Document(id=f"{name}-{number:03d}", title=fact.subject, text=fact.text)
            world.documents.append(document)
            if fact.current:
                world.facts[fact.subject, fact.relation] = fact.object
                world._passage_of[fact.subject, fact.relation] = document.id
        return world

    def passage_of(self, subject: str, relation: str) -> str:
        """Id of the passage that states the present fact. KeyError for an unknown subject or relation."""
        return self._passage_of[subject, relation]

    def _draw_fact(self, subject: str, relation: str, settings: WorldSettings, rng: random.Random) -> list[Fact]:
        """The present fact and the statements of its former holders, all different."""
        changed = rng.random() < settings.changed
        former = rng.choice(settings.former) if changed else 0
        pool = AGES if relation == AGE else self.entities
        current, *past = rng.sample([value for value in pool if value != subject], 1 + former)
        return [
            Fact(subject, relation, current, changed=former > 0),
            *(Fact(subject, relation, value, current=False, changed=True) for value in past),
        ]
