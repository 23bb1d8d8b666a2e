"""The card of a trained model: what it was made from, how it scored, and whether that compares with anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sleuth.evaluation.table import SetScores, markdown_table
from sleuth.recipes.schema import Recipe


def model_card(
    recipe: Recipe,
    environment: Mapping[str, Any],
    scores: Mapping[str, Mapping[str, Sequence[SetScores]]],
    sources: Sequence[str],
) -> str:
    """Markdown with the front matter that model hubs read.

    Args:
        environment: of the run folder.
        scores: way of decoding → ``before`` and ``after`` → a line a test set.
        sources: the data sources of the training questions.
    """
    t = recipe.trainer
    rollouts = t.prompts * t.group
    front = ["---", "library_name: transformers", "tags: [sleuth, search-agent, reinforcement-learning]"]
    if recipe.model and ":" not in recipe.model:
        front.append(f"base_model: {recipe.model}")
    lines = [
        *front,
        "---",
        f"# {recipe.name}",
        "",
        f"A search agent trained with Sleuth by reinforcement learning ({recipe.objective}) from `{recipe.model}`.",
        "",
        f"* training questions: {', '.join(sources) or 'of the recipe'}",
        f"* {t.steps} steps of {rollouts} rollouts ({t.prompts} questions × {t.group}), "
        f"{t.updates_per_batch} updates a step, learning rate {t.lr:g}, seed {recipe.seed}",
        f"* checkpoint kept: {'the best by EM on dev questions' if t.keep == 'best' else 'the last'}",
        f"* protocol {recipe.protocol.kind}, at most {recipe.limits.max_turns} turns, "
        f"{recipe.limits.k} passages a search",
        f"* corpus {str(environment.get('corpus_hash'))[:16]}, prompt {str(environment.get('prompt_hash'))[:16]}",
        "",
    ]
    for way, tables in scores.items():
        for when, rows in tables.items():
            lines += [
                f"## Test questions {when} training, {way}",
                "",
                markdown_table(rows, comparable=recipe.data.comparable),
            ]
    return "\n".join(lines)
