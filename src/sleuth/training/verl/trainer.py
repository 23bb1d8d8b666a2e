"""verl's trainer ``search_sync``: verl's synchronous one, with an objective of Sleuth's as a whole.

Credit is given where verl computes advantages, since whole groups with their rollouts are at hand there; the loss is
:class:`~sleuth.training.verl.losses.SearchLoss`, and its denominators are those of the whole optimiser step.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
import transfer_queue as tq
from omegaconf import open_dict
from verl.trainer.ppo.utils import Role
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from sleuth.errors import UserError
from sleuth.objectives.compose import Objective
from sleuth.rollouts import write_rollouts
from sleuth.training.verl.agent_settings import SearchSettings, search_settings
from sleuth.training.verl.credit import FIELDS, credit_batch
from sleuth.training.verl.estimators import TRAINER_MARK
from sleuth.training.verl.losses import SearchLoss
from sleuth.training.verl.registration import OBJECTIVE, TRAINER
from sleuth.training.verl.settings import ObjectiveSettings


class SearchSyncTrainer(PPOTrainerSync):
    """See the module.

    Raises:
        UserError: settings of verl's that the objective contradicts.
    """

    def __init__(self, config: Any):
        self._settings = ObjectiveSettings.of(config.actor_rollout_ref.actor, whole=True)
        self._objective = self._settings.resolve()
        self._search = search_settings(config.actor_rollout_ref.rollout)
        check_trainer(config, self._objective, self._search)
        with open_dict(config.algorithm):
            config.algorithm[TRAINER_MARK] = True
        super().__init__(config)

    def _build_replay_buffer(self) -> Any:
        # verl asks for this very name where it means "trainer and sampler share their devices".
        self.trainer_mode = "sync"
        return super()._build_replay_buffer()

    def _init_resource_pool_mgr(self) -> None:
        from sleuth.training.verl.worker import SearchActorWorker

        super()._init_resource_pool_mgr()
        for role in (Role.Actor, Role.ActorRollout, Role.ActorRolloutRef):
            if role in self.role_worker_mapping:
                self.role_worker_mapping[role] = ray.remote(SearchActorWorker)

    def _setup(self) -> None:
        super()._setup()
        self.actor_rollout_wg.set_loss_fn(SearchLoss(self._settings))
        self._teacher = None
        if self._objective.needs_teacher:
            from sleuth.training.verl.teacher_pass import VerlTeacher

            worker = self.actor_rollout_wg
            self._teacher = VerlTeacher(self._search, self.tokenizer, self.config, worker, self._reference_scores)

    def _reference_scores(self, data: Any) -> Any:
        """Log-probs under the start model, as verl has it: a model of its own, or the policy without its adapters."""
        from verl.utils import tensordict_utils

        if self.ref_in_actor:
            tensordict_utils.assign_non_tensor(data, no_lora_adapter=True)
            return self.actor_rollout_wg.compute_log_prob(data)
        return self.ref_policy_wg.compute_ref_log_prob(data)

    def _compute_advantage(self, batch: Any, metrics: dict) -> Any:
        batch = super()._compute_advantage(batch, metrics)
        data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=list(FIELDS))
        padding = [bool(tag.get("is_padding", False)) for tag in batch.tags]
        teacher = self._teacher
        if teacher is not None:
            teacher.ranks = max(self.actor_rollout_wg._dispatch_info["actor"]) + 1
        credited = credit_batch(self._objective, data, padding, teacher)
        metrics.update({f"search/{name}": value for name, value in credited.statistics.items()})
        if self._search.save_rollouts is not None:
            file = Path(self._search.save_rollouts) / f"step-{self.global_steps:05d}.jsonl.zst"
            write_rollouts(file, [replace(t, step=self.global_steps) for t in credited.rollouts])
        return tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=credited.fields)


def check_trainer(config: Any, objective: Objective, search: SearchSettings) -> None:
    """Refuse settings under which the objective would be another one, or none.

    Raises:
        UserError: names the setting and what to set instead.
    """
    algorithm, actor = config.algorithm, config.actor_rollout_ref.actor
    if algorithm.adv_estimator != OBJECTIVE:
        raise UserError(
            f"trainer.v1.trainer_mode={TRAINER} takes advantages from the objective {objective.name}; set "
            f"algorithm.adv_estimator={OBJECTIVE}, not {algorithm.adv_estimator}"
        )
    if algorithm.get("parameters", None) or algorithm.get("aggregation", None):
        raise UserError(
            f"algorithm.parameters and algorithm.aggregation are not read by trainer.v1.trainer_mode={TRAINER}; write "
            "actor_rollout_ref.actor.policy_loss.parameters and actor.loss_agg_mode"
        )
    if algorithm.use_kl_in_reward:
        raise UserError("algorithm.use_kl_in_reward: Sleuth's rewards are those of rollouts; use actor.use_kl_loss")
    if (algorithm.get("rollout_correction", None) or {}).get("bypass_mode", False):
        raise UserError(
            "algorithm.rollout_correction.bypass_mode takes the sampler's log-probs for the trainer's own, and every "
            "ratio would be off by the gap between the two; switch it off"
        )
    if actor.strategy not in ("fsdp", "fsdp2"):
        raise UserError(f"actor.strategy={actor.strategy}: {TRAINER} was written for fsdp and fsdp2; set one of them")
    if objective.zero_variance == "copy":
        raise UserError(
            "zero_variance=copy is not there on verl; set it to mask, or to keep with algorithm.filter_groups, which "
            "samples other questions in their place"
        )
    updates = actor.ppo_epochs * (config.data.train_batch_size // actor.ppo_mini_batch_size)
    if objective.needs_drift and updates < 2:
        raise UserError(
            f"objective {objective.name}: {' and '.join(objective.needs_drift)} works on ratios, and with one update a "
            "batch every ratio is 1; set actor.ppo_mini_batch_size below data.train_batch_size, or actor.ppo_epochs "
            "above 1"
        )
    if objective.needs_teacher:
        if search.teacher is None:
            raise UserError(
                f"objective {objective.name} needs a teacher, and the teacher evidence: sleuth anchors build, then "
                "+actor_rollout_ref.rollout.custom.search.teacher.anchors=FILE"
            )
        if search.teacher.weights == "reference" and not actor.use_kl_loss:
            raise UserError(
                "teacher.weights=reference: verl keeps the start model only with actor.use_kl_loss=true "
                "(actor.kl_loss_coef may be small); set it, or teacher.weights=policy"
            )
