"""`sleuth eval`: a policy on question files, with intervals."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from sleuth.assembly import Parts, assemble, build_agent, build_sampler
from sleuth.commands.folders import check_output_folder, free_folder
from sleuth.commands.policy import Policy, check_model, find_policy, split_arguments
from sleuth.commands.terminal import console
from sleuth.errors import UserError
from sleuth.evaluation.coverage import answer_coverage
from sleuth.evaluation.score import evaluate, score, score_rows
from sleuth.evaluation.table import SetScores, markdown_table, rich_table, summarise
from sleuth.jsonl import write_atomically, write_jsonl
from sleuth.question_sets import question_sets, without, world_files
from sleuth.recipes.loader import write_recipe
from sleuth.rollouts import write_rollouts
from sleuth.types import Question, SamplingParams


def run_evaluation(
    source: str,
    arguments: Sequence[str],
    *,
    corpus: str | None,
    recipe: str | None,
    output: Path | None,
) -> None:
    """Score and print a table for each way of sampling; write scores, rollouts and tables to a folder.

    Args:
        arguments: question files and ``key=value`` settings, in any order. Without a file the recipe's own test set is
            scored; filters and limits of the recipe hold for that alone.

    Raises:
        UserError: a wrong input.
    """
    files, settings = split_arguments(arguments)
    if corpus is not None:
        settings.append(f"corpus={json.dumps(corpus)}")
    policy = _policy_for(source, files, settings, recipe)
    folder = output or free_folder(_default_folder(policy, source, files))
    check_output_folder(folder)
    check_model(policy)
    notes = console(stderr=True)
    parts = assemble(
        policy.recipe,
        policy.folder or folder,
        splits=["test"],
        say=lambda line: notes.print(f"note: {line}"),
    )
    if not parts.test:
        raise UserError("no questions to answer; name a question file behind the model")
    notes.print(answer_coverage(parts.retriever, parts.test, parts.limits.k).line())
    for line in _trained_on(policy, parts.test):
        notes.print(f"note: {line}")
    _score_all(policy, parts, folder)
    console().print(f"scores, rollouts and tables: {folder}")


def _policy_for(source: str, files: Sequence[str], settings: Sequence[str], recipe: str | None) -> Policy:
    if not files:
        return find_policy(source, settings, recipe)
    conditions = find_policy(source, (), recipe).recipe.data.test_where
    dropped = [f"data.test_where.{name}=null" for name in conditions]
    ours = [f"data.test={json.dumps(list(files))}", "data.test_limit=null", *dropped]
    return find_policy(source, [*ours, *settings], recipe)


def _default_folder(policy: Policy, source: str, files: Sequence[str]) -> Path:
    name = "+".join(re.split(r"\.jsonl?|\.parquet", Path(file).name)[0] for file in files) or "test"
    if policy.folder is not None:
        return policy.folder / "evaluation" / name
    return Path("evaluations") / f"{Path(source).name}-{name}"


def _trained_on(policy: Policy, questions: Sequence[Question]) -> list[str]:
    """A line when the run's training questions are among ``questions``."""
    if policy.folder is None:
        return []
    original = find_policy(str(policy.folder)).recipe
    try:
        trained = question_sets(original, world_files(original, policy.folder), splits=["train"]).train
    except UserError as error:
        return [f"whether it was trained on these questions isn't known ({error})"]
    _, shared = without(questions, trained)
    return [f"{shared} of {len(questions)} questions may have been trained on"] if shared else []


def _score_all(policy: Policy, parts: Parts, folder: Path) -> None:
    settings = policy.recipe.evaluation
    agent = build_agent(parts, build_sampler(policy.recipe, parts.model))
    ways = {"greedy" if settings.temperature == 0 else "sampled": settings.temperature}
    if settings.greedy:
        ways["greedy"] = 0.0
    folder.mkdir(parents=True, exist_ok=True)
    write_recipe(policy.recipe, folder / "recipe.yaml")
    grader = getattr(policy.recipe.reward, "grader", "squad")
    comparable = policy.recipe.data.comparable
    summary: dict[str, Any] = {"model": policy.recipe.model, "grader": grader, "comparable": comparable}
    texts = []
    for way, temperature in ways.items():
        with _bar() as bar:
            task = bar.add_task(way, total=len(parts.test))
            trajectories = evaluate(
                agent,
                parts.test,
                SamplingParams(temperature, policy.recipe.sampling.top_p, policy.recipe.sampling.top_k),
                seed=settings.seed,
                batch=settings.batch,
                progress=lambda done, bar=bar, task=task: bar.advance(task, done),  # type: ignore[misc]
            )
        parts.reward(trajectories)
        scores = score(trajectories, grader)
        write_rollouts(folder / f"rollouts-{way}.jsonl.zst", trajectories)
        write_jsonl(folder / f"scores-{way}.jsonl", score_rows(trajectories, scores))
        lines = summarise(scores)
        summary[way] = {line.name: line.as_json() for line in lines}
        title = _title(way, temperature, settings.seed, grader)
        texts.append(f"{title}\n\n{markdown_table(lines, comparable=comparable)}")
        _show(lines, title, comparable)
    with write_atomically(folder / "table.md") as out:
        out.write("\n".join(texts).encode())
    with write_atomically(folder / "summary.json") as out:
        out.write((json.dumps(summary, indent=2, ensure_ascii=False) + "\n").encode())


def _title(way: str, temperature: float, seed: int, grader: str) -> str:
    how = "greedy" if way == "greedy" else f"sampled at T = {temperature:g}, seed {seed}"
    return f"{how}; grader {grader}; 95 % bootstrap intervals"


def _show(lines: Sequence[SetScores], title: str, comparable: bool) -> None:
    console().print(rich_table(lines, title=title, comparable=comparable))


def _bar() -> Progress:
    out = console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=out, disable=not out.is_terminal, transient=True)
