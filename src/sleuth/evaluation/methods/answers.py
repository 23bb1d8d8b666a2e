"""The answer channel of the methods: a line that begins with ``Answer:``, and nothing else."""

from __future__ import annotations

import re

from sleuth.samplers.writer import Written

STOP = ("\nQuestion:", "\nUser:")
"""Where a model that goes on by itself has left its own message."""

_LINE = re.compile(r"^[ \t]*\**Answer\**:\**[ \t]*(\S[^\n]*)(\n)?", re.MULTILINE | re.IGNORECASE)
_LABEL = re.compile(r"^\s*\**Answer\**:\**[ \t]*", re.IGNORECASE)


def answer_line(written: Written) -> str | None:
    """The first complete answer line of a message; None where there is none, or the token limit cut it."""
    found = _LINE.search(written.text)
    if found is None or (written.cut and found[2] is None):
        return None
    return found[1].strip()


def whole_answer(written: Written) -> str | None:
    """The first line of a message that is an answer and nothing else, with or without the label."""
    text = _LABEL.sub("", written.text).lstrip()
    line, newline, _ = text.partition("\n")
    if not line.strip() or (written.cut and not newline):
        return None
    return line.strip()
