"""TRL's GRPO trainer with Search Agent Policy Optimization's term on top of its own loss."""

import torch
from trl import GRPOTrainer

from sleuth.objectives import conditional_kl


class SearchSAPOTrainer(GRPOTrainer):
    def _get_per_token_logps_and_entropies(self, *args, **kwargs):
        out = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        if torch.is_grad_enabled():  # the pass that the loss is made of
            self._logp = out[0]
        return out

    def _compute_loss(self, model, inputs):
        loss = super()._compute_loss(model, inputs)
        if not self.model.training:
            return loss
        if "old_per_token_logps" not in inputs:
            raise ValueError("every ratio is 1: set num_iterations=2, or steps_per_generation above the accumulation")
        mask = inputs["completion_mask"] * inputs.get("tool_mask", 1)
        # TRL's own count for loss_type="dapo", its default: an optimiser step's share of the generation batch.
        tokens = inputs["num_items_in_batch"].clamp(min=1) / self.accelerator.num_processes
        tokens = tokens * self.current_gradient_accumulation_steps / self.args.steps_per_generation
        # The line:
        loss = loss + conditional_kl(
            self._logp, inputs["old_per_token_logps"], inputs["advantages"], mask, gamma=0.1, tau=1.0, normalizer=tokens
        )
        return loss
