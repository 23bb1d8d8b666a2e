"""`sleuth recipes` and `sleuth objectives`."""

from __future__ import annotations

from rich.table import Table

from sleuth.commands.terminal import console


def list_recipes() -> None:
    """Print a line for each shipped recipe: name, what it is, time and machine it takes."""
    from sleuth.recipes.loader import shipped_recipes

    table = Table("recipe", "what it is", "takes", box=None, pad_edge=False)
    for recipe in shipped_recipes():
        table.add_row(recipe.name, recipe.summary, recipe.expect)
    console().print(table)


def list_objectives(name: str | None = None) -> None:
    """Print a line for each objective and schedule, or all that is known of one.

    Raises:
        UserError: no such objective.
    """
    from sleuth.objectives import SCHEDULES, TABLE
    from sleuth.objectives.table import find

    out = console()
    if name is None:
        table = Table("objective", "sets", "what it is", "source", "parameters", box=None, pad_edge=False)
        for entry in TABLE.values():
            table.add_row(entry.name, entry.slot, entry.summary, entry.paper, ", ".join(entry.parameter_names))
        out.print(table)
        out.print(
            "\nNames combine with +, one advantage and one surrogate at most: objective=signbalance+search_sapo\n"
        )
        table = Table("schedule", "what it is", "source", "", box=None, pad_edge=False)
        for schedule in SCHEDULES.values():
            state = f"schedule={schedule.name}" if schedule.available else "not in Sleuth yet"
            table.add_row(schedule.name, schedule.summary, schedule.paper, state)
        out.print(table)
        return
    if name in SCHEDULES:
        schedule = SCHEDULES[name]
        out.print(f"{name} (schedule): {schedule.summary}\nsource: {schedule.paper}", markup=False, highlight=False)
        if schedule.available:
            out.print(f"It is no objective: write schedule={name}.")
        else:
            out.print("Sleuth doesn't have it yet.")
        return
    entry = find(name)
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
    for key, default, meaning in entry.settings:
        table.add_row(f"{name}.{key}", default, meaning)
    out.print(table)
