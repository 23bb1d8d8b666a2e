"""Arguments and options that several verbs share."""

from __future__ import annotations

from typing import Annotated

import typer

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
