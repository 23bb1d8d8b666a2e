"""What other trainers call the statistics of :mod:`sleuth.diagnostics.names`.

verl's names are those of 0.9 and, where they differ, of the 0.1 that Search-R1 carries; TRL's are those of 1.16.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from sleuth.diagnostics.history import number
from sleuth.diagnostics.names import is_known


def _same(value: float) -> float:
    return value


Translation = tuple[str, Callable[[float], float]]

_VERL: dict[str, Translation] = {
    "critic/score/mean": ("reward", _same),  # before a KL penalty, which critic/rewards/mean has in it
    "critic/rewards/mean": ("reward", _same),
    "actor/entropy": ("entropy", _same),
    "actor/entropy_loss": ("entropy", _same),  # 0.1: the mean entropy, under this name
    "actor/grad_norm": ("grad_norm", _same),
    "actor/lr": ("lr", _same),
    "actor/loss": ("loss", _same),
    "actor/pg_loss": ("loss", _same),
    "actor/kl_loss": ("kl", _same),
    "actor/ppo_kl": ("ratio/mean_log", lambda kl: -kl),  # mean of old minus new log-prob
    "actor/pg_clipfrac": ("ratio/clipped", _same),
    "response_length/clip_ratio": ("share/truncated", _same),
    "response/aborted_ratio": ("share/aborted", _same),
    "env/finish_ratio": ("share/no_answer", lambda finished: 1.0 - finished),
    "env/ratio_of_valid_action": ("format", _same),
    "env/number_of_valid_search": ("searches", _same),
    "env/number_of_actions/mean": ("turns", _same),
    "num_turns/mean": ("turns", _same),
}

_TRL: dict[str, Translation] = {
    "reward": ("reward", _same),
    "loss": ("loss", _same),
    "entropy": ("entropy", _same),
    "grad_norm": ("grad_norm", _same),
    "learning_rate": ("lr", _same),
    "kl": ("kl", _same),
    "clip_ratio/region_mean": ("ratio/clipped", _same),
    "clip_ratio": ("ratio/clipped", _same),  # before 0.18
    "completions/clipped_ratio": ("share/truncated", _same),
    "tools/call_frequency": ("searches", _same),
    "frac_reward_zero_std": ("zero_variance_groups", _same),
}

TABLES: dict[str, dict[str, Translation]] = {"verl": _VERL, "trl": _TRL, "sleuth": {}}
"""Engine → its name → ours. Of several names for one of ours the first that a record has counts."""

ENGINES = {"sleuth": "Sleuth", "verl": "verl", "trl": "TRL", "rollouts": "saved rollouts"}
"""Where records may come from, as it is written."""


def engine_of(names: set[str], prefixes: Collection[str] = ()) -> str | None:
    """Whose log has these names; None if nobody's that we know.

    Args:
        prefixes: what trackers had put before them. Of TRL's Trainer that is ``train/``, so that ``train/reward`` alone
            is TRL's.
    """
    if any(name.startswith(("actor/", "critic/")) for name in names):
        return "verl"
    if names & {"frac_reward_zero_std", "completions/mean_length", "clip_ratio/region_mean", "completion_length"}:
        return "trl"
    if "train/" in prefixes and names & _TRL.keys():
        return "trl"
    known = {name for name in names if is_known(name)}
    return "sleuth" if "reward" in known or any(name.startswith("ratio/") for name in known) else None


def translate(row: Mapping[str, Any], engine: str) -> dict[str, Any]:
    """A row of another trainer's log as a step's record; what has no counterpart is left out.

    Names that are ours already (those that :class:`sleuth.training.drift_callback.DriftCallback` logs) stay.
    """
    record: dict[str, Any] = {}
    for name, (ours, convert) in TABLES[engine].items():
        if name in row and ours not in record:
            value = row[name]
            record[ours] = value if number(value) is None else convert(float(value))
    for name, value in row.items():
        if name not in TABLES[engine] and name not in record and is_known(name):
            record[name] = value
    if engine == "trl" and "zero_variance_groups" in record:
        record["groups"] = 1  # TRL logs the share of groups, not their number
    return record
