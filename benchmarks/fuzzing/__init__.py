"""Parsers and graders under inputs that nobody would write: see ``__main__`` and ``results.md``."""

from __future__ import annotations

from collections.abc import Mapping

SHARES: Mapping[str, int] = {
    "graders": 80,
    "normal_forms": 80,
    "answers": 200,
    "scanner": 200,
    "tags": 10,
    "tool_calls": 10,
    "episode": 5,
    "methods": 60,
    "judge": 120,
    "compat": 130,
    "rows": 105,
}
"""Targets, and of 1,000 inputs how many each gets: cheap ones get more. Here, so that nothing of Sleuth is imported
before atheris can watch it."""
