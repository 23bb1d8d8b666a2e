"""verl's actor worker, which also counts what a whole optimiser step holds, before it is cut into micro-batches."""

from __future__ import annotations

from typing import Any

from verl.utils import tensordict_utils
from verl.utils.device import get_device_id
from verl.workers.engine_workers import ActorRolloutRefWorker, TrainingWorker

from sleuth.objectives.aggregation import StepTotals
from sleuth.training.verl.losses import ROLLOUT_ADVANTAGES, TOTALS, data_padded


class SearchTrainingWorker(TrainingWorker):
    """Its ``train_batch`` is one optimiser step of one rank."""

    def train_batch(self, data: Any) -> Any:
        """One optimiser step; every rank must call it."""
        totals = StepTotals.of(data_padded(data, "response_mask"), data_padded(data, ROLLOUT_ADVANTAGES)[:, 0])
        totals = totals.all_reduce(get_device_id(), self.engine.get_data_parallel_group())
        counts = (totals.tokens, totals.rollouts, totals.positive_tokens, totals.nonnegative_tokens)
        tensordict_utils.assign_non_tensor(data, **dict(zip(TOTALS, counts, strict=True)))
        return super().train_batch(data)


class SearchActorWorker(ActorRolloutRefWorker):
    """An actor whose training is :class:`SearchTrainingWorker`'s."""

    actor_worker_cls = SearchTrainingWorker
