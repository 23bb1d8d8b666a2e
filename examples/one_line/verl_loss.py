"""verl's PPO loss with Search Agent PO's term, as a policy loss of verl's registry; no fork of verl.

    export PYTHONPATH=examples/one_line VERL_USE_EXTERNAL_MODULES=verl_loss      # on every node, before Ray starts
    python -m verl.trainer.main_ppo actor_rollout_ref.actor.policy_loss.loss_mode=vanilla_conditional_kl …

The term works on ratios, so a batch needs more than one update: actor_rollout_ref.actor.ppo_mini_batch_size below
data.train_batch_size, or actor_rollout_ref.actor.ppo_epochs above 1.
"""

from verl.trainer.ppo.core_algos import get_policy_loss_fn, register_policy_loss

from sleuth.objectives import conditional_kl


@register_policy_loss("vanilla_conditional_kl")  # a name of its own: verl overwrites a taken one without a word
def vanilla_conditional_kl(old_log_prob, log_prob, advantages, response_mask, config, **others):
    loss, metrics = get_policy_loss_fn("vanilla")(
        old_log_prob, log_prob, advantages, response_mask, config=config, **others
    )
    # verl sums over micro-batches and averages over ranks, so the count is that of the whole update, a rank's share.
    tokens = config.global_batch_info["batch_num_tokens"] / config.global_batch_info["dp_size"]
    # The line:
    loss = loss + conditional_kl(
        log_prob, old_log_prob, advantages, response_mask, gamma=0.1, tau=1.0, normalizer=tokens
    )
    return loss, metrics
