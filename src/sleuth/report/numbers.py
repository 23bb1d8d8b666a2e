"""Numbers as JSON can hold them: short, and without NaN and infinities."""

from __future__ import annotations

import math
from typing import Any

_DIGITS = 6


def number(value: float | None) -> float | int | str | None:
    """``value`` with six significant digits; NaN and infinities as the words that JavaScript's ``Number`` reads."""
    if value is None or isinstance(value, int):
        return value
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return float(f"{value:.{_DIGITS}g}")


def plain(value: Any) -> Any:
    """A JSON value with every number in it made :func:`number`; what JSON doesn't know becomes its text."""
    if isinstance(value, bool) or value is None or isinstance(value, (int, str)):
        return value
    if isinstance(value, float):
        return number(value)
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return str(value)
