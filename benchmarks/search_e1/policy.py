"""A tiny policy that can follow a reference in its prompt, which the shipped one has never seen.

It goes on from the shipped policy with two kinds of the world's demonstrations: plain ones with the demonstrator's
usual errors, and ones without errors behind a prompt that shows another right attempt at the same question.
"""

from __future__ import annotations

from pathlib import Path

from sleuth.agent.codec import TokenCodec
from sleuth.assembly import Material, build_protocol, build_tokenizer, gather
from sleuth.recipes.loader import load_recipe
from sleuth.recipes.schema import Recipe
from sleuth.rollouts import write_rollouts
from sleuth.seeds import derive_seed
from sleuth.training.playback import play
from sleuth.training.search_e1.pairs import Pair
from sleuth.training.search_e1.views import teacher_question
from sleuth.training.warmstart import warmstart
from sleuth.types import Question, Trajectory
from sleuth.world.demonstrations import DemonstrationErrors, demonstrate
from sleuth.world.files import WorldSet

PLAIN, INFORMED = 2000, 3000
STEPS = 200
WORLDS = ["world.train={worlds: 100, questions: 5000}"]


def make_policy(folder: Path, settings: list[str]) -> None:
    """Write the policy's model folder; what it was made of lies beside it."""
    made = folder.with_name(f"{folder.name}-demonstrations")
    recipe = load_recipe("laptop", [*settings, *WORLDS])
    material = gather(recipe, made)
    file = made / "demonstrations.jsonl.zst"
    if not file.exists():
        write_rollouts(file, [*_played(recipe, material, PLAIN, None), *_informed(recipe, material)])
    goes_on = [f"warmstart.demonstrations={file}", f"warmstart.steps={STEPS}", "warmstart.lr=1e-3"]
    size = ["warmstart.batch=32", "warmstart.max_tokens=400"]
    warmstart(load_recipe("laptop", [*settings, *WORLDS, *goes_on, *size]), folder)


def _informed(recipe: Recipe, material: Material) -> list[Trajectory]:
    none = DemonstrationErrors.none()
    references = _played(recipe, material, INFORMED, none, start=PLAIN, salt=1)
    attempts = _played(recipe, material, INFORMED, none, start=PLAIN, salt=2)
    protocol = build_protocol(recipe, TokenCodec(build_tokenizer(recipe)))
    shown = []
    for reference, attempt in zip(references, attempts, strict=True):
        asked = teacher_question(Pair(reference, attempt), protocol, recipe.search_e1.distill)
        attempt.spans[0] = protocol.prompt(asked)
        attempt.id += "-informed"
        shown.append(attempt)
    return shown


def _played(
    recipe: Recipe, material: Material, count: int, errors: DemonstrationErrors | None, start: int = 0, salt: int = 0
) -> list[Trajectory]:
    assert recipe.world is not None
    protocol = build_protocol(recipe, TokenCodec(build_tokenizer(recipe)))
    rows: list[Question] = material.questions.train[start : start + count]
    played = demonstrate(
        rows,
        WorldSet(recipe.world).worlds,
        material.retriever,
        derive_seed(recipe.seed, "informed", salt),
        errors,
        k=recipe.limits.k,
        max_searches=recipe.limits.max_turns - 1,
    )
    return [
        play(d.question, d.turns, d.documents, protocol, recipe.limits, id=f"{d.question.id}-{i}")
        for i, d in enumerate(played)
    ]
