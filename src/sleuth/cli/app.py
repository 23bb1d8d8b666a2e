"""The application that the verbs are registered with."""

from __future__ import annotations

import typer

app = typer.Typer(
    name="sleuth",
    help="Train language models to search, by reinforcement learning: from a laptop to a cluster.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
