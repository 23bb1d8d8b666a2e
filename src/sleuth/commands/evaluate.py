"""`sleuth eval`: methods and policies on question sets, resumable, with intervals."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from sleuth.commands.evaluation_plan import Plan, estimate_lines, outline_evaluation, plan_evaluation
from sleuth.commands.folders import check_output_folder, check_writable
from sleuth.commands.policy import Policy, check_model, find_policy, split_arguments
from sleuth.commands.published import beside_sheets
from sleuth.commands.terminal import console
from sleuth.data.overlap import shared_steps
from sleuth.errors import RunFailed, RunStopped, UserError
from sleuth.evaluation.compare import compare, comparison_sheet, system_pairs
from sleuth.evaluation.coverage import answer_coverage
from sleuth.evaluation.folder import EvaluationFolder
from sleuth.evaluation.judged import judge_sheets
from sleuth.evaluation.recall import recall_of_questions
from sleuth.evaluation.run import run_system
from sleuth.evaluation.sheet import Sheet
from sleuth.evaluation.table import AVERAGE, METRICS
from sleuth.evaluation.tables import SystemScores, evaluation_folders, read_systems, write_tables, write_viewers
from sleuth.question_sets import question_sets, without, world_files
from sleuth.recipes.loader import write_recipe
from sleuth.recipes.schema import Recipe
from sleuth.rewards.reward import Reward
from sleuth.rewards.search_r1_compat import evaluation_grader
from sleuth.types import Question

if TYPE_CHECKING:
    from sleuth.commands.judge import JudgeChoice

_COSTS_MONEY = ("simulated", "serper", "brave", "searxng")
"""Retrievers that aren't asked for every question only to state their recall."""


def run_evaluation(
    source: str,
    arguments: Sequence[str],
    *,
    corpus: str | None = None,
    recipe: str | None = None,
    output: Path | None = None,
    methods: str | None = None,
    endpoint: str | None = None,
    dry_run: bool = False,
    fail_below: Sequence[str] = (),
    grader: str | None = None,
    judge: JudgeChoice | None = None,
    published: bool = False,
) -> None:
    """Answer, score and print tables; answers, scores, rollouts and tables go to a folder as they come.

    Args:
        arguments: question sets and ``key=value`` settings, in any order. Without a set the recipe's own test set is
            scored; filters and limits of its ``data`` hold for that alone.
        methods: comma-separated names; default: the recipe's.
        endpoint: URL of an OpenAI-compatible endpoint, where ``source`` is the name of a model.
        fail_below: ``em=0.30``, ``SYSTEM:SET:f1=0.2``, …: a lower score fails the call.
        grader: default: the recipe's. ``judge``: a language model that judges the answers, too. ``published``: show
            what others print of these sets.

    Raises:
        UserError: a wrong input, or a folder that was begun with other settings.
        RunFailed: a score below its limit, or too many failures.
        RunStopped: interrupted; the same command goes on.
    """
    limits = [_limit(text) for text in fail_below]
    files, settings = split_arguments(arguments)
    if corpus is not None:
        settings.append(f"corpus={json.dumps(corpus)}")
    if methods is not None:
        settings.append(f"evaluation.methods={json.dumps([m.strip() for m in methods.split(',')])}")
    if endpoint is not None:
        settings += [
            f"evaluation.endpoint.url={json.dumps(endpoint)}",
            f"evaluation.endpoint.model={json.dumps(source)}",
        ]
    if grader is not None:
        settings.append(f"evaluation.grader={evaluation_grader(grader).name}")
    policy = _policy_for(source, files, settings, recipe)
    folder = EvaluationFolder(output or _default_folder(policy, source, files))
    check_writable(folder.path)
    notes = console(stderr=True)

    def say(line: str) -> None:
        notes.print(f"note: {line}", soft_wrap=True)

    local = policy.recipe.evaluation.endpoint is None
    if folder.begun:
        outline = outline_evaluation(policy, folder.path, say=say)
        folder.check(outline.settings(policy.recipe), partly=True)
        if local:
            check_model(policy)
    else:
        check_output_folder(folder.path, may_hold=("world", "evaluation.lock", "recipe.yaml"))
        if local:
            check_model(policy)
        outline = outline_evaluation(policy, folder.path, say=say)
    plan = plan_evaluation(policy, folder.path, outline, say=say)
    if folder.begun:
        folder.check(plan.settings())
    for line in estimate_lines(plan):
        console().print(line, soft_wrap=True)
    if dry_run:
        return
    with folder.lock():
        overlap = _trained_on(policy, plan.questions)
        folder.begin({**plan.settings(), "notes": [f"{line[0].upper()}{line[1:]}." for line in overlap]})
        write_recipe(policy.recipe, folder.path / "recipe.yaml")
        notes.print(answer_coverage(plan.retriever, plan.questions, policy.recipe.limits.k).line())
        for line in overlap:
            say(line)
        _answer(plan, folder, policy.recipe, say)
        systems = read_systems([folder], policy.recipe.evaluation.seed)
        write_viewers(systems)
        _judge(systems, judge, say)
        _show(folder.path, systems, published=published)
    _check_limits(limits, systems)


def show_tables(
    path: Path,
    *,
    metric: str = "em",
    fail_below: Sequence[str] = (),
    grader: str | None = None,
    judge: JudgeChoice | None = None,
    published: bool = False,
) -> None:
    """Make the tables of a folder, or of all evaluations in it, anew from their answers.

    Args:
        grader, judge, published: as of :func:`run_evaluation`; the answers are graded, not got, again.

    Raises:
        UserError: there is none.
        RunFailed: a score below its limit.
    """
    limits = [_limit(text) for text in fail_below]
    if grader is not None:
        evaluation_grader(grader)
    folders = evaluation_folders(path)
    with ExitStack() as locks:
        if judge is not None:
            for folder in folders:
                locks.enter_context(folder.lock())
        systems = read_systems(folders, grader=grader)
        for system in systems:
            system.folder.write_scores(system.name)
        notes = console(stderr=True)
        _judge(systems, judge, lambda line: notes.print(f"note: {line}", soft_wrap=True))
        _show(path, systems, metric, published=published)
    _check_limits(limits, systems)


def show_comparison(a: str, b: str, *, metric: str = "em", grader: str | None = None) -> None:
    """Two evaluations, or two systems of them, question by question.

    Raises:
        UserError: nothing to compare, or no such grader.
    """
    results, notes = compare(system_pairs(a, b), metric, grader)
    comparison_sheet(results, notes, metric).print(console())


def _policy_for(source: str, files: Sequence[str], settings: Sequence[str], recipe: str | None) -> Policy:
    if not files:
        return find_policy(source, settings, recipe)
    conditions = find_policy(source, (), recipe).recipe.data.test_where
    dropped = [f"data.test_where.{name}=null" for name in conditions]
    ours = [f"data.test={json.dumps(list(files))}", "data.test_limit=null", *dropped]
    return find_policy(source, [*ours, *settings], recipe)


def _default_folder(policy: Policy, source: str, files: Sequence[str]) -> Path:
    """Always the same for the same command, which then goes on."""
    name = "+".join(_set_name(file) for file in files) or "test"
    if policy.folder is not None:
        return policy.folder / "evaluation" / name
    return Path("evaluations") / f"{Path(source).name}-{name}"


def _set_name(file: str) -> str:
    path = Path(file)
    stem = re.split(r"\.jsonl?|\.parquet|\.csv", path.name)[0]
    # Files of that name lie in a folder that says which they are.
    return path.parent.name if stem == "questions" and path.parent.name else stem


def _trained_on(policy: Policy, questions: Sequence[Question]) -> list[str]:
    """What is known of questions that were trained on: by the run's own recipe, or by ``data.train`` as given."""
    original = find_policy(str(policy.folder)).recipe if policy.folder is not None else policy.recipe
    if policy.folder is None and original.data.train is None:
        return []
    try:
        world = world_files(original, policy.folder) if policy.folder is not None else None
        trained = question_sets(original, world, splits=["train"]).train
    except UserError as error:
        return [f"whether it was trained on these questions isn't known ({error})"]
    _, shared = without(questions, trained)
    lines = [f"{shared} of {len(questions)} questions may have been trained on"] if shared else []
    steps = shared_steps(questions, trained)
    if steps:
        touched, last = {step.id for step in steps}, {step.id for step in steps if step.last}
        lines.append(
            f"{len(touched)} of {len(questions)} questions have a step that may have been trained on; "
            f"for {len(last)} it is the last one, whose answer is the question's"
        )
    return lines


def _answer(plan: Plan, folder: EvaluationFolder, recipe: Recipe, say: Callable[[str], None]) -> None:
    if recipe.retriever.kind not in _COSTS_MONEY and folder.recall() is None:
        folder.write_recall(recall_of_questions(plan.retriever, plan.questions, recipe.limits.k))
    reward = Reward(recipe.reward)
    try:
        for run in plan.runs():

            def there(known: int, of: int, name: str = run.name) -> None:
                if known:
                    left = "; the rest follows" if known < of else ""
                    say(f"{name}: {known:,} of {of:,} answers were there{left}")

            with _bar(run.name, len(plan.questions) * run.samples) as progress:
                run_system(
                    folder,
                    run,
                    plan.questions,
                    reward=reward,
                    progress=progress,
                    there=there,
                    max_failed_share=recipe.trainer.max_failed_share,
                )
    except KeyboardInterrupt:
        raise RunStopped(f"stopped; what is answered is in {folder.path}, and the same command goes on") from None


def _judge(systems: Sequence[SystemScores], judge: JudgeChoice | None, say: Callable[[str], None]) -> None:
    if judge is None:
        return
    from sleuth.commands.judge import judge_systems

    try:
        judge_systems([(system.name, system.folder) for system in systems], judge, _bar, say)
    except KeyboardInterrupt:
        raise RunStopped("stopped; the verdicts so far are kept, and the same command goes on") from None


def _show(path: Path, systems: Sequence[SystemScores], metric: str = "em", *, published: bool = False) -> None:
    out = console()
    more: list[Sheet] = []
    for grader in dict.fromkeys(system.settings["grader"] for system in systems):
        of_grader = [(s.label, s.name, s.folder, s.scores) for s in systems if s.settings["grader"] == grader]
        more += judge_sheets(of_grader, evaluation_grader(grader).label)
    if published:
        more += beside_sheets(path, systems)
    made = write_tables(path, systems, metric, more)
    # A terminal has room for each of one or two systems, and else for all of them in short; the files hold everything.
    shown = {1: made[:1], 2: made[2:4]}.get(len(systems), made[:2])
    for sheet in [*shown, *more]:
        sheet.print(out)
    failed = sum(line.failed for system in systems for line in system.lines if line.name != AVERAGE)
    if failed:
        out.print(f"{failed} answers failed and are not in the scores; the same command tries them again")
    out.print(f"answers, scores and tables (md, tex, html): {path}", soft_wrap=True)


# Limits for CI --------------------------------------------------------------------------------------------------------


def _limit(text: str) -> tuple[str | None, str | None, str, float]:
    """(system, set, metric, limit) of ``[[SYSTEM:]SET:]METRIC=NUMBER``."""
    name, equals, number = text.partition("=")
    *where, metric = name.split(":")
    try:
        value = float(number)
    except ValueError:
        value = float("nan")
    if not equals or metric not in METRICS or len(where) > 2 or value != value:
        raise UserError(f"--fail-below {text}: write em=0.30 or SET:f1=0.2 or SYSTEM:SET:em=0.1 ({', '.join(METRICS)})")
    system = where[0] if len(where) == 2 else None
    return system, where[-1] if where else None, metric, value


def _check_limits(limits: Sequence[tuple[str | None, str | None, str, float]], systems: Sequence[SystemScores]) -> None:
    below = []
    for wanted_system, wanted_set, metric, limit in limits:
        checked = 0
        for system in systems:
            if wanted_system not in (None, system.name, system.label):
                continue
            line = _line_of(system, wanted_set)
            if line is None:
                continue
            checked += 1
            interval = line.metrics[metric]
            if interval is None or line.pending:
                below.append(f"{system.label}, {line.name}: {metric} isn't known yet")
            elif interval.mean < limit:
                below.append(f"{system.label}, {line.name}: {metric} {interval.mean:.3f} is below {limit:g}")
        if not checked:
            raise UserError(f"--fail-below: nothing here is called {wanted_system or ''}:{wanted_set or ''}")
    if below:
        raise RunFailed("; ".join(below))


def _line_of(system: SystemScores, name: str | None) -> Any:
    if name is None:
        return system.lines[-1]  # the average, or the only set
    return next((line for line in system.lines if line.name == name), None)


@contextmanager
def _bar(name: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar, on a terminal."""
    out = console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(
        *columns, TimeRemainingColumn(), console=out, disable=not out.is_terminal, transient=True
    ) as progress:
        task = progress.add_task(name, total=total)
        yield lambda count: progress.advance(task, count)
