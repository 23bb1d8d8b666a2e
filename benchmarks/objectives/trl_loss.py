"""TRL's own loss on log-probs that are given, not computed by a model."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import trl
from torch import Tensor


class TRLLoss:
    """``GRPOTrainer._compute_loss`` itself, unchanged, on one batch that is a whole optimiser step.

    The method reads the trainer that it is bound to, so one that holds just what it reads does.

    Args:
        loss_type: TRL's name.
        level: ``importance_sampling_level``, ``token`` or ``sequence``.
        beta: weight of the reference KL.
        low, high: ``epsilon`` and ``epsilon_high``.
        delta: bound of the two-sided clip, or None.
        max_length: ``max_completion_length``, which ``dr_grpo`` divides by.
    """

    def __init__(
        self,
        loss_type: str = "grpo",
        *,
        level: str = "token",
        beta: float = 0.0,
        low: float = 0.2,
        high: float = 0.2,
        delta: float | None = None,
        max_length: int = 4096,
    ):
        one_process = SimpleNamespace(
            num_processes=1, gather=lambda x: x, reduce=lambda x, reduction: x, gather_for_metrics=lambda x: x
        )
        self._trainer = SimpleNamespace(
            aux_loss_enabled=False,
            top_entropy_quantile=1.0,
            off_policy_mask_threshold=None,
            importance_sampling_level=level,
            beta=beta,
            loss_type=loss_type,
            epsilon_low=low,
            epsilon_high=high,
            args=SimpleNamespace(
                delta=delta,
                use_bias_correction_kl=False,
                sapo_temperature_pos=1.0,
                sapo_temperature_neg=1.05,
                steps_per_generation=1,
            ),
            use_vllm=False,
            vllm_importance_sampling_correction=False,
            model=SimpleNamespace(training=True),
            current_gradient_accumulation_steps=1,
            max_completion_length=max_length,
            accelerator=one_process,
            _entropy_bonus_enabled=False,
        )

    def __call__(self, logp: Tensor, entropy: Tensor, inputs: dict[str, Any]) -> Tensor:
        """The loss, a scalar.

        Args:
            logp: (B, T) with gradient. ``entropy``: (B, T), which TRL logs.
            inputs: what TRL's trainer hands over, see :func:`inputs_of`.
        """
        self._trainer._metrics = {"train": defaultdict(list)}
        self._trainer._get_per_token_logps_and_entropies = lambda *args, **kwargs: (logp, entropy, None)
        return trl.GRPOTrainer._compute_loss(self._trainer, None, inputs)


def inputs_of(old_logp: Tensor, advantages: Tensor, mask: Tensor, ref_logp: Tensor | None = None) -> dict[str, Any]:
    """A batch as TRL's trainer hands it to the loss.

    Args:
        old_logp, ref_logp: (B, T). ``advantages``: (B,) or (B, T).
        mask: (B, T), 1 for policy tokens.
    """
    completion = mask.new_ones(mask.shape).long()
    return {
        "prompt_ids": completion[:, :1],
        "prompt_mask": completion[:, :1],
        "completion_ids": completion,
        "completion_mask": completion,
        "tool_mask": mask.long(),
        "advantages": advantages,
        "old_per_token_logps": old_logp,
        "ref_per_token_logps": ref_logp,
        "num_items_in_batch": mask.sum(),
    }
