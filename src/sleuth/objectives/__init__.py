"""Objectives: pure torch, chosen by name.

An objective is put together from parts: ``advantage → reshape* → surrogate + term*``, then an aggregation. Every
registered name is a patch on plain GRPO and fills a slot of it; names combine with ``+``. The advantage, the surrogate
and the aggregation can be filled once, reshapes and terms add up.

For a loop of your own there are functions of plain tensors: ``conditional_kl``, ``llds``, ``signbalance_advantages``,
``calibrate_advantages``, ``step_weights``.

Names are imported when they are first used, so that the table can be read without torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sleuth.objectives.build import resolve
    from sleuth.objectives.calibadv import calibrate_advantages
    from sleuth.objectives.lost_likelihood import llds
    from sleuth.objectives.search_sapo import conditional_kl
    from sleuth.objectives.signbalance import signbalance_advantages
    from sleuth.objectives.sspo import step_weights
    from sleuth.objectives.table import SCHEDULES, TABLE, Entry, names

__all__ = [
    "SCHEDULES",
    "TABLE",
    "Entry",
    "calibrate_advantages",
    "conditional_kl",
    "llds",
    "names",
    "resolve",
    "signbalance_advantages",
    "step_weights",
]

_HOMES = {
    "SCHEDULES": "table",
    "TABLE": "table",
    "Entry": "table",
    "calibrate_advantages": "calibadv",
    "conditional_kl": "search_sapo",
    "llds": "lost_likelihood",
    "names": "table",
    "resolve": "build",
    "signbalance_advantages": "signbalance",
    "step_weights": "sspo",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
