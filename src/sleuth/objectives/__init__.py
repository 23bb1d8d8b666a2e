"""The table of objectives: pure torch, chosen by name.

An objective is put together from parts: ``advantage → reshape* → surrogate + term*``, then an aggregation. Every
registered name is a patch on plain GRPO; names combine with ``+``.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sleuth.errors import UserError

if TYPE_CHECKING:
    from sleuth.objectives.compose import Objective


class GRPOParameters(BaseModel):
    """Parameters of ``grpo``, with the field's defaults."""

    model_config = ConfigDict(extra="forbid")

    std: Literal["sample", "population"] = Field("sample", description="which standard deviation divides")
    eps: float = Field(1e-6, ge=0, description="added to the standard deviation")
    clip_low: float = Field(0.2, ge=0, lt=1, description="the ratio is clipped below 1 - clip_low")
    clip_high: float = Field(0.2, ge=0, description="the ratio is clipped above 1 + clip_high")


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the table."""

    name: str
    summary: str
    paper: str
    formula: str
    parameters: type[BaseModel]


TABLE: dict[str, Entry] = {
    entry.name: entry
    for entry in [
        Entry(
            "grpo",
            "group-relative advantages and PPO's clipped surrogate, as in Search-R1",
            "arXiv 2402.03300; in search: arXiv 2503.09516",
            "A = (R - mean) / (std + eps);  loss = -min(r A, clip(r, 1 - clip_low, 1 + clip_high) A)",
            GRPOParameters,
        )
    ]
}


def names() -> list[str]:
    """Every registered name."""
    return sorted(TABLE)


def resolve(
    name: str,
    parameters: dict[str, dict[str, Any]] | None = None,
    aggregation: str | None = None,
    kl_coefficient: float = 0.0,
) -> Objective:
    """The objective that ``name`` (names joined by ``+``) and the parts' ``parameters`` describe.

    Raises:
        UserError: unknown name, part or parameter; the message says what to write instead.
    """
    from sleuth.objectives.aggregation import AGGREGATIONS
    from sleuth.objectives.compose import Objective

    parts = [part.strip() for part in name.split("+")]
    for part in parts:
        if part == "sapo":
            raise UserError(
                "objective sapo: that name means Soft Adaptive Policy Optimization in other libraries; "
                "Search Agent Policy Optimization is search_sapo"
            )
        if part not in TABLE:
            near = difflib.get_close_matches(part, names(), n=1)
            raise UserError(
                f"objective {part!r} is not known{f', did you mean {near[0]}?' if near else ''}; "
                f"known: {', '.join(names())}"
            )
    if len(parts) != len(set(parts)):
        raise UserError(f"objective {name!r} names a part twice")
    for part in parameters or {}:
        if part not in parts:
            raise UserError(f"parameters for {part!r}, but the objective is {name!r}; add it with + or drop them")
    aggregation = aggregation or "token_mean"
    if aggregation not in AGGREGATIONS:
        raise UserError(f"aggregation {aggregation!r} is not known; known: {', '.join(AGGREGATIONS)}")
    given = (parameters or {}).get("grpo", {})
    try:
        grpo = GRPOParameters(**given)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(["grpo", *map(str, first["loc"])])
        if first["type"] == "extra_forbidden":
            raise UserError(f"{key} is no parameter; grpo has: {', '.join(GRPOParameters.model_fields)}") from None
        raise UserError(f"{key}={first['input']!r}: {first['msg']}") from None
    return Objective(name, grpo, aggregation, kl_coefficient)
