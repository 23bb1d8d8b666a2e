"""Sleuth's objectives as verl's losses: a function for its registry, and a whole actor loss for our trainer.

verl sums the losses of micro-batches and averages gradients over ranks. So every token has its share of the optimiser
step's loss, counted over all ranks, times the number of ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from sleuth.errors import UserError
from sleuth.objectives.aggregation import StepTotals
from sleuth.objectives.compose import Objective, Surrogate, TokenLoss
from sleuth.objectives.table import TABLE
from sleuth.objectives.tokens import Tokens
from sleuth.training.verl.settings import ObjectiveSettings

ROLLOUT_ADVANTAGES, ANSWER, SEARCHES = "search_rollout_advantages", "search_answer", "search_searches"
"""Fields of a batch that the trainer adds: (B, 1), (B, T) and (B, 1)."""
TOTALS = ("search_tokens", "search_rollouts", "search_positive_tokens", "search_nonnegative_tokens")
"""Counts of an optimiser step that our worker adds, as of :class:`StepTotals`."""


# In verl's registry


def policy_loss(part: str | None) -> Callable[..., tuple[Tensor, dict[str, float]]]:
    """The function for verl's registry.

    Args:
        part: a surrogate or term of the table; None: what ``policy_loss.objective`` names.
    """

    def search_loss(
        old_log_prob: Tensor,
        log_prob: Tensor,
        advantages: Tensor,
        response_mask: Tensor,
        loss_agg_mode: str = "token-mean",
        config: Any = None,
        rollout_is_weights: Tensor | None = None,
        **others: Any,
    ) -> tuple[Tensor, dict[str, float]]:
        """A micro-batch's loss, times the number of ranks, and metrics; all tensors (B, T).

        Raises:
            UserError: the objective needs what verl gives no registered loss.
        """
        objective = ObjectiveSettings.of(config).resolve()
        check_registered(objective)
        tokens = Tokens.build(log_prob, old_log_prob, advantages, response_mask)
        step = config.global_batch_info
        of_batch = StepTotals.of(response_mask)
        totals = StepTotals(
            step.get("batch_num_tokens") or of_batch.tokens,
            step.get("global_batch_size") or of_batch.rollouts,
            None,
            None,
        )
        result = _weighted(objective, rollout_is_weights).token_loss(tokens, totals)
        return result.loss.sum() * step.get("dp_size", 1), _metrics(tokens, result)

    search_loss.__name__ = f"search_{part or 'objective'}"
    return search_loss


def check_registered(objective: Objective) -> None:
    """Refuse what the loss of verl's registry can't do: it sees tokens and advantages of a micro-batch, no more.

    Raises:
        UserError: names the part and the way out.
    """
    trainer = "set trainer.v1.trainer_mode=search_sync algorithm.adv_estimator=search_objective"
    parts = objective.name.split("+")
    for part in parts:
        if TABLE[part].slot in ("advantage", "reshape"):
            raise UserError(
                f"{part} works on whole groups of rollouts, which no loss of verl's registry sees; {trainer}"
            )
        if part in ("reference_kl", "entropy"):
            raise UserError(f"verl adds {part} itself: actor.use_kl_loss, actor.kl_loss_coef; actor.entropy_coeff")
    for term in objective.terms:
        if term.normaliser in ("positive_tokens", "nonnegative_tokens"):
            raise UserError(
                f"{term.name} is divided by the step's {term.normaliser.replace('_', ' ')}, which no loss of verl's "
                f"registry can count; {trainer}, or another {term.name}.normalizer (policy_loss.parameters)"
            )
    if objective.needs_answers:
        raise UserError(f"llds.ma needs answers and searches, which no loss of verl's registry sees; {trainer}")
    if objective.zero_variance != "keep":
        raise UserError(
            "zero_variance leaves groups out of the step, which no loss of verl's registry can; "
            f"set it to keep and use verl's algorithm.filter_groups, or {trainer}"
        )


def _weighted(objective: Objective, weights: Tensor | None) -> Objective:
    """The objective with verl's importance weights of sampler against trainer on its surrogate, terms as they are."""
    if weights is None:
        return objective
    surrogate = objective.surrogate

    def weighted(tokens: Tokens) -> tuple[Tensor, Tensor]:
        loss, clipped = surrogate(tokens)
        return loss * torch.where(tokens.mask, weights, 0.0), clipped

    chosen: Surrogate = weighted
    return replace(objective, surrogate=chosen)


@torch.no_grad()
def _metrics(tokens: Tokens, result: TokenLoss) -> dict[str, float]:
    """Under the names that verl's own losses have; means over the micro-batch's tokens."""
    count = tokens.mask.sum().clamp(min=1)
    return {
        "actor/pg_clipfrac": (result.clipped.sum() / count).item(),
        "actor/ppo_kl": (-tokens.log_ratio.sum() / count).item(),
        "actor/dropped_tokens": float(tokens.dropped),
    }


# In our trainer


@dataclass(frozen=True)
class SearchLoss:
    """verl's actor loss as a whole, for ``set_loss_fn``; every count is the optimiser step's.

    Attributes:
        settings: of the objective, verl's KL and entropy in it.
    """

    settings: ObjectiveSettings

    def __call__(self, model_output: Any, data: Any, dp_group: Any = None) -> tuple[Tensor, dict[str, Any]]:
        """Loss of a micro-batch, times the number of ranks, and metrics that add up over micro-batches.

        Args:
            model_output: ``log_probs`` and perhaps ``entropy``, nested over prompt and response.
            data: the micro-batch, with :data:`TOTALS` and :data:`ROLLOUT_ADVANTAGES`.
        """
        from verl.utils.metric import AggregationType, Metric
        from verl.workers.utils.padding import no_padding_2_padding

        objective = self.settings.resolve()
        log_prob = no_padding_2_padding(model_output["log_probs"], data)
        entropy = model_output.get("entropy")
        totals = StepTotals(*(int(data[name]) for name in TOTALS))
        weights = padded(data, "rollout_is_weights")
        tokens = Tokens.build(
            log_prob,
            data_padded(data, "old_log_probs"),
            data_padded(data, "advantages"),
            data_padded(data, "response_mask"),
            padded(data, "ref_log_prob") if objective.kl_coefficient else None,
            rollout_advantages=data_padded(data, ROLLOUT_ADVANTAGES)[:, 0],
            entropy=None if entropy is None else no_padding_2_padding(entropy, data),
            answer=padded(data, ANSWER),
            searches=None if SEARCHES not in data else data_padded(data, SEARCHES)[:, 0],
        )
        result = _weighted(objective, weights).token_loss(tokens, totals)
        ranks = int(data["dp_size"])
        loss = result.loss.sum() * ranks
        metrics: dict[str, Any] = {
            name: Metric(value=value, aggregation=AggregationType.MEAN)
            for name, value in _metrics(tokens, result).items()
        }
        # Averaged over ranks, so each of them has to be as large as the loss is.
        metrics["actor/pg_loss"] = Metric(value=loss.detach(), aggregation=AggregationType.SUM)
        for name, term in result.terms.items():
            metrics[f"actor/term/{name}"] = Metric(value=term.sum() * ranks, aggregation=AggregationType.SUM)
        return loss, metrics


def padded(data: Any, name: str) -> Tensor | None:
    """(B, T) of a field, right-padded with 0; None where the batch has no such field."""
    if name not in data:
        return None
    values = data[name]
    return torch.nested.to_padded_tensor(values, 0) if values.is_nested else values


def data_padded(data: Any, name: str) -> Tensor:
    """:func:`padded` of a field that must be there.

    Raises:
        ValueError: it isn't.
    """
    values = padded(data, name)
    if values is None:
        raise ValueError(f"the batch has no {name}: is trainer.v1.trainer_mode=search_sync?")
    return values
