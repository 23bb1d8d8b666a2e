"""Sleuth's objectives in SkyRL's two registries: an advantage estimator and a policy loss.

SkyRL trains on CUDA alone. Its registries, its scaling of advantages and its corrections are tested against these
functions on a CPU; its trainer has not been run with them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from sleuth.errors import UserError
from sleuth.objectives import resolve
from sleuth.objectives.compose import Objective
from sleuth.objectives.groups import group_numbers
from sleuth.objectives.table import TABLE
from sleuth.objectives.tokens import Tokens

NAME = "search_objective"
"""For ``trainer.algorithm.advantage_estimator`` and ``trainer.algorithm.policy_loss_type``."""

REDUCTIONS = {
    "token_mean": "token_mean",
    "sequence_mean": "seq_mean_token_mean",
    "seq_mean_token_sum_norm": "sum_over_max_length",
}
"""SkyRL's ``loss_reduction`` and our aggregation."""


def register(
    objective: str,
    parameters: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    reduction: str,
    rollouts_per_update: int | None = None,
) -> None:
    """Add the objective to both registries under :data:`NAME`. Call it before SkyRL's ``initialize_ray``.

    Args:
        objective: names joined by ``+``, such as ``signbalance+search_sapo``.
        parameters: by part, such as ``{"search_sapo": {"gamma": 0.2}}``.
        reduction: what ``trainer.algorithm.loss_reduction`` will be.
        rollouts_per_update: ``policy_mini_batch_size * n_samples_per_prompt``; an objective with
            ``search_sapo`` needs it, since SkyRL scales advantages and nothing else.

    Raises:
        UserError: what SkyRL's registries can't do, another reduction, or a name that is taken.
    """
    from skyrl.backends.skyrl_train.utils.ppo_utils import AdvantageEstimatorRegistry, PolicyLossRegistry

    functions = (
        (AdvantageEstimatorRegistry, estimator(objective, parameters, reduction)),
        (PolicyLossRegistry, policy_loss(objective, parameters, reduction, rollouts_per_update)),
    )
    for registry, _ in functions:
        if NAME in registry.list_available():
            raise UserError(f"SkyRL already has a {NAME}: register one objective a process, once")
    for registry, function in functions:
        registry.register(NAME, function)


def estimator(
    objective: str, parameters: Mapping[str, Mapping[str, Any]] | None, reduction: str
) -> Callable[..., tuple[Tensor, Tensor]]:
    """The function for SkyRL's registry of advantage estimators."""
    resolved = _resolve(objective, parameters, reduction)

    def search_advantage(
        token_level_rewards: Tensor, response_mask: Tensor, index: Sequence[Any], **others: Any
    ) -> tuple[Tensor, Tensor]:
        """(advantages, returns), both (B, T): one value a rollout at every response token.

        A rollout without a response token has failed: it has no part in its group's statistics.
        """
        mask = response_mask.bool()
        rewards = token_level_rewards.float().sum(-1)
        spread = resolved.advantages(rewards, group_numbers(index).to(rewards.device), mask.any(-1))[:, None] * mask
        return spread, spread

    return search_advantage


def policy_loss(
    objective: str,
    parameters: Mapping[str, Mapping[str, Any]] | None,
    reduction: str,
    rollouts_per_update: int | None,
) -> Callable[..., tuple[Tensor, dict[str, float]]]:
    """The function for SkyRL's registry of policy losses.

    The advantages come as ``A · share``, with each token's share of the update's loss, and losses are summed. A
    surrogate grows with A, so it needs no more; a term doesn't, so its share is worked out from the settings.
    """
    resolved = _resolve(objective, parameters, reduction)
    if resolved.terms and not rollouts_per_update:
        raise UserError(
            f"objective {objective} needs rollouts_per_update: policy_mini_batch_size times n_samples_per_prompt"
        )

    def search_loss(
        log_probs: Tensor,
        old_log_probs: Tensor,
        advantages: Tensor,
        config: Any,
        loss_mask: Tensor | None = None,
        rollout_logprobs: Tensor | None = None,
    ) -> tuple[Tensor, dict[str, float]]:
        """A micro-batch's loss and metrics; all tensors (B, T).

        Raises:
            UserError: the run's settings are not those that the objective was registered for.
        """
        from skyrl.backends.skyrl_train.utils.off_policy_correction_utils import apply_off_policy_correction

        _check_settings(config, reduction)
        mask = torch.ones_like(log_probs) if loss_mask is None else loss_mask
        share: Tensor | float = _share(mask, config, rollouts_per_update or 0) if resolved.terms else 1.0
        tokens = Tokens.build(log_probs, old_log_probs, advantages / share, mask)
        loss, clipped = resolved.surrogate(tokens)
        loss, corrected, metrics = apply_off_policy_correction(
            loss, old_log_probs, rollout_logprobs, mask, config.off_policy_correction
        )
        count = tokens.mask.sum().clamp(min=1)
        metrics = {
            **metrics,
            "clip_ratio": (clipped.sum() / count).item(),
            "dropped_tokens": float(tokens.dropped),
        }
        for term in resolved.terms:
            loss = loss + term.weight * term.loss(tokens)
        return (loss * share * corrected).sum(), metrics

    return search_loss


def _resolve(name: str, parameters: Mapping[str, Mapping[str, Any]] | None, reduction: str) -> Objective:
    if reduction not in REDUCTIONS:
        raise UserError(f"loss_reduction={reduction} has no counterpart; write one of {', '.join(REDUCTIONS)}")
    given: dict[str, Any] = dict(parameters or {})
    if reduction == "seq_mean_token_sum_norm":
        given["aggregation"] = {"max_length": 1}  # the real one comes with SkyRL's settings
    objective = resolve(name, given, aggregation=REDUCTIONS[reduction])
    _check(objective, reduction)
    return objective


def _check(objective: Objective, reduction: str) -> None:
    parts = objective.name.split("+")
    for part in parts:
        if TABLE[part].slot == "reshape":
            raise UserError(f"{part} works on turns and documents, which no function of SkyRL's registries sees")
        if part in ("reference_kl", "entropy"):
            raise UserError(f"SkyRL adds {part} itself: algorithm.use_kl_loss, algorithm.use_entropy_loss")
        if part == "signbalance" and reduction != "sequence_mean":
            raise UserError(
                "signbalance weighs rollouts by their policy tokens, which no estimator of SkyRL's sees; "
                "set loss_reduction=sequence_mean, where all weigh the same"
            )
        implied = TABLE[part].aggregation
        if implied not in (None, REDUCTIONS[reduction]):
            wanted = next(theirs for theirs, ours in REDUCTIONS.items() if ours == implied)
            raise UserError(f"{part} wants loss_reduction={wanted}, not {reduction}")
    for term in objective.terms:
        if term.normaliser != "aggregation":
            raise UserError(
                f"{term.name} is divided by the update's {term.normaliser.replace('_', ' ')}, which no loss of SkyRL's "
                "registry can count; "
                + ("set its normalizer to aggregation" if term.name == "search_sapo" else "use TRL or verl for it")
            )
        if reduction == "token_mean":
            raise UserError(
                f"{term.name} needs the tokens of the whole update under loss_reduction=token_mean, which no loss of "
                "SkyRL's registry sees; set loss_reduction=sequence_mean or seq_mean_token_sum_norm"
            )
    if objective.needs_answers:
        raise UserError("llds.ma needs answers and searches, which no loss of SkyRL's registry sees")
    if objective.zero_variance != "keep":
        raise UserError(
            "zero_variance leaves groups out of the update; set it to keep and use SkyRL's "
            "algorithm.zero_variance_filter"
        )


def _check_settings(config: Any, reduction: str) -> None:
    if config.loss_reduction != reduction:
        raise UserError(
            f"trainer.algorithm.loss_reduction={config.loss_reduction}, but the objective was registered for "
            f"{reduction}; make them the same"
        )
    if config.advantage_batch_normalize:
        raise UserError("trainer.algorithm.advantage_batch_normalize changes advantages; set it to false")


def _share(mask: Tensor, config: Any, rollouts: int) -> Tensor:
    """(B, 1) or (1, 1): what SkyRL multiplies advantages by."""
    if config.loss_reduction == "sequence_mean":
        return 1 / (rollouts * mask.sum(-1, keepdim=True).clamp(min=1))
    return mask.new_full((1, 1), 1 / (rollouts * config.max_seq_len), dtype=torch.float32)
