"""The stages of a round: reinforcement learning, then a pool, its pairs and the distillation on them.

With several processes all call every stage together. The main one writes and decides; rollouts and updates are shared.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sleuth.assembly import Material, Parts, assemble, build_agent, build_sampler
from sleuth.errors import RunFailed, RunStopped
from sleuth.jsonl import write_jsonl
from sleuth.recipes.schema import Recipe
from sleuth.seeds import derive_seed
from sleuth.training.processes import Processes
from sleuth.training.progress import Progress
from sleuth.training.run import train
from sleuth.training.run_folder import RunFolder, write_text
from sleuth.training.scores import dev_rollouts
from sleuth.training.search_e1.distill import merged_model, run_stage, save_model
from sleuth.training.search_e1.pairs import mine
from sleuth.training.search_e1.round import Round, read_json
from sleuth.training.search_e1.views import Views, views_of
from sleuth.training.signals import Stop, stop_requests
from sleuth.training.watch import dev_scores

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def reinforce(this: Round, material: Material, quiet: bool, processes: Processes = Processes()) -> None:
    """The round's reinforcement learning, begun or taken up again; nothing where it is finished."""

    def begin() -> tuple[bool, bool]:
        world, link = this.run.path / "world", this.rl.path / "world"
        if world.exists() and not link.exists():
            this.rl.path.mkdir(parents=True, exist_ok=True)
            link.symlink_to(os.path.relpath(world, this.rl.path), target_is_directory=True)
        return read_json(this.rl.summary) is not None, this.rl.recipe.exists()

    done, begun = processes.from_main(begin)
    if done:
        processes.from_main(this.rl.drop_optimizers)  # a killed process may not have come to it
        return
    with Progress(this.recipe, quiet=quiet or not processes.main) as progress:
        progress.say(f"round {this.number} of {this.recipe.search_e1.rounds}: reinforcement learning")
    try:
        train(
            this.rl_recipe(), this.rl.path, resume=begun, quiet=quiet, material=material, processes=processes
        )  # fmt: skip
    except (RunStopped, RunFailed) as error:
        raise type(error)(str(error).replace(str(this.rl.path), str(this.run.path))) from error
    processes.from_main(this.rl.drop_optimizers)


def distil_round(this: Round, material: Material, progress: Progress, processes: Processes = Processes()) -> None:
    """The round's pool, pairs and distillation; what a killed process left of them is taken up."""
    recipe, settings = this.recipe, this.recipe.search_e1
    parts = parts_of(recipe, this.rl_result, material, processes)
    of = f"round {this.number} of {settings.rounds}"
    if not processes.from_main(lambda: this.pool.finished):
        asked = min(settings.pool.questions or len(parts.train), len(parts.train))
        with _stoppable(this.run.how_to_continue, "at the end of this batch of the pool", progress, processes) as stop:
            this.pool.draw(
                recipe,
                processes.spread(build_agent(parts, build_sampler(recipe, parts.model)), parts.model),
                parts.reward,
                parts.train,
                round=this.number,
                step=this.first + recipe.trainer.steps,
                progress=progress.counting(f"{of}: a pool of {asked:,} questions", asked * settings.pool.rollouts),
                processes=processes,
                stop=lambda: stop.requested,
            )

    def pairs() -> list[Views]:
        mined = mine(this.pool.read(), settings.pairs)
        views, too_long = views_of(mined.pairs, parts.protocol, settings.distill, parts.limits.max_context)
        write_pairs(this.distill, views, mined.statistics | {"too_long": too_long})
        s = mined.statistics
        searches = f"searches {s['reference_searches']:.2f} against {s['student_searches']:.2f}"
        progress.say(
            f"{of}: {len(views)} pairs from {s['questions']} questions ({too_long} too long), student wrong in "
            f"{s['share_student_wrong']:.0%}, {searches}"
        )
        return views

    views = processes.from_main(pairs)
    seed = derive_seed(recipe.seed, "distill", this.number)
    model = distil_policy(
        recipe,
        parts.model,
        parts.tokenizer,
        views,
        this.distill,
        seed=seed,
        progress=progress,
        processes=processes,
        how_to_continue=this.run.how_to_continue,
    )
    parts = replace(parts, model=model)
    dev = None
    if parts.dev and (recipe.trainer.eval_every or recipe.trainer.keep == "best"):
        agent = processes.spread(build_agent(parts, build_sampler(recipe, model)), model)
        dev = dev_scores(dev_rollouts(recipe, parts, agent), parts.reward.settings.grader)["dev/em"]

    def finish() -> None:
        summary = stage_summary(this.distill, len(views)) | ({} if dev is None else {"dev_em": dev})
        save_model(model, parts.tokenizer, this.run.checkpoint(this.first + recipe.trainer.steps + summary["updates"]))
        write_text(this.distill / "distill.json", json.dumps(summary, indent=2) + "\n")

    processes.from_main(finish)


def distil_policy(
    recipe: Recipe,
    model: Any,
    tokenizer: PreTrainedTokenizerBase,
    views: Sequence[Views],
    folder: Path,
    *,
    seed: int,
    progress: Progress,
    how_to_continue: str,
    processes: Processes = Processes(),
) -> Any:
    """Run the stage with a bar; without pairs the model stays as it is.

    Args:
        how_to_continue: for a message, where a signal or a full disk ends it.

    Raises:
        RunStopped: by a signal, behind the update in work and its checkpoint. RunFailed: of
            :func:`~sleuth.training.search_e1.distill.run_stage`.
    """
    if not views:
        progress.say("no pairs, so that nothing is distilled; a larger pool may have some (search_e1.pool)")
        return model
    total = len(views) * recipe.search_e1.distill.epochs
    advance = progress.counting(f"distilling {total:,} pairs", total)
    with _stoppable(how_to_continue, "at the end of this update with a checkpoint", progress, processes) as stop:
        return run_stage(
            recipe,
            model,
            tokenizer,
            views,
            folder,
            seed=seed,
            progress=lambda record: advance(recipe.search_e1.distill.batch),
            processes=processes,
            stop=lambda: stop.requested,
            how_to_continue=how_to_continue,
        )


@contextmanager
def _stoppable(how_to_continue: str, where: str, progress: Progress, processes: Processes) -> Iterator[Stop]:
    """Within, a signal asks for the end and the second one makes it; where that was heard, how to go on is said."""
    stop = Stop(progress.say, where)
    try:
        with stop_requests(stop.request, processes=processes.count):
            yield stop
    except RunStopped as stopped:
        raise RunStopped(f"{stopped}; {how_to_continue}") from None


def write_pairs(folder: Path, views: Sequence[Views], statistics: dict[str, Any]) -> None:
    """``pairs.jsonl``: which rollout learned from which, and their lengths; ``pairs.json``: all of them together."""
    folder.mkdir(parents=True, exist_ok=True)
    tokens = {
        "tokens": sum(v.tokens for v in views),
        "teacher_context": sum(len(v.teacher) + len(v.response) for v in views) / max(len(views), 1),
        "student_context": sum(len(v.student) + len(v.response) for v in views) / max(len(views), 1),
    }
    write_text(folder / "pairs.json", json.dumps(statistics | tokens, indent=2) + "\n")
    rows = [
        {
            "student": v.ids[0],
            "reference": v.ids[1],
            "tokens": v.tokens,
            "student_prompt": len(v.student),
            "teacher_prompt": len(v.teacher),
            "response": len(v.response),
        }
        for v in views
    ]
    write_jsonl(folder / "pairs.jsonl", rows)


def stage_summary(folder: Path, pairs: int) -> dict[str, Any]:
    """What the stage's updates say together."""
    records = RunFolder(folder).read_metrics()
    summary: dict[str, Any] = {"pairs": pairs, "updates": len(records)}
    if records:
        for name in ("loss", "kl", "clipped", "gain"):
            values = [r[f"distill/{name}"] for r in records]
            summary |= {f"{name}_first": values[0], f"{name}_last": values[-1]}
        summary["seconds"] = round(sum(r["seconds/update"] for r in records), 2)
    return summary


def parts_of(recipe: Recipe, checkpoint: Path, material: Material, processes: Processes = Processes()) -> Parts:
    """The run's parts with the weights of a checkpoint, adapters merged."""
    of_checkpoint = recipe.model_copy(update={"model": str(checkpoint)})
    with processes.agreement():
        model: Any = merged_model(of_checkpoint)
        return assemble(of_checkpoint, checkpoint, material=material, model=model)
