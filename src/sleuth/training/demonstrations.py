"""Demonstrations as trajectories: written turns, played through the real episode."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from sleuth.agent.episode import Episode, Limits, NeedPassages, NeedTokens
from sleuth.agent.protocol import AgentProtocol
from sleuth.assembly import Parts
from sleuth.errors import UserError
from sleuth.recipes.schema import Recipe
from sleuth.types import Completion, Document, Question, SearchResult, SpanKind, StopReason, Trajectory


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
    elif Path(source).exists():
        from sleuth.rollouts import read_rollouts

        shown = list(read_rollouts(Path(source)))
    else:
        raise UserError(f"warmstart.demonstrations={source!r}: no such file; known: world, oracle, or a rollouts file")
    if not shown:
        raise UserError(f"warmstart.demonstrations={source!r} yields no demonstration")
    parts.reward(shown)
    return shown


def play(
    question: Question,
    turns: Sequence[str],
    documents: Iterable[Sequence[Document]],
    protocol: AgentProtocol,
    limits: Limits,
    *,
    id: str | None = None,
) -> Trajectory:
    """Written policy turns and what each search returned, as the trajectory that a rollout would have made of them.

    What the environment opens itself (a prepended thought) is taken off the front of a turn. Log-probs are 0: nothing
    was sampled.
    """
    episode = Episode(question, protocol, limits, id=id or question.id)
    results = iter(documents)
    for turn in turns:
        if not isinstance(episode.need, NeedTokens):
            break
        last = episode.trajectory.spans[-1]
        text = turn.removeprefix(last.text) if last.kind is SpanKind.HINT else turn
        ids = protocol.codec.encode(text)
        episode.sampled(Completion(ids, [0.0] * len(ids), StopReason.ACTION))
        if isinstance(episode.need, NeedPassages):
            episode.found(SearchResult(list(next(results))))
    if not episode.done:
        episode.abort("the demonstration ends before the rollout does")
    return episode.trajectory


def _of_world(recipe: Recipe, parts: Parts) -> list[Trajectory]:
    from sleuth.world.demonstrations import DemonstrationErrors, demonstrate
    from sleuth.world.files import WorldSet

    if recipe.world is None:
        raise UserError("warmstart.demonstrations=world needs a recipe with a world; use oracle or a rollouts file")
    worlds = WorldSet(recipe.world).worlds
    rows = [parts.train[i % len(parts.train)] for i in range(recipe.warmstart.count)]
    played = demonstrate(
        rows,
        worlds,
        parts.retriever,
        recipe.seed,
        DemonstrationErrors(**recipe.warmstart.errors),
        k=recipe.limits.k,
        max_searches=recipe.limits.max_turns - 1,
    )
    return [
        play(d.question, d.turns, d.documents, parts.protocol, parts.limits, id=f"{d.question.id}-{i}")
        for i, d in enumerate(played)
    ]
