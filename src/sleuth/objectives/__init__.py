"""The table of objectives: pure torch, chosen by name.

An objective is put together from parts: ``advantage → reshape* → surrogate + term*``, then an aggregation. Every
registered name is a patch on plain GRPO and fills a slot of it; names combine with ``+``. The advantage, the surrogate
and the aggregation can be filled once, reshapes and terms add up.

For a loop of your own there are functions of plain tensors: ``conditional_kl``, ``llds``, ``signbalance_advantages``,
``calibrate_advantages``, ``step_weights``.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ValidationError

from sleuth.errors import UserError
from sleuth.objectives import parameters as _settings
from sleuth.objectives.calibadv import CalibAdvParameters, calibrate_advantages
from sleuth.objectives.lost_likelihood import llds
from sleuth.objectives.search_sapo import conditional_kl
from sleuth.objectives.signbalance import signbalance_advantages
from sleuth.objectives.sspo import SSPOParameters, step_weights

if TYPE_CHECKING:
    from sleuth.objectives.compose import Objective

__all__ = [
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

Slot = Literal["advantage", "reshape", "surrogate", "term"]


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the table.

    Attributes:
        slot: what of plain GRPO it replaces (advantage, surrogate) or adds (reshape, term).
        aggregation: the one it implies; an explicit one wins.
    """

    name: str
    slot: Slot
    summary: str
    paper: str
    formula: str
    parameters: type[BaseModel]
    aggregation: str | None = None

    @property
    def parameter_names(self) -> list[str]:
        """Its parameters as they are written on the command line."""
        return [field.alias or key for key, field in self.parameters.model_fields.items()]


TABLE: dict[str, Entry] = {
    entry.name: entry
    for entry in [
        Entry(
            "grpo",
            "advantage",
            "group-relative advantages; with PPO's clipped surrogate unless another is named, as in Search-R1",
            "arXiv 2402.03300; in search: arXiv 2503.09516",
            "A = (R - mean) / (std + eps);  loss = -min(r A, clip(r, 1 - clip_low, 1 + clip_high) A)",
            _settings.GRPO,
        ),
        Entry(
            "dr_grpo",
            "advantage",
            "no division by deviation or length: hard prompts and long rollouts weigh as they are",
            "arXiv 2503.20783",
            "A = R - mean;  loss summed over tokens / (rollouts · max_length)",
            _settings.Nothing,
            "sum_over_max_length",
        ),
        Entry(
            "rloo",
            "advantage",
            "each rollout against the mean of the others in its group",
            "arXiv 2402.14740",
            "A_i = R_i - mean of R_j over j ≠ i",
            _settings.Nothing,
        ),
        Entry(
            "reinforce_pp",
            "advantage",
            "statistics of the whole batch instead of the group",
            "arXiv 2501.03262",
            "A = (R - mean of batch or group) / (std of batch + eps)",
            _settings.ReinforcePP,
        ),
        Entry(
            "signbalance",
            "advantage",
            "right and wrong by sign alone, balanced in each group: rare successes are not blown up",
            "arXiv 2609.04063",
            "A = +c for right rollouts, -c · n₊ / n₋ for wrong ones",
            _settings.SignBalance,
        ),
        Entry(
            "calibadv",
            "reshape",
            "wrong rollouts keep their good searches, and the answers of a group pull up as much as down",
            "arXiv 2604.18235",
            "for A < 0: search tokens get A (1 - c), c = share of its documents that right rollouts found too;  "
            "in answers: positive A · lambda · |sum A-| / sum A+",
            CalibAdvParameters,
        ),
        Entry(
            "sspo",
            "reshape",
            "a teacher that has seen the evidence weighs the steps of wrong rollouts; for saved rollouts that hold "
            "teacher_logprobs",
            "arXiv 2608.12764",
            "for wrong rollouts: A · min(exp(sign(A) D), 1 + eps), D = sum over the step of log π_teacher - log π_old",
            SSPOParameters,
        ),
        Entry(
            "ppo_clip",
            "surrogate",
            "PPO's clipped ratio, a token at a time: GRPO's own surrogate, with settings of its own",
            "arXiv 1707.06347",
            "loss = -min(r A, clip(r, 1 - clip_low, 1 + clip_high) A)",
            _settings.PPOClip,
        ),
        Entry(
            "dual_clip",
            "surrogate",
            "ppo_clip with a bound on the loss of bad rollouts whose tokens became likely",
            "arXiv 1912.09729",
            "ppo_clip; for A < 0: loss = min(ppo_clip, -clip_max A)",
            _settings.DualClip,
        ),
        Entry(
            "dapo",
            "surrogate",
            "clip-higher, token mean, and groups without signal left out of the step",
            "arXiv 2503.14476",
            "ppo_clip with clip_high > clip_low, over tokens of groups whose rewards are not all equal",
            _settings.DAPO,
            "token_mean",
        ),
        Entry(
            "gspo",
            "surrogate",
            "one ratio a rollout, the geometric mean of its tokens'; its paper uses aggregation=seq_mean_token_mean",
            "arXiv 2507.18071",
            "s = exp(mean over tokens of log r);  loss = -min(s A, clip(s, 1 - clip_low, 1 + clip_high) A)",
            _settings.GSPO,
        ),
        Entry(
            "cispo",
            "surrogate",
            "bounds the weight of a token instead of cutting its gradient",
            "arXiv 2506.13585",
            "loss = -sg(clip(r, ratio_min, ratio_max)) A log π",
            _settings.CISPO,
            "token_mean",
        ),
        Entry(
            "soft_sapo",
            "surrogate",
            "Soft Adaptive Policy Optimization, other libraries' 'sapo': a smooth gate instead of a clip",
            "arXiv 2511.20347",
            "loss = -(4/t) sigmoid(t (r - 1)) A,  t = temperature_pos for A > 0, else temperature_neg",
            _settings.SoftSAPO,
        ),
        Entry(
            "search_sapo",
            "term",
            "Search Agent Policy Optimization: pulls up tokens of good rollouts that became less likely",
            "arXiv 2603.10069",
            "+ gamma · 1[r < tau and A > 0] · (-log r)",
            _settings.SearchSAPO,
        ),
        Entry(
            "llds",
            "term",
            "penalty on likelihood that good rollouts have lost, a turn at a time",
            "arXiv 2512.04220",
            "+ weight · 1[A >= 0] · 1[sum over the turn of -log r > 0] · max(0, -log r)",
            _settings.LLDS,
        ),
        Entry(
            "reference_kl",
            "term",
            "distance to the start model (trainer.kl_coefficient is short for its k3 form)",
            "J. Schulman, 2020; in GRPO: arXiv 2402.03300",
            "+ coefficient · k,  d = log π_ref - log π:  k1 = -d,  k2 = d² / 2,  k3 = exp(d) - d - 1",
            _settings.ReferenceKL,
        ),
        Entry(
            "entropy",
            "term",
            "bonus on the entropy of the next-token distribution",
            "arXiv 1602.01783",
            "- coefficient · H(π), mean over the step's tokens",
            _settings.Entropy,
        ),
    ]
}


def names() -> list[str]:
    """Every registered name."""
    return sorted(TABLE)


def resolve(
    name: str,
    parameters: Mapping[str, Mapping[str, Any]] | None = None,
    aggregation: str | None = None,
    kl_coefficient: float = 0.0,
) -> Objective:
    """The objective that ``name`` (names joined by ``+``) describes.

    Args:
        parameters: settings by the part's name; ``grpo`` stands for what no part replaces, and ``aggregation`` for
            the aggregation's ``max_length``.
        aggregation: a name of :data:`sleuth.objectives.aggregation.AGGREGATIONS`; None: what a part implies, else
            ``token_mean``.
        kl_coefficient: weight of a reference KL (k3).

    Raises:
        UserError: unknown name, part or parameter, two parts for one slot; the message says what to write instead.
    """
    from sleuth.objectives.build import build, check_aggregation

    entries = [_entry(part.strip()) for part in name.split("+")]
    _refuse_clashes(name, entries, aggregation, kl_coefficient)
    given = dict(parameters or {})
    max_length = _max_length(given.pop("aggregation", {}))
    chosen = {entry.name for entry in entries}
    for part in given:
        if part not in chosen and part != "grpo":
            raise UserError(f"parameters for {part!r}, but the objective is {name!r}; add it with + or drop them")
    implied = next((entry for entry in entries if entry.aggregation), None)
    source = implied.name if implied and aggregation is None else None
    chosen_aggregation = aggregation or (implied and implied.aggregation) or "token_mean"
    return build(
        name,
        {entry.name: _parameters(entry, given.get(entry.name, {})) for entry in entries},
        _parameters(TABLE["grpo"], given.get("grpo", {})),
        check_aggregation(chosen_aggregation, max_length, source),
        kl_coefficient,
    )


def _entry(part: str) -> Entry:
    if part == "sapo":
        raise UserError(
            "objective sapo: the name stands for two methods; write search_sapo for Search Agent Policy Optimization "
            "(arXiv 2603.10069), or soft_sapo for Soft Adaptive Policy Optimization (arXiv 2511.20347)"
        )
    if part == "search_e1":
        raise UserError("objective search_e1: Search-E1 is a schedule of training rounds, not an objective")
    if part not in TABLE:
        near = difflib.get_close_matches(part, names(), n=1)
        raise UserError(
            f"objective {part!r} is not known{f', did you mean {near[0]}?' if near else ''}; "
            f"known: {', '.join(names())}"
        )
    return TABLE[part]


def _refuse_clashes(name: str, entries: list[Entry], aggregation: str | None, kl_coefficient: float) -> None:
    for i, second in enumerate(entries):
        for first in entries[:i]:
            if first.name == second.name:
                raise UserError(f"objective {name!r} names {first.name} twice")
            if first.slot == second.slot and first.slot in ("advantage", "surrogate"):
                raise UserError(
                    f"objective {name!r}: {first.name} and {second.name} both set the {first.slot}; keep one of them"
                )
            implied = {first.aggregation, second.aggregation} - {None}
            if aggregation is None and len(implied) == 2:
                raise UserError(
                    f"objective {name!r}: {first.name} implies aggregation {first.aggregation}, {second.name} "
                    f"{second.aggregation}; choose with aggregation="
                )
    if kl_coefficient and any(entry.name == "reference_kl" for entry in entries):
        raise UserError(
            f"objective {name!r}: reference_kl and trainer.kl_coefficient both add a reference KL; keep one of them"
        )


def _max_length(given: Mapping[str, Any]) -> Any:
    for key in given:
        if key != "max_length":
            raise UserError(f"aggregation.{key} is no parameter; aggregation has: max_length")
    return given.get("max_length")


def _parameters(entry: Entry, given: Mapping[str, Any]) -> Any:
    try:
        return entry.parameters(**given)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join([entry.name, *map(str, first["loc"])])
        if first["type"] == "extra_forbidden":
            known = ", ".join(entry.parameter_names) or "none"
            raise UserError(f"{key} is no parameter; {entry.name} has: {known}") from None
        raise UserError(f"{key}={first['input']!r}: {first['msg']}") from None
