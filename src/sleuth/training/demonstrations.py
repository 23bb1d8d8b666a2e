"""Where a warm start's demonstrations come from: a world's demonstrator, an oracle, or a rollouts file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sleuth.anchors.passages import Passages
from sleuth.anchors.rows import anchor_as_json
from sleuth.anchors.supporting import supporting_anchors
from sleuth.assembly import Parts
from sleuth.errors import UserError
from sleuth.recipes.schema import Recipe
from sleuth.training.playback import play
from sleuth.training.teacher_pass import anchors_of
from sleuth.types import Trajectory


def demonstrations(recipe: Recipe, parts: Parts) -> list[Trajectory]:
    """What ``recipe.warmstart.demonstrations`` names, rewarded like any rollout.

    Raises:
        UserError: the source is unknown or yields nothing.
    """
    source = recipe.warmstart.demonstrations
    if source == "world":
        shown = _of_world(recipe, parts)
    elif source == "oracle":
        from sleuth.training.oracle import oracle_demonstrations

        shown = oracle_demonstrations(parts, recipe.warmstart.count, recipe.seed)
        _show_anchors(shown[: round(recipe.warmstart.with_anchors * len(shown))], recipe, parts)
    elif Path(source).exists():
        from sleuth.rollouts import read_rollouts

        if recipe.warmstart.with_anchors:
            raise UserError(
                f"warmstart.with_anchors needs demonstrations that are played; those of {source} have their prompts "
                "already, so leave it out, or set warmstart.demonstrations=world or oracle"
            )
        shown = list(read_rollouts(Path(source)))
    else:
        raise UserError(f"warmstart.demonstrations={source!r}: no such file; known: world, oracle, or a rollouts file")
    if not shown:
        raise UserError(f"warmstart.demonstrations={source!r} yields no demonstration")
    parts.reward(shown)
    return shown


def _show_anchors(shown: Sequence[Trajectory], recipe: Recipe, parts: Parts) -> None:
    """Put these demonstrations behind the teacher's prompt, if there is evidence; what was said stays as it is."""
    if not shown:
        return
    anchors = anchors_of(recipe, parts)
    questions = {q.id: q for q in parts.train}
    for trajectory in shown:
        question = questions[trajectory.group]
        if evidence := anchors(question):
            trajectory.spans[0] = parts.protocol.prompt(recipe.teacher.prompt.question(question, evidence))
            trajectory.extra["anchors"] = [anchor_as_json(anchor) for anchor in evidence]


def _of_world(recipe: Recipe, parts: Parts) -> list[Trajectory]:
    from sleuth.world.demonstrations import DemonstrationErrors, demonstrate
    from sleuth.world.files import WorldSet

    if recipe.world is None:
        raise UserError("warmstart.demonstrations=world needs a recipe with a world; use oracle or a rollouts file")
    worlds = WorldSet(recipe.world).worlds
    settings = recipe.warmstart
    rows = [parts.train[i % len(parts.train)] for i in range(settings.count)]
    informed = round(settings.with_anchors * len(rows))
    errors = DemonstrationErrors(**settings.errors)
    passages = Passages(parts.retriever)
    shown: list[Trajectory] = []
    for questions, sees_anchors in ((rows[informed:], False), (rows[:informed], True)):
        played = demonstrate(
            questions,
            worlds,
            parts.retriever,
            recipe.seed,
            DemonstrationErrors.none() if sees_anchors else errors,
            k=recipe.limits.k,
            max_searches=recipe.limits.max_turns - 1,
        )
        for d in played:
            question = d.question
            if sees_anchors:
                row = supporting_anchors(question, passages, recipe.teacher.answers)
                question = recipe.teacher.prompt.question(question, row.anchors)
            id = f"{question.id}-{len(shown)}"
            shown.append(play(question, d.turns, d.documents, parts.protocol, parts.limits, id=id))
    return shown
