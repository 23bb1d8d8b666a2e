"""The table of names: what each objective is, where it comes from and which settings it has. Imports no torch."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Any, Literal

from sleuth.errors import UserError
from sleuth.objectives import parameters
from sleuth.objectives.parameters import Parameters

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
    parameters: type[Parameters]
    aggregation: str | None = None

    @property
    def parameter_names(self) -> list[str]:
        """Its parameters as they are written on the command line."""
        return [key for key, _, _ in self.settings]

    @property
    def settings(self) -> list[tuple[str, str, str]]:
        """Each parameter: its name and its default as they are written on the command line, and what it means."""
        return [
            (field.alias or key, _as_written(field.default), field.description or "")
            for key, field in self.parameters.model_fields.items()
        ]


TABLE: dict[str, Entry] = {
    entry.name: entry
    for entry in [
        Entry(
            "grpo",
            "advantage",
            "group-relative advantages; with PPO's clipped surrogate unless another is named, as in Search-R1",
            "arXiv 2402.03300; in search: arXiv 2503.09516",
            "A = (R - mean) / (std + eps);  loss = -min(r A, clip(r, 1 - clip_low, 1 + clip_high) A)",
            parameters.GRPO,
        ),
        Entry(
            "dr_grpo",
            "advantage",
            "no division by deviation or length: hard prompts and long rollouts weigh as they are",
            "arXiv 2503.20783",
            "A = R - mean;  loss summed over tokens / (rollouts · max_length)",
            parameters.Nothing,
            "sum_over_max_length",
        ),
        Entry(
            "rloo",
            "advantage",
            "each rollout against the mean of the others in its group",
            "arXiv 2402.14740",
            "A_i = R_i - mean of R_j over j ≠ i",
            parameters.Nothing,
        ),
        Entry(
            "reinforce_pp",
            "advantage",
            "statistics of the whole batch instead of the group",
            "arXiv 2501.03262",
            "A = (R - mean of batch or group) / (std of batch + eps)",
            parameters.ReinforcePP,
        ),
        Entry(
            "signbalance",
            "advantage",
            "right and wrong by sign alone, balanced in each group: rare successes are not blown up",
            "arXiv 2609.04063",
            "A = +c for right rollouts, -c · n₊ / n₋ for wrong ones",
            parameters.SignBalance,
        ),
        Entry(
            "calibadv",
            "reshape",
            "wrong rollouts keep their good searches, and the answers of a group pull up as much as down",
            "arXiv 2604.18235",
            "for A < 0: search tokens get A (1 - c), c = share of its documents that right rollouts found too;  "
            "in answers: positive A · lambda · |sum A-| / sum A+",
            parameters.CalibAdv,
        ),
        Entry(
            "sspo",
            "reshape",
            "a teacher that has seen the evidence weighs the steps of wrong rollouts",
            "arXiv 2608.12764",
            "for wrong rollouts: A · min(exp(sign(A) D), 1 + eps), D = sum over the step of log π_teacher - log π_old",
            parameters.SSPO,
        ),
        Entry(
            "ppo_clip",
            "surrogate",
            "PPO's clipped ratio, a token at a time: GRPO's own surrogate, with settings of its own",
            "arXiv 1707.06347",
            "loss = -min(r A, clip(r, 1 - clip_low, 1 + clip_high) A)",
            parameters.PPOClip,
        ),
        Entry(
            "dual_clip",
            "surrogate",
            "ppo_clip with a bound on the loss of bad rollouts whose tokens became likely",
            "arXiv 1912.09729",
            "ppo_clip; for A < 0: loss = min(ppo_clip, -clip_max A)",
            parameters.DualClip,
        ),
        Entry(
            "dapo",
            "surrogate",
            "clip-higher, token mean, and groups without signal left out of the step or copied over",
            "arXiv 2503.14476",
            "ppo_clip with clip_high > clip_low, over tokens of groups whose rewards are not all equal",
            parameters.DAPO,
            "token_mean",
        ),
        Entry(
            "gspo",
            "surrogate",
            "one ratio a rollout, the geometric mean of its tokens'; its paper uses aggregation=seq_mean_token_mean",
            "arXiv 2507.18071",
            "s = exp(mean over tokens of log r);  loss = -min(s A, clip(s, 1 - clip_low, 1 + clip_high) A)",
            parameters.GSPO,
        ),
        Entry(
            "cispo",
            "surrogate",
            "bounds the weight of a token instead of cutting its gradient",
            "arXiv 2506.13585",
            "loss = -sg(clip(r, ratio_min, ratio_max)) A log π",
            parameters.CISPO,
            "token_mean",
        ),
        Entry(
            "soft_sapo",
            "surrogate",
            "Soft Adaptive Policy Optimization, other libraries' 'sapo': a smooth gate instead of a clip",
            "arXiv 2511.20347",
            "loss = -(4/t) sigmoid(t (r - 1)) A,  t = temperature_pos for A > 0, else temperature_neg",
            parameters.SoftSAPO,
        ),
        Entry(
            "search_sapo",
            "term",
            "Search Agent Policy Optimization: pulls up tokens of good rollouts that became less likely",
            "arXiv 2603.10069",
            "+ gamma · 1[r < tau and A > 0] · (-log r)",
            parameters.SearchSAPO,
        ),
        Entry(
            "llds",
            "term",
            "penalty on likelihood that good rollouts have lost, a turn at a time",
            "arXiv 2512.04220",
            "+ weight · 1[A >= 0] · 1[sum over the turn of -log r > 0] · max(0, -log r)",
            parameters.LLDS,
        ),
        Entry(
            "reference_kl",
            "term",
            "distance to the start model (trainer.kl_coefficient is short for its k3 form)",
            "J. Schulman, 2020; in GRPO: arXiv 2402.03300",
            "+ coefficient · k,  d = log π_ref - log π:  k1 = -d,  k2 = d² / 2,  k3 = exp(d) - d - 1",
            parameters.ReferenceKL,
        ),
        Entry(
            "entropy",
            "term",
            "bonus on the entropy of the next-token distribution",
            "arXiv 1602.01783",
            "- coefficient · H(π), mean over the step's tokens",
            parameters.Entropy,
        ),
    ]
}


@dataclass(frozen=True, slots=True)
class Schedule:
    """An order of training rounds: listed beside the objectives, since papers name both alike.

    Attributes:
        available: False for one that Sleuth doesn't have yet.
    """

    name: str
    summary: str
    paper: str
    available: bool


SCHEDULES: dict[str, Schedule] = {
    schedule.name: schedule
    for schedule in [
        Schedule(
            "search_e1",
            "rounds of GRPO, each followed by self-distillation on the policy's own rollouts",
            "arXiv 2605.22511",
            available=True,
        ),
    ]
}


def names() -> list[str]:
    """Every registered name."""
    return sorted(TABLE)


def find(name: str) -> Entry:
    """The line of this name.

    Raises:
        UserError: no such objective; the message says what to write instead.
    """
    if name == "sapo":
        raise UserError(
            "objective sapo: the name stands for two methods; write search_sapo for Search Agent Policy Optimization "
            "(arXiv 2603.10069), or soft_sapo for Soft Adaptive Policy Optimization (arXiv 2511.20347)"
        )
    if name in SCHEDULES:
        raise UserError(
            f"objective {name}: it is a schedule of training rounds, not an objective"
            + (f"; write schedule={name}" if SCHEDULES[name].available else "; Sleuth doesn't have it yet")
        )
    if name not in TABLE:
        near = difflib.get_close_matches(name, names(), n=1)
        raise UserError(
            f"objective {name!r} is not known{f', did you mean {near[0]}?' if near else ''}; "
            f"known: {', '.join(names())}"
        )
    return TABLE[name]


def _as_written(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
