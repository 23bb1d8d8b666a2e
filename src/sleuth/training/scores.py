"""What a policy scores: on the dev questions as it trains, on the test questions before and after; the summary."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from sleuth.agent.agent import SearchAgent
from sleuth.assembly import Parts
from sleuth.evaluation.score import Score, evaluate, score
from sleuth.evaluation.statistics import bootstrap_interval, paired_difference
from sleuth.evaluation.table import SetScores, summarise
from sleuth.recipes.schema import Recipe
from sleuth.seeds import derive_seed
from sleuth.training.model_card import model_card
from sleuth.training.processes import Processes
from sleuth.training.progress import Progress
from sleuth.training.run_folder import RunFolder, write_text
from sleuth.types import SamplingParams, Trajectory


def dev_rollouts(recipe: Recipe, parts: Parts, agent: SearchAgent) -> list[Trajectory]:
    """The dev questions, answered once each with the draws that every stage of a run shares."""
    return evaluate(
        agent,
        parts.dev,
        _scoring_params(recipe, recipe.evaluation.temperature),
        seed=derive_seed(recipe.evaluation.seed, "dev"),
        batch=recipe.evaluation.batch,
    )


def score_test(
    recipe: Recipe,
    parts: Parts,
    agent: SearchAgent,
    run: RunFolder,
    when: str,
    progress: Progress,
    processes: Processes = Processes(),
) -> dict[str, list[Trajectory]]:
    """Score the test questions, sampled and (if wanted) greedy; the rollouts go to ``evaluation/``."""
    from sleuth.rollouts import read_rollouts, write_rollouts

    modes = {"sampled": recipe.evaluation.temperature}
    if recipe.evaluation.greedy and recipe.evaluation.temperature > 0:
        modes["greedy"] = 0.0
    results: dict[str, list[Trajectory]] = {}
    if not parts.test or not recipe.evaluation.enabled:
        return results
    for mode, temperature in modes.items():
        file = run.path / "evaluation" / f"{when}-{mode}.jsonl.zst"
        if when == "before" and processes.from_main(file.exists):
            results[mode] = list(read_rollouts(file))
            continue
        results[mode] = evaluate(
            agent,
            parts.test,
            _scoring_params(recipe, temperature),
            seed=recipe.evaluation.seed,
            batch=recipe.evaluation.batch,
            progress=progress.scoring(f"{when} training, {mode}", len(parts.test)),
        )
        processes.from_main(partial(write_rollouts, file, results[mode]))
    return results


def _scoring_params(recipe: Recipe, temperature: float) -> SamplingParams:
    return SamplingParams(temperature, recipe.sampling.top_p, recipe.sampling.top_k)


def write_summary(
    recipe: Recipe,
    parts: Parts,
    run: RunFolder,
    before: dict[str, list[Trajectory]],
    after: dict[str, list[Trajectory]],
    checkpoint: Path | None,
    seconds: float,
    **facts: Any,
) -> dict[str, Any]:
    """Write ``summary.json`` and the card of the run's result.

    Args:
        before, after: the test questions' rollouts by way of sampling.
        checkpoint: the result, a folder in the run's.
        facts: what else the summary says.
    """
    records = run.read_metrics()
    summary: dict[str, Any] = {
        "recipe": recipe.name,
        "objective": recipe.objective,
        "seed": recipe.seed,
        "steps": records[-1]["step"] if records else 0,
        "checkpoint": checkpoint.relative_to(run.path).as_posix() if checkpoint is not None else None,
        "seconds": round(seconds, 1),
        "rollbacks": run.read_rollbacks(),
        "questions": len(parts.test) if recipe.evaluation.enabled else 0,
        "comparable": recipe.data.comparable,
        **facts,
    }
    scores: dict[str, dict[str, list[SetScores]]] = {}
    for mode in before:
        first, second = (
            score(before[mode], parts.reward.settings.grader),
            score(after[mode], parts.reward.settings.grader),
        )
        scores[mode] = {"before": summarise(first), "after": summarise(second)}
        summary[mode] = {when: {line.name: line.as_json() for line in lines} for when, lines in scores[mode].items()}
        summary[mode]["gain_em"] = _gain(first, second)
        if mode == "sampled":
            for when, rows in (("before", first), ("after", second)):
                em = bootstrap_interval([row.em for row in rows if row.em is not None])
                summary |= {f"em_{when}": em.mean, f"em_{when}_interval": [em.low, em.high]}
    if checkpoint is not None:
        sources = sorted({q.data_source or "questions" for q in parts.train})
        recorded = json.loads(run.environment.read_text(encoding="utf-8"))
        write_text(checkpoint / "README.md", model_card(recipe, recorded, scores, sources))
    write_text(run.summary, json.dumps(summary, indent=2, ensure_ascii=False) + "\n")
    return summary


def _gain(before: Sequence[Score], after: Sequence[Score]) -> dict[str, float]:
    """Mean EM after minus before over the questions scored both times, with its interval (questions resampled)."""
    pairs = [(b.em, a.em) for b, a in zip(before, after, strict=True) if b.em is not None and a.em is not None]
    return asdict(paired_difference([b for b, _ in pairs], [a for _, a in pairs]))
