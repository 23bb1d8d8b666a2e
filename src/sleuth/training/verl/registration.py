"""The names that Sleuth adds to verl's registries. A name that somebody else has taken is refused, never replaced."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sleuth.errors import UserError
from sleuth.objectives.table import TABLE

PREFIX = "search_"
OBJECTIVE = "search_objective"
"""As ``loss_mode``: the objective that ``policy_loss.objective`` names. As ``adv_estimator``: its advantages, which
only the trainer ``search_sync`` can give."""
AGENT_LOOP = "search_tags"
TRAINER = "search_sync"

# verl adds these to any loss itself: actor.use_kl_loss and actor.entropy_coeff.
_OF_VERL = ("reference_kl", "entropy")


def registered_name(part: str) -> str:
    """The name in verl's registries of a part of the table: ``search_`` in front, once."""
    return part if part.startswith(PREFIX) else PREFIX + part


ESTIMATORS = {registered_name(name): name for name, entry in TABLE.items() if entry.slot == "advantage"}
"""Names for ``algorithm.adv_estimator``, and the parts that they stand for."""

LOSSES = {
    registered_name(name): name
    for name, entry in TABLE.items()
    if entry.slot in ("surrogate", "term") and name not in _OF_VERL
}
"""Names for ``actor_rollout_ref.actor.policy_loss.loss_mode``, and the parts that they stand for."""


def register() -> None:
    """Add every name. May be called again.

    Raises:
        UserError: a name is taken.
    """
    from verl.trainer.ppo.core_algos import (
        ADV_ESTIMATOR_REGISTRY,
        POLICY_LOSS_REGISTRY,
        register_adv_est,
        register_policy_loss,
    )

    from sleuth.training.verl.estimators import estimator
    from sleuth.training.verl.losses import policy_loss

    for name in (*ESTIMATORS, OBJECTIVE):
        _add(ADV_ESTIMATOR_REGISTRY, name, estimator(ESTIMATORS.get(name)), register_adv_est, "adv_estimator")
    for name in (*LOSSES, OBJECTIVE):
        _add(POLICY_LOSS_REGISTRY, name, policy_loss(LOSSES.get(name)), register_policy_loss, "loss_mode")

    from verl.experimental.agent_loop.agent_loop import _agent_loop_registry

    target = {"_target_": "sleuth.training.verl.agent_loop.SearchTagsLoop"}
    if _agent_loop_registry.get(AGENT_LOOP, target) != target:
        raise UserError(_taken("agent loop", AGENT_LOOP, _agent_loop_registry[AGENT_LOOP]))
    _agent_loop_registry[AGENT_LOOP] = target

    from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY, register_trainer

    from sleuth.training.verl.trainer import SearchSyncTrainer

    _add(TRAINER_REGISTRY, TRAINER, SearchSyncTrainer, register_trainer, "trainer_mode")


def _add(
    registry: Mapping[str, Any], name: str, ours: Any, decorator: Callable[[str], Callable[[Any], Any]], what: str
) -> None:
    there = registry.get(name)
    if there is None:
        decorator(name)(ours)
    elif not is_ours(there):
        raise UserError(_taken(what, name, there))


def is_ours(registered: Any) -> bool:
    """Whether something in a registry is Sleuth's."""
    return str(getattr(registered, "__module__", "")).startswith("sleuth.")


def _taken(what: str, name: str, there: Any) -> str:
    return f"verl's {what} {name} is already {there!r}; unload whatever registered it (VERL_USE_EXTERNAL_MODULES?)"
