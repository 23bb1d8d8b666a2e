"""Advantages for verl's registry: those that rewards and groups alone decide."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from sleuth.errors import UserError
from sleuth.objectives import resolve
from sleuth.objectives.groups import group_numbers
from sleuth.training.verl.settings import AGGREGATIONS, plain

TRAINER_MARK = "search_sync"
"""Set in ``algorithm`` by the trainer that replaces the placeholder of ``search_objective``."""


def estimator(part: str | None) -> Callable[..., tuple[Tensor, Tensor]]:
    """The function for verl's registry.

    Args:
        part: a name of the table in the slot of advantages; None: the placeholder ``search_objective``.
    """

    def search_advantage(
        token_level_rewards: Tensor,
        response_mask: Tensor,
        config: Any = None,
        index: Sequence[Any] | None = None,
        **others: Any,
    ) -> tuple[Tensor, Tensor]:
        """(advantages, returns), both (B, T): one value a rollout at its policy tokens.

        A rollout without a policy token has failed: it has no part in its group's statistics. A reward counts wherever
        in its row it stands, behind a passage too.
        """
        if index is None:
            raise UserError("Sleuth's advantages compare rollouts of one prompt, and the batch has no uid")
        mask = response_mask.bool()
        rewards = token_level_rewards.float().sum(-1)
        config = config if config is not None else {}
        if part is None:
            if not config.get(TRAINER_MARK, False):
                raise UserError(
                    "algorithm.adv_estimator=search_objective needs trainer.v1.trainer_mode=search_sync; with another "
                    "trainer name the advantage itself, such as search_grpo"
                )
            return _spread(rewards, mask)
        return _spread(_advantages(part, config, rewards, mask, index), mask)

    search_advantage.__name__ = f"search_{part or 'objective'}"
    return search_advantage


def _advantages(part: str, config: Mapping[str, Any], rewards: Tensor, mask: Tensor, index: Sequence[Any]) -> Tensor:
    aggregation = config.get("aggregation", "token-mean")
    if aggregation not in AGGREGATIONS:
        raise UserError(f"algorithm.aggregation={aggregation}: must be one of {', '.join(AGGREGATIONS)}")
    ours = AGGREGATIONS[aggregation]
    parameters = plain(config.get("parameters", None) or {})
    if ours == "sum_over_max_length":
        parameters = {**parameters, "aggregation": {"max_length": 1}}
    objective = resolve(part, parameters, aggregation=ours)
    return objective.advantages(rewards, group_numbers(index).to(rewards.device), mask.any(-1), mask.sum(-1))


def _spread(values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    spread = values[:, None] * mask
    return spread, spread
