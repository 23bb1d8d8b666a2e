"""`sleuth recipes` and `sleuth objectives`."""

from __future__ import annotations

from rich.table import Table

from sleuth.commands.terminal import console
from sleuth.errors import UserError
from sleuth.recipes.validation import nearest_key


def list_recipes() -> None:
    """Print a line for each shipped recipe: name, what it is, time and machine it takes."""
    from sleuth.recipes.loader import shipped_recipes

    table = Table("recipe", "what it is", "takes", box=None, pad_edge=False)
    for recipe in shipped_recipes():
        table.add_row(recipe.name, recipe.summary, recipe.expect)
    console().print(table)


def list_objectives(name: str | None = None) -> None:
    """Print a line for each objective, or all that is known of one.

    Raises:
        UserError: no such objective.
    """
    from sleuth.objectives import TABLE, resolve

    out = console()
    if name is None:
        table = Table("objective", "sets", "what it is", "source", "parameters", box=None, pad_edge=False)
        for entry in TABLE.values():
            table.add_row(entry.name, entry.slot, entry.summary, entry.paper, ", ".join(entry.parameter_names))
        out.print(table)
        out.print("\nNames combine with +, one advantage and one surrogate at most: objective=signbalance+search_sapo")
        return
    if name == "sapo" or name == "search_e1":
        resolve(name)
    if name not in TABLE:
        nearest = nearest_key(name, TABLE)
        hint = f"did you mean {nearest!r}?" if nearest else "`sleuth objectives` lists them"
        raise UserError(f"no objective is called {name!r}; {hint}")
    entry = TABLE[name]
    implied = f"implies aggregation={entry.aggregation}; an explicit one wins\n" if entry.aggregation else ""
    out.print(
        f"{entry.name} ({entry.slot}): {entry.summary}\n{entry.formula}\nsource: {entry.paper}\n{implied}",
        markup=False,
        highlight=False,
    )
    if not entry.parameters.model_fields:
        out.print("It has no parameters.")
        return
    table = Table("parameter", "default", "meaning", box=None, pad_edge=False)
    for key, field in zip(entry.parameter_names, entry.parameters.model_fields.values(), strict=True):
        table.add_row(f"{name}.{key}", str(field.default), field.description or "")
    out.print(table)
