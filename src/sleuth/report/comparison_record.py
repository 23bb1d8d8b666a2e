"""What the folder of a comparison says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sleuth.errors import UserError
from sleuth.report.numbers import plain
from sleuth.report.sources import COMPARISON


def comparison_record(folder: Path) -> dict[str, Any]:
    """``comparison.json`` as it is, with numbers that JSON can hold.

    Raises:
        UserError: it isn't JSON, or no comparison.
    """
    file = folder / COMPARISON
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{file}: not JSON ({error}); make it again with `sleuth compare`") from None
    if not isinstance(value, dict) or not isinstance(value.get("cells"), list):
        raise UserError(f"{file}: no comparison (it has no list of cells); make it again with `sleuth compare`")
    return plain(value)
