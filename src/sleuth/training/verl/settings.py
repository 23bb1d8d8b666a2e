"""Hyper-parameters of Sleuth's losses among verl's settings, and what verl's own settings mean for an objective.

actor_rollout_ref.actor.policy_loss._target_=sleuth.training.verl.settings.SearchPolicyLossConfig
actor_rollout_ref.actor.policy_loss.loss_mode=search_sapo
+actor_rollout_ref.actor.policy_loss.parameters.search_sapo.gamma=0.2
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, cast

from verl.workers.config import PolicyLossConfig

from sleuth.errors import UserError
from sleuth.objectives import resolve
from sleuth.objectives.compose import Objective
from sleuth.objectives.table import TABLE, find
from sleuth.training.verl.registration import LOSSES, OBJECTIVE

AGGREGATIONS = {
    "token-mean": "token_mean",
    "seq-mean-token-mean": "seq_mean_token_mean",
    "seq-mean-token-sum-norm": "sum_over_max_length",
    "seq-mean-token-sum": "sum_over_max_length",
}
"""verl's ``loss_agg_mode`` and ours."""

_KL = {"kl": "k1", "k1": "k1", "mse": "k2", "k2": "k2", "low_var_kl": "k3", "k3": "k3"}


@dataclass
class SearchPolicyLossConfig(PolicyLossConfig):
    """verl's settings of a policy loss, and Sleuth's.

    Attributes:
        objective: with ``loss_mode=search_objective``: names joined by ``+``, such as ``calibadv+search_sapo``.
        parameters: by part, such as ``{"search_sapo": {"gamma": 0.2}}``.
    """

    objective: str | None = None
    parameters: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ObjectiveSettings:
    """What :func:`sleuth.objectives.resolve` takes; plain data that travels to workers.

    Attributes:
        parameters: as JSON, so that settings can be compared and kept.
    """

    name: str
    parameters: str
    aggregation: str

    def resolve(self) -> Objective:
        """The objective.

        Raises:
            UserError: a name or parameter that doesn't exist or doesn't fit.
        """
        return _resolved(self)

    @classmethod
    def of(cls, actor: Any, *, whole: bool = False) -> ObjectiveSettings:
        """Of verl's settings of an actor (its dataclass or the ``DictConfig`` of the same fields).

        Args:
            whole: the loss is Sleuth's as a whole, so that it has verl's KL and entropy in it; else verl adds these.

        Raises:
            UserError: no objective of ours, or a setting that it has no place for.
        """
        loss = actor.policy_loss
        mode, name = loss.get("loss_mode", "vanilla"), loss.get("objective", None)
        if mode == OBJECTIVE:
            if not name:
                raise UserError(
                    f"policy_loss.loss_mode={OBJECTIVE} needs policy_loss.objective, such as calibadv+search_sapo"
                )
        elif mode not in LOSSES:
            raise UserError(
                f"actor_rollout_ref.actor.policy_loss.loss_mode={mode} is none of Sleuth's; write {OBJECTIVE} and "
                f"policy_loss.objective, or one of {', '.join(sorted(LOSSES))}"
            )
        elif name:
            raise UserError(f"policy_loss.objective={name} needs policy_loss.loss_mode={OBJECTIVE}, not {mode}")
        else:
            name = LOSSES[mode]
        parameters = {part: dict(values) for part, values in plain(loss.get("parameters", None) or {}).items()}
        parts = [find(part.strip()).name for part in name.split("+")]
        if whole:
            for part, given in _verls_terms(actor).items():
                if part in parts:
                    raise UserError(f"objective {name}: {part} is in it, and verl's settings add it too; keep one")
                name, parameters[part] = f"{name}+{part}", given
        mode = actor.loss_agg_mode
        if mode not in AGGREGATIONS:
            raise UserError(f"actor.loss_agg_mode={mode} has no counterpart; write one of {', '.join(AGGREGATIONS)}")
        implied = {TABLE[part].aggregation for part in parts} - {None, AGGREGATIONS[mode]}
        if implied:
            raise UserError(
                f"objective {name} wants aggregation {implied.pop()}, but actor.loss_agg_mode={mode}; set it to "
                + next(verls for verls, ours in AGGREGATIONS.items() if ours in _implied(parts))
            )
        if AGGREGATIONS[mode] == "sum_over_max_length":
            length = 1 if mode == "seq-mean-token-sum" else actor.loss_scale_factor
            if length is None:
                raise UserError(f"actor.loss_agg_mode={mode} needs actor.loss_scale_factor, the longest response")
            parameters["aggregation"] = {"max_length": length}
        return cls(name, json.dumps(parameters, sort_keys=True), AGGREGATIONS[mode])


def _implied(parts: list[str]) -> set[str | None]:
    return {TABLE[part].aggregation for part in parts}


def _verls_terms(actor: Any) -> dict[str, dict[str, Any]]:
    terms: dict[str, dict[str, Any]] = {}
    if actor.use_kl_loss:
        if actor.kl_loss_type not in _KL:
            raise UserError(f"actor.kl_loss_type={actor.kl_loss_type}: write one of {', '.join(_KL)}")
        terms["reference_kl"] = {"coefficient": actor.kl_loss_coef, "estimator": _KL[actor.kl_loss_type]}
    if actor.entropy_coeff:
        terms["entropy"] = {"coefficient": actor.entropy_coeff}
    return terms


def plain(settings: Any) -> dict[str, Any]:
    """A mapping of OmegaConf's, or any other, as plain Python."""
    from omegaconf import DictConfig, OmegaConf

    if isinstance(settings, DictConfig):
        return cast(dict[str, Any], OmegaConf.to_container(settings, resolve=True))
    return {key: plain(value) if isinstance(value, Mapping) else value for key, value in settings.items()}


@lru_cache(maxsize=32)
def _resolved(settings: ObjectiveSettings) -> Objective:
    return resolve(settings.name, json.loads(settings.parameters), aggregation=settings.aggregation)
