"""Verbs of the retriever."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sleuth.cli.app import app
from sleuth.cli.arguments import JsonOption
from sleuth.errors import UserError


@app.command(name="index")
def build_index(
    corpus: Annotated[
        str | None,
        typer.Argument(
            metavar="[CORPUS]", help="JSONL, parquet, a folder of texts or of such files, or a `datasets` name."
        ),
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="DIR", help="The index folder.")] = None,
    kind: Annotated[str | None, typer.Option(help="bm25 (the default), tantivy, dense or hybrid.")] = None,
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
        unused = given(
            kind=kind, k1=k1, b=b, stopwords=stopwords, stemmer=stemmer, encoder=encoder, recall=recall, words=words,
            device=device, dry_run=dry_run or None,
        )  # fmt: skip
        if unused:
            raise UserError(f"--{next(iter(unused)).replace('_', '-')} means nothing for --add and --delete; drop it")
        command.change(output, add=add, delete=delete or [], strict=strict, chunking=chunking)
        return
    if corpus is None:
        raise UserError("name the passages: sleuth index CORPUS -o DIR")
    command.index(
        corpus,
        output,
        kind=kind or "bm25",
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
        str, typer.Option(help="Of /retrieve: auto, search-r1 (its fields alone), zerosearch or browsecomp-plus.")
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
