"""Verbs that ask and grade: evaluation, single questions, predictions, graders, published figures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sleuth.cli.app import app
from sleuth.cli.arguments import CorpusOption, JsonOption, Policy, RecipeOption
from sleuth.errors import UserError

if TYPE_CHECKING:
    from sleuth.commands.judge import JudgeChoice


@app.command(name="eval")
def evaluate(
    policy: Annotated[
        str,
        typer.Argument(
            metavar="RUN_OR_MODEL",
            help="A run, a model folder or hub model, or a model's name at --endpoint; with --table and --compare an "
            "evaluation's folder.",
        ),
    ],
    questions: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SET]... [KEY=VALUE]...", help="Question sets and settings; no set: the run's own test set."
        ),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option("--methods", metavar="NAME[,NAME]...", help="agent, direct, cot, rag, ircot, react, search-o1."),
    ] = None,
    endpoint: Annotated[
        str | None, typer.Option("--endpoint", metavar="URL", help="An OpenAI-compatible endpoint, with its /v1.")
    ] = None,
    corpus: CorpusOption = None,
    recipe: RecipeOption = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Folder for answers, scores and tables.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what it would take, and stop.")] = False,
    table: Annotated[
        bool, typer.Option("--table", help="Run nothing: the tables of this folder, or of the evaluations in it.")
    ] = False,
    compare: Annotated[
        bool, typer.Option("--compare", help="Run nothing: two folders (or FOLDER:SYSTEM), question by question.")
    ] = False,
    metric: Annotated[str, typer.Option("--metric", help="em, f1 or cover_em, of --table and --compare.")] = "em",
    grader: Annotated[
        str | None,
        typer.Option(
            "--grader",
            metavar="NAME",
            help="squad, robust, or search-r1-compat to compare with old tables; with --table and --compare the "
            "answers that are there are graded again.",
        ),
    ] = None,
    judge: Annotated[
        str | None,
        typer.Option("--judge", metavar="MODEL", help="This model judges the answers too, at --judge-endpoint."),
    ] = None,
    judge_endpoint: Annotated[
        str | None, typer.Option("--judge-endpoint", metavar="URL", help="(judge) OpenAI-compatible, with its /v1.")
    ] = None,
    judge_prompt: Annotated[
        Path | None, typer.Option("--judge-prompt", metavar="FILE", help="(judge) Another instruction.")
    ] = None,
    judge_set: Annotated[
        list[str] | None,
        typer.Option("--judge-set", metavar="FIELD=VALUE", help="(judge) Of the endpoint, such as concurrency=8."),
    ] = None,
    published: Annotated[
        bool, typer.Option("--published", help="What others print of these sets, and how their set-up differs.")
    ] = False,
    fail_below: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-below", metavar="[[SYSTEM:]SET:]METRIC=X", help="Exit with 1 on a lower score; may be repeated."
        ),
    ] = None,
) -> None:
    """Score a policy and untrained methods: EM, F1, intervals, recall. The same command goes on where it stopped."""
    from sleuth.commands import evaluate as command

    if metric not in ("em", "f1", "cover_em"):
        raise UserError(f"--metric {metric} is not known; write em, f1 or cover_em")
    given = questions or []
    chosen = _judge_choice(judge, judge_endpoint, judge_prompt, judge_set, "--judge-endpoint")
    if table:
        if given or compare:
            raise UserError("--table takes one folder and nothing else: sleuth eval FOLDER --table")
        command.show_tables(
            Path(policy), metric=metric, fail_below=fail_below or [], grader=grader, judge=chosen, published=published
        )
    elif compare:
        if len(given) != 1:
            raise UserError("--compare takes two folders: sleuth eval --compare A B")
        if chosen is not None or published:
            raise UserError("--judge and --published go with --table or with a run, not with --compare")
        command.show_comparison(policy, given[0], metric=metric, grader=grader)
    else:
        command.run_evaluation(
            policy,
            given,
            corpus=corpus,
            recipe=recipe,
            output=output,
            methods=methods,
            endpoint=endpoint,
            dry_run=dry_run,
            fail_below=fail_below or [],
            grader=grader,
            judge=chosen,
            published=published,
        )


def _judge_choice(
    model: str | None, endpoint: str | None, prompt: Path | None, settings: list[str] | None, option: str
) -> JudgeChoice | None:
    if (model is None) != (endpoint is None):
        raise UserError(f"--judge MODEL and {option} URL go together")
    if model is None or endpoint is None:
        if prompt is not None or settings:
            raise UserError("--judge-prompt and --judge-set belong to --judge MODEL")
        return None
    from sleuth.commands.judge import JudgeChoice

    return JudgeChoice(model, endpoint, prompt, settings or [])


@app.command()
def ask(
    policy: Policy,
    question: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[QUESTION] [KEY=VALUE]...", help="The question in quotes; without it, one of the run's test set."
        ),
    ] = None,
    corpus: CorpusOption = None,
    recipe: RecipeOption = None,
    part: Annotated[str | None, typer.Option("--part", help="Part of the corpus to search, if it has any.")] = None,
    temperature: Annotated[float, typer.Option(min=0.0, help="0 takes the likeliest token.")] = 0.0,
    seed: Annotated[int, typer.Option(help="Of sampling, and of the choice of a test question.")] = 0,
) -> None:
    """Ask one question and watch the search, turn by turn."""
    from sleuth.commands import ask as command

    command.ask(
        policy,
        question or [],
        corpus=corpus,
        recipe=recipe,
        part=part,
        temperature=temperature,
        seed=seed,
    )


@app.command()
def grade(
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help='JSONL rows of "id", "prediction", "golden_answers"; or saved rollouts.'),
    ],
    compat: Annotated[
        bool, typer.Option("--compat", help="Grade as the field's first tables did too, faults included.")
    ] = False,
    judge: Annotated[
        str | None, typer.Option("--judge", metavar="MODEL", help="Ask this model too, at --endpoint.")
    ] = None,
    endpoint: Annotated[
        str | None, typer.Option("--endpoint", metavar="URL", help="(judge) An OpenAI-compatible endpoint, with /v1.")
    ] = None,
    judge_prompt: Annotated[
        Path | None, typer.Option("--judge-prompt", metavar="FILE", help="(judge) Another instruction.")
    ] = None,
    judge_set: Annotated[
        list[str] | None,
        typer.Option("--judge-set", metavar="FIELD=VALUE", help="(judge) Of the endpoint, such as concurrency=8."),
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the rows there.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Grade any tool's predictions."""
    from sleuth.commands import data as command

    choice = _judge_choice(judge, endpoint, judge_prompt, judge_set, "--endpoint")
    command.grade(file, compat=compat, judge=choice, output=output, as_json=as_json)


@app.command()
def conformance(
    grader: Annotated[
        str | None, typer.Option("--grader", metavar="MODULE:FUNCTION", help="Exact match, or a reward of rollouts.")
    ] = None,
    shape: Annotated[
        str | None,
        typer.Option("--as", help="answer, solution (verl) or completions (TRL); default: by its arguments."),
    ] = None,
    with_prompt: Annotated[
        bool, typer.Option("--with-prompt", help="The grader gets the prompt in front of the rollout.")
    ] = False,
    cover_em: Annotated[
        str | None, typer.Option("--cover-em", metavar="MODULE:FUNCTION", help="Containment, like the grader.")
    ] = None,
    extractor: Annotated[
        str | None, typer.Option("--extractor", metavar="MODULE:FUNCTION", help="Text of a rollout to its answer.")
    ] = None,
    parser: Annotated[
        str | None, typer.Option("--parser", metavar="MODULE:FUNCTION", help="Text of a turn to (action, content).")
    ] = None,
    evaluator: Annotated[
        str | None, typer.Option("--evaluator", metavar="MODULE:FUNCTION", help="(rows, batch size) to rows of em.")
    ] = None,
    rules: Annotated[str, typer.Option("--rules", help="Whose exact match: squad or robust.")] = "squad",
    sets: Annotated[list[str] | None, typer.Option("--set", metavar="SET", help="G, E or V; default: all.")] = None,
    name: Annotated[str | None, typer.Option("--name", help="Of the tool, for tables.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Save the result.")] = None,
    table: Annotated[
        list[Path] | None, typer.Option("--table", metavar="FILE", help="Run nothing: saved results side by side.")
    ] = None,
    form: Annotated[str, typer.Option("--form", help="(--table) text, markdown, latex or html.")] = "text",
    export: Annotated[
        Path | None, typer.Option("--export", metavar="DIR", help="Run nothing: write the data files there.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="(--export) Write over files that exist.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Put inputs that break graders and parsers to Sleuth, or to another tool's functions. Exit code 1: one fails."""
    from sleuth.commands import conformance as command

    if form not in ("text", "markdown", "latex", "html"):
        raise UserError(f"--form {form} is not known; write text, markdown, latex or html")
    if export is not None:
        command.export(export, force=force)
        return
    if table:
        command.table(table, form)
        return
    code = command.conformance(
        grader=grader,
        shape=shape,
        with_prompt=with_prompt,
        cover_em=cover_em,
        extractor=extractor,
        parser=parser,
        evaluator=evaluator,
        rules=rules,
        sets=sets or [],
        name=name,
        output=output,
        as_json=as_json,
    )
    raise typer.Exit(code)


@app.command()
def published(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[WORD]...", help="Such as 7B Search-R1: of model and method.")
    ] = None,
    sets: Annotated[list[str] | None, typer.Option("--set", metavar="NAME", help="Benchmark; may be repeated.")] = None,
    source: Annotated[list[str] | None, typer.Option("--source", metavar="NAME", help="May be repeated.")] = None,
    metric: Annotated[str | None, typer.Option("--metric", help="em, f1 or accuracy; default: each.")] = None,
    beside: Annotated[
        Path | None, typer.Option("--beside", metavar="DIR", help="An evaluation, whose scores come first.")
    ] = None,
    flags: Annotated[bool, typer.Option("--flags", help="Only rows in which something doesn't add up.")] = False,
    form: Annotated[str, typer.Option("--form", help="text, markdown, latex, html or json.")] = "text",
) -> None:
    """Show what papers and repositories print, with sources and set-ups, alone or beside own scores."""
    from sleuth.commands import published as command

    if form not in ("text", "markdown", "latex", "html", "json"):
        raise UserError(f"--form {form} is not known; write text, markdown, latex, html or json")
    command.published(
        sets=sets or [],
        words=words or [],
        source=source or [],
        metric=metric,
        beside=beside,
        flagged=flags,
        form=form,
    )
