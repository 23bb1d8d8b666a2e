"""verl's whole actor loss on a batch of ours, for the tests that compare with it. Needs verl."""

import torch
from tensordict import TensorDict
from verl.utils import tensordict_utils
from verl.workers.config import FSDPActorConfig, PolicyLossConfig
from verl.workers.utils.losses import ppo_loss


def actor_config(loss_mode="vanilla", **settings):
    """verl's settings of an actor; what isn't named is verl's default."""
    return FSDPActorConfig(
        rollout_n=4, ppo_micro_batch_size_per_gpu=1, policy_loss=PolicyLossConfig(loss_mode=loss_mode), **settings
    )


def actor_loss(config, logp, old, advantages, mask, ref=None, entropy=None, step_mask=None, ranks=1):
    """(loss, its gradient by ``logp``, verl's metrics) by the function that verl's workers call.

    Args:
        advantages: (B,) or (B, T); ``mask``: (B, T) bool.
        step_mask: (rows, T) of the whole update, where this batch is a part of it; None: the batch is all of it.
        ranks: over which verl averages gradients.
    """
    leaf = logp.detach().clone().requires_grad_()
    step_mask = mask if step_mask is None else step_mask
    rows, length = mask.shape
    spread = advantages if advantages.dim() == 2 else advantages[:, None].expand(rows, length)
    fields = {
        "prompts": torch.zeros(rows, 1, dtype=torch.long),
        "responses": torch.zeros(rows, length, dtype=torch.long),
        "response_mask": mask.long(),
        "old_log_probs": old,
        "advantages": spread * mask,
    }
    if ref is not None:
        fields["ref_log_prob"] = ref
    data = TensorDict({name: _nested(value) for name, value in fields.items()}, batch_size=rows)
    tensordict_utils.assign_non_tensor(
        data, dp_size=ranks, batch_num_tokens=int(step_mask.sum()), global_batch_size=len(step_mask)
    )
    output = {"log_probs": _nested(_as_the_model_gives_it(leaf))}
    if entropy is not None:
        output["entropy"] = _nested(_as_the_model_gives_it(entropy))
    loss, metrics = ppo_loss(config, output, data)
    (grad,) = torch.autograd.grad(loss, leaf)
    return loss.detach(), grad, metrics


def _as_the_model_gives_it(values):
    """Behind a prompt of one token, each position holds what belongs to the next token; the last holds nothing."""
    return torch.cat([values, torch.zeros_like(values[:, :1])], 1)


def _nested(values):
    return torch.nested.as_nested_tensor(list(values), layout=torch.jagged)
