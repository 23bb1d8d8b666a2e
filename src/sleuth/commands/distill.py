"""`sleuth distill`: one distillation stage on a rollouts file, without reinforcement learning around it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sleuth.commands.folders import check_output_folder, check_writable, free_folder
from sleuth.commands.policy import Policy, check_model, find_policy
from sleuth.commands.terminal import console
from sleuth.errors import RunStopped, UserError
from sleuth.recipes.loader import dump_recipe, load_recipe
from sleuth.recipes.schema import Recipe
from sleuth.rollouts import read_rollouts
from sleuth.types import SpanKind, Trajectory

if TYPE_CHECKING:
    from sleuth.agent.codec import TokenCodec

SUMMARY = "distill.json"
"""Written when all else is: a folder that has it is finished."""


def distill(
    pool: str,
    settings: Sequence[str],
    *,
    model: str | None,
    recipe: str | None,
    output: Path | None,
    resume: bool,
) -> None:
    """Mine pairs from ``pool``, distil ``model`` on them and leave an ordinary model folder.

    Args:
        pool: a rollouts file with several rollouts of each question (a group).
        settings: ``key=value`` on top of the model's recipe, such as ``search_e1.distill.lr=1e-4``.
        model: run, model folder or hub name that sampled the pool; None with ``resume``.

    Raises:
        UserError: a wrong file, model, setting or folder, a pool of another tokenizer, or one without a single pair.
        RunStopped: interrupted. RunFailed: the disk is full. Both say how to go on.
    """
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise UserError("sleuth distill runs in one process; rounds run in several (sleuth train … schedule=search_e1)")
    if resume:
        folder, loaded = _begun(output, settings)
    else:
        if model is None:
            raise UserError("name the model that sampled the pool: sleuth distill POOL --model RUN_OR_MODEL")
        policy = find_policy(model, settings, recipe)
        folder = output or free_folder(Path("runs") / f"{_stem(pool)}-distilled")
        check_output_folder(folder, instead="go on with it by --resume, or choose")
        check_model(policy)
        loaded = _recipe_of(policy)
    if (folder / SUMMARY).is_file():
        raise UserError(f"{folder} is finished; choose another -o folder")
    from sleuth.training.checkpoints import no_room_is_said
    from sleuth.training.signals import interrupts_on_sigterm

    further = f"go on with `sleuth distill {pool} -o {folder} --resume`"
    try:
        with interrupts_on_sigterm(), no_room_is_said(folder, further):
            summary = _distil(pool, loaded, folder, further)
    except KeyboardInterrupt:
        begun = (folder / "recipe.yaml").is_file()
        raise RunStopped(f"interrupted; {further if begun else 'nothing was begun'}") from None
    _print(summary, folder)


def _distil(pool: str, recipe: Recipe, folder: Path, further: str) -> dict[str, Any]:
    from sleuth.agent.codec import TokenCodec
    from sleuth.assembly import build_protocol, build_tokenizer, build_tools, fit_limits
    from sleuth.rewards.reward import Reward
    from sleuth.seeds import derive_seed
    from sleuth.training.progress import Progress
    from sleuth.training.run_folder import environment, write_text
    from sleuth.training.search_e1.distill import merged_model, save_model
    from sleuth.training.search_e1.pairs import mine
    from sleuth.training.search_e1.stages import distil_policy, stage_summary, write_pairs
    from sleuth.training.search_e1.views import views_of

    reward = Reward(recipe.reward)
    rollouts = list(read_rollouts(pool))
    if not rollouts:
        raise UserError(f"{pool}: no rollouts in it")
    reward(rollouts)
    tokenizer = build_tokenizer(recipe)
    codec = TokenCodec(tokenizer)
    _check_tokenizer(pool, rollouts, codec)
    protocol = build_protocol(recipe, codec, build_tools(recipe))
    settings = recipe.search_e1
    mined = mine(rollouts, settings.pairs)
    if not mined.pairs:
        why = ", ".join(f"{number} {reason}" for reason, number in mined.statistics["dropped"].items())
        raise UserError(f"{pool}: no pair in {mined.statistics['questions']} questions ({why}); see docs/training.md")
    model = merged_model(recipe)
    views, too_long = views_of(
        mined.pairs, protocol, settings.distill, fit_limits(recipe.limits, model.config).max_context
    )
    if not views:
        raise UserError(
            f"{pool}: all {too_long} pairs are longer than the model's context with the reference in it; try "
            "search_e1.distill.reference_view=no_passages"
        )
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "recipe.yaml", dump_recipe(recipe))
    statistics = mined.statistics | {"too_long": too_long}
    write_pairs(folder, views, statistics)
    facts = environment(seed=recipe.seed, pool=str(pool))
    write_text(folder / "environment.json", json.dumps(facts, indent=2, ensure_ascii=False) + "\n")
    with Progress(recipe) as progress:
        model = distil_policy(
            recipe,
            model,
            tokenizer,
            views,
            folder,
            seed=derive_seed(recipe.seed, "distill"),
            progress=progress,
            how_to_continue=further,
        )
    save_model(model, tokenizer, folder / "model")
    for file in (folder / "model").iterdir():
        file.replace(folder / file.name)
    (folder / "model").rmdir()
    summary = {"pool": pool, "model": recipe.model, "mined": statistics, **stage_summary(folder, len(views))}
    write_text(folder / SUMMARY, json.dumps(summary, indent=2) + "\n")
    shutil.rmtree(folder / "checkpoints")
    return summary


def _recipe_of(policy: Policy) -> Recipe:
    """The model's recipe as one that this folder's model can be asked and trained on by."""
    return policy.recipe.model_copy(update={"schedule": "rl"})


def _begun(output: Path | None, settings: Sequence[str]) -> tuple[Path, Recipe]:
    if output is None or not (output / "recipe.yaml").is_file():
        raise UserError("--resume: name the folder to go on with: sleuth distill POOL -o DIR --resume")
    if settings:
        raise UserError("--resume: the settings are those that the stage was begun with; leave them out")
    check_writable(output)
    return output, load_recipe(output / "recipe.yaml", check_required=False)


def _stem(pool: str) -> str:
    return Path(pool).name.split(".jsonl")[0]


def _check_tokenizer(pool: str, rollouts: Sequence[Trajectory], codec: TokenCodec) -> None:
    """Refuse ids that spell another text than the one that the pool holds for them."""
    for trajectory in rollouts[:32]:
        for span in trajectory.spans:
            if span.kind is SpanKind.POLICY and span.text and codec.decode(span.ids).strip() != span.text.strip():
                raise UserError(
                    f"{pool}: rollout {trajectory.id} was sampled with another tokenizer than the model's; name the "
                    "model that sampled it"
                )


def _print(summary: dict[str, Any], folder: Path) -> None:
    mined, out = summary["mined"], console()
    out.print(
        f"{summary['pairs']} pairs from {mined['questions']} questions, {summary['updates']} updates; KL to the "
        f"teacher {summary['kl_first']:.4f} in the first, {summary['kl_last']:.4f} in the last"
    )
    out.print(f'the distilled model: {folder}; ask it something: sleuth ask {folder} "…"')
