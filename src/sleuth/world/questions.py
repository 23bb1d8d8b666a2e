"""Questions about a world, each with the one name that answers it and the passages that prove it.

Four kinds: ``single`` (one hop), ``bridge`` (two or three hops: who is the teacher of the rival of anna),
``comparison`` (who is older, anna or otto) and ``constraint`` (who has rival anna and boss otto: the search runs
backwards, from object to subject). Each has several phrasings.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from sleuth.errors import UserError
from sleuth.seeds import derive_seed
from sleuth.types import Question
from sleuth.world.vocabulary import AGE
from sleuth.world.world import World

DATA_SOURCE = "hopworld"

BACKWARD_PHRASINGS = ("who is {} ?", "name the {}")
FORWARD_PHRASING = "{} is who ?"
COMPARISON_PHRASINGS = ("who is {pick} {a} or {b} ?", "name the {pick} of {a} and {b}")
CONSTRAINT_PHRASINGS = ("who has {r1} {a} and {r2} {b} ?", "name who has {r1} {a} and {r2} {b}")


class QuestionMix(BaseModel):
    """How often each kind is asked; weights, not necessarily summing to 1."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    hops: dict[int, float] = Field(
        default={1: 0.25, 2: 0.45, 3: 0.30}, description="weights of 1, 2 and 3 hops among chains"
    )
    chain: float = Field(default=0.85, ge=0, description="weight of chains (single and bridge)")
    comparison: float = Field(default=0.10, ge=0, description="weight of comparisons of two ages")
    constraint: float = Field(default=0.05, ge=0, description="weight of questions with two conditions on the answer")

    @field_validator("hops")
    @classmethod
    def _hops_known(cls, hops: dict[int, float]) -> dict[int, float]:
        if not hops or not set(hops) <= {1, 2, 3} or min(hops.values()) < 0 or sum(hops.values()) <= 0:
            raise ValueError("hops maps 1, 2 or 3 to weights that are not all zero, e.g. {1: 0.25, 2: 0.45, 3: 0.3}")
        return hops

    @model_validator(mode="after")
    def _something_is_asked(self) -> QuestionMix:
        if self.chain + self.comparison + self.constraint <= 0:
            raise ValueError("chain, comparison and constraint are all zero: give one of them a weight")
        return self


@dataclass(slots=True)
class _Draft:
    """A question before it has an id. ``key`` says what is asked, whatever the phrasing."""

    key: tuple[str, ...]
    text: str
    answer: str
    evidence: list[tuple[str, str]]
    extra: dict[str, object]


def draw_questions(world: World, count: int, seed: int, mix: QuestionMix | None = None) -> list[Question]:
    """``count`` different questions about ``world``, decided by ``seed``.

    Rows carry ``corpus`` (the world's name), ``supporting_titles`` and in ``extra``: ``kind``, ``hops`` (facts needed),
    ``entities`` and ``relations`` in the order of use, ``supporting_ids`` (the passages that prove the answer),
    ``chain`` for single and bridge (first entity to answer) and ``pick`` for comparisons (``older`` or ``younger``).

    Raises:
        UserError: the world is too small for so many different questions.
    """
    mix = mix or QuestionMix()
    rng = random.Random(derive_seed("questions", seed, world.name))
    kinds = {_draw_chain: mix.chain, _draw_comparison: mix.comparison, _draw_constraint: mix.constraint}
    questions: list[Question] = []
    asked: set[tuple[str, ...]] = set()
    for _ in range(100 + 50 * count):
        if len(questions) == count:
            return questions
        (draw,) = rng.choices(list(kinds), list(kinds.values()))
        draft = draw(world, mix, rng)
        if draft is not None and draft.key not in asked:
            asked.add(draft.key)
            questions.append(_finish(world, draft, len(questions)))
    if len(questions) == count:
        return questions
    raise UserError(
        f"world {world.name} has no {count} different questions: ask for fewer, or give it more entities or relations"
    )


def _finish(world: World, draft: _Draft, number: int) -> Question:
    return Question(
        id=f"{world.name}-q{number:03d}",
        question=draft.text,
        golden_answers=[draft.answer],
        data_source=DATA_SOURCE,
        corpus=world.name,
        supporting_titles=list(dict.fromkeys(subject for subject, _ in draft.evidence)),
        extra={**draft.extra, "supporting_ids": [world.passage_of(*fact) for fact in draft.evidence]},
    )


def _draw_chain(world: World, mix: QuestionMix, rng: random.Random) -> _Draft | None:
    (hops,) = rng.choices(list(mix.hops), list(mix.hops.values()))
    relations = [rng.choice(world.relations) for _ in range(hops)]
    chain = [rng.choice(world.entities)]
    for relation in relations:
        chain.append(world.facts[chain[-1], relation])
    if len(set(chain)) < len(chain):
        return None  # A walk in a circle would make a question that fewer searches answer.
    phrasing = rng.choice((*BACKWARD_PHRASINGS, FORWARD_PHRASING))
    if phrasing == FORWARD_PHRASING:
        text = phrasing.format(" ".join([chain[0], *relations]))
    else:
        text = phrasing.format(" of ".join([*reversed(relations), chain[0]]))
    return _Draft(
        key=("chain", chain[0], *relations),
        text=text,
        answer=chain[-1],
        evidence=list(zip(chain, relations, strict=False)),
        extra={
            "kind": "single" if hops == 1 else "bridge",
            "hops": hops,
            "entities": chain[:1],
            "relations": relations,
            "chain": chain,
        },
    )


def _draw_comparison(world: World, mix: QuestionMix, rng: random.Random) -> _Draft | None:
    a, b = rng.sample(world.entities, 2)
    ages = {name: int(world.facts[name, AGE]) for name in (a, b)}
    if ages[a] == ages[b]:
        return None
    pick = rng.choice(("older", "younger"))
    return _Draft(
        key=("comparison", pick, *sorted((a, b))),
        text=rng.choice(COMPARISON_PHRASINGS).format(pick=pick, a=a, b=b),
        answer=(max if pick == "older" else min)(ages, key=ages.__getitem__),
        evidence=[(a, AGE), (b, AGE)],
        extra={"kind": "comparison", "hops": 2, "entities": [a, b], "relations": [AGE, AGE], "pick": pick},
    )


def _draw_constraint(world: World, mix: QuestionMix, rng: random.Random) -> _Draft | None:
    answer = rng.choice(world.entities)
    r1, r2 = rng.sample(world.relations, 2)
    a, b = world.facts[answer, r1], world.facts[answer, r2]
    fits = [x for x in world.entities if world.facts[x, r1] == a and world.facts[x, r2] == b]
    if a == b or fits != [answer]:
        return None
    return _Draft(
        key=("constraint", *sorted((f"{r1} {a}", f"{r2} {b}"))),
        text=rng.choice(CONSTRAINT_PHRASINGS).format(r1=r1, a=a, r2=r2, b=b),
        answer=answer,
        evidence=[(answer, r1), (answer, r2)],
        extra={"kind": "constraint", "hops": 2, "entities": [a, b], "relations": [r1, r2]},
    )
