"""A table of text, written for the terminal, Markdown, LaTeX and HTML."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_LATEX = {
    "\\": r"\textbackslash{}",
    **{c: f"\\{c}" for c in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "–": "--",
    "±": r"$\pm$",
    "≥": r"$\geq$",
}


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table.

    Attributes:
        left: how many columns on the left are names; the others are figures.
        bold: numbers of rows that stand out.
        notes: lines under it.
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: int = 1
    bold: frozenset[int] = frozenset()
    notes: Sequence[str] = field(default_factory=tuple)

    def markdown(self, *, titled: bool = True) -> str:
        aligned = ["---"] * self.left + ["--:"] * (len(self.header) - self.left)
        lines = [self.header, aligned, *self.rows]
        table = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in lines)
        head = [self.title] if titled and self.title else []
        return "\n\n".join([*head, table, *self.notes]) + "\n"

    def latex(self) -> str:
        """A ``tabular`` in a ``table``; needs the package booktabs."""
        columns = "l" * self.left + "r" * (len(self.header) - self.left)
        body = [" & ".join(map(_latex, row)) + r" \\" for row in self.rows]
        notes = "".join(f". {_latex(note.rstrip('.'))}" for note in self.notes)
        return "\n".join(
            [
                r"\begin{table}",
                rf"\caption{{{_latex(self.title)}{notes}}}",
                rf"\begin{{tabular}}{{{columns}}}",
                r"\toprule",
                " & ".join(map(_latex, self.header)) + r" \\",
                r"\midrule",
                *body,
                r"\bottomrule",
                r"\end{tabular}",
                r"\end{table}",
                "",
            ]
        )

    def html(self) -> str:
        """A ``<section>``; everything in it is escaped."""
        head = "".join(f"<th>{html.escape(cell)}</th>" for cell in self.header)
        body = "".join(
            f"<tr{' class=total' if number in self.bold else ''}>"
            + "".join(f"<td>{html.escape(cell)}</td>" for cell in row)
            + "</tr>"
            for number, row in enumerate(self.rows)
        )
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes)
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        return f"<section><h2>{html.escape(self.title)}</h2>{table}{notes}</section>\n"

    def print(self, out: Console) -> None:
        """To a terminal: title and notes are lines of their own, whatever the table's width."""
        if self.title:
            out.print(f"\n{self.title}", style="italic")
        out.print(replace(self, title="", notes=()).rich())
        for note in self.notes:
            out.print(note)

    def rich(self) -> Table:
        """For the terminal, as wide as the table is; :meth:`print` where it may be narrow."""
        from rich import box
        from rich.table import Table

        table = Table(
            title=self.title or None, caption="\n".join(self.notes) or None, box=box.SIMPLE_HEAD, pad_edge=False
        )
        for column, name in enumerate(self.header):
            named = column < self.left
            table.add_column(name, justify="left" if named else "right", overflow="fold", no_wrap=named)
        for number, row in enumerate(self.rows):
            table.add_row(*row, style="bold" if number in self.bold else None)
        return table


def _latex(text: str) -> str:
    return "".join(_LATEX.get(c, c) for c in text)
