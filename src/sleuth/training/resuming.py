"""What a resumed run must share with the one that it continues; otherwise its numbers would belong to neither."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sleuth.anchors.rows import anchors_hash, read_anchors
from sleuth.anchors.supporting import SUPPORT
from sleuth.errors import UserError
from sleuth.objectives import resolve
from sleuth.recipes.loader import load_recipe
from sleuth.recipes.schema import Recipe
from sleuth.training.rollback import recipe_after_rollback
from sleuth.training.run_folder import RunFolder
from sleuth.types import Question

CHANGEABLE = frozenset(
    {
        "name", "summary", "expect", "requires",
        "model_settings.gradient_checkpointing",
        "sampling.max_rows", "sampling.server", "sampling.colocated",
        "trainer.steps", "trainer.micro_batch", "trainer.eval_every", "trainer.save_every", "trainer.keep",
        "trainer.keep_last", "trainer.max_failed_share", "trainer.save_rollouts_every", "trainer.track",
        "evaluation.batch", "evaluation.greedy", "diagnosis",
        "search_e1.rounds", "search_e1.distill.micro_batch", "search_e1.distill.save_every",
    }
)  # fmt: skip
"""Settings that a resumed run may change: how long, how often, in how many pieces; not what is learned from what."""


def check_same_recipe(run: RunFolder, recipe: Recipe) -> None:
    """Refuse a recipe that differs from the run's in more than :data:`CHANGEABLE` settings.

    Raises:
        UserError: there is no run, or names the settings that differ.
    """
    if not run.recipe.exists():
        raise UserError(f"{run.path} holds no run to resume; start it without --resume")
    recorded = load_recipe(run.recipe, check_required=False)
    old, new = dict(_flat(recorded.model_dump(mode="json"))), dict(_flat(recipe.model_dump(mode="json")))
    changed = [key for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key) and not _may_change(key)]
    if changed:
        key = changed[0]
        more = f" (and {', '.join(changed[1:4])}{'…' if len(changed) > 4 else ''})" if changed[1:] else ""
        raise UserError(
            f"--resume: {key} is {new.get(key)!r}, but {run.path} was started with {old.get(key)!r}{more}; "
            "leave it as it was, or start a new run in another -o folder"
        )
    made = run.checkpoint_steps()[-1:]
    if recipe.schedule == "rl" and made and made[0] > recipe.trainer.steps:
        raise UserError(
            f"--resume: trainer.steps is {recipe.trainer.steps}, but {run.path} has made {made[0]} steps; ask for as "
            f"many or more (trainer.steps={made[0]} ends it there)"
        )


def check_same_inputs(run: RunFolder, facts: Mapping[str, Any]) -> None:
    """Refuse to resume on other data.

    Args:
        facts: seed and hashes of corpus, prompt, question sets and anchors, as in ``environment.json``.

    Raises:
        UserError: names what differs.
    """
    try:
        recorded = json.loads(run.environment.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{run.environment}: can't be read ({error}); a run without it can't be resumed") from None
    for key in ("seed", "corpus_hash", "prompt_hash", "data_hash", "dev_hash", "test_hash", "anchors_hash"):
        if key == "anchors_hash" and key not in recorded:  # of a run from before it was written down
            continue
        if recorded.get(key) != facts.get(key):
            raise UserError(
                f"--resume: {key} is {facts.get(key)}, but {run.path} was started with {recorded.get(key)}; "
                "resume with the same inputs, or start a new run in another -o folder"
            )


def data_hash(questions: Sequence[Question]) -> str:
    """SHA-256 (hex) of a question set in its order."""
    digest = hashlib.sha256()
    for q in questions:
        digest.update(json.dumps([q.id, q.question, q.golden_answers, q.corpus]).encode())
    return digest.hexdigest()


def evidence_hash(recipe: Recipe, questions: Sequence[Question]) -> str | None:
    """SHA-256 (hex) of what the run's teacher is shown of these training questions; None where it has no teacher.

    Raises:
        UserError: the anchors file can't be read.
    """
    # A rollback may bring an objective with a teacher.
    recipes = [recipe, *([recipe_after_rollback(recipe)] if "rollback" in recipe.diagnosis.actions else [])]
    if not any(resolve(r.objective, r.parameters, r.aggregation).needs_teacher for r in recipes):
        return None
    if recipe.teacher.anchors is None:
        # The passages are those of the corpus, which has a hash of its own.
        named = [[q.id, q.supporting_titles, [q.extra.get(name) for name in SUPPORT]] for q in questions]
        return hashlib.sha256(json.dumps(named, sort_keys=True, default=str).encode()).hexdigest()
    asked = {q.id: q.question for q in questions}
    rows = read_anchors(recipe.teacher.anchors)
    return anchors_hash(row for row in rows.values() if asked.get(row.id) == row.question)


def _may_change(key: str) -> bool:
    return any(key == allowed or key.startswith(allowed + ".") for allowed in CHANGEABLE)


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
