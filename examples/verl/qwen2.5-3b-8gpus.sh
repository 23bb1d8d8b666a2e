#!/usr/bin/env bash
# Qwen2.5-3B learns to search on one machine with 8 GPUs: verl, vLLM, Search Agent Policy Optimization on top of CalibAdv.
#
#   sleuth data convert train.jsonl train.parquet --to verl      (and dev.parquet)
#   sleuth serve INDEX --port 8000                               the retriever, anywhere that the workers reach
#   TRAIN=train.parquet DEV=dev.parquet RETRIEVER=http://host:8000 bash qwen2.5-3b-8gpus.sh
#
# Any setting may be given again behind it: bash qwen2.5-3b-8gpus.sh trainer.total_training_steps=20
# CHECK=1 only checks: verl's configuration, the objective, the agent loop and that the retriever answers.
set -euo pipefail
: "${TRAIN:?a file of sleuth data convert --to verl}" "${DEV:?the same for validation}" "${RETRIEVER:?URL of sleuth serve}"
MODEL=${MODEL:-Qwen/Qwen2.5-3B-Instruct}
OUTPUT=${OUTPUT:-runs/verl/qwen2.5-3b}

actor=actor_rollout_ref.actor
loss=$actor.policy_loss
rollout=actor_rollout_ref.rollout
search=$rollout.custom.search

settings=(
  # The objective. Another one: $loss.objective=signbalance+llds, say; its parts' settings under $loss.parameters.
  trainer.v1.trainer_mode=search_sync
  algorithm.adv_estimator=search_objective
  $loss._target_=sleuth.training.verl.settings.SearchPolicyLossConfig
  $loss.loss_mode=search_objective
  +$loss.objective=calibadv+search_sapo
  +$loss.parameters.search_sapo.gamma=0.1
  $actor.loss_agg_mode=token-mean
  $actor.use_kl_loss=true
  $actor.kl_loss_coef=0.001
  $actor.kl_loss_type=low_var_kl

  # A step: 256 questions, 8 rollouts each, 4 updates (the terms work on ratios, which are 1 at the first update).
  data.train_files=$TRAIN
  data.val_files=$DEV
  data.train_batch_size=256
  data.max_prompt_length=1024
  data.max_response_length=4096
  data.filter_overlong_prompts=true
  $actor.ppo_mini_batch_size=64
  $actor.ppo_epochs=1
  $rollout.n=8
  $actor.optim.lr=1e-6
  $actor.optim.lr_warmup_steps_ratio=0.1

  # The agent: 4 turns, 3 passages a search. Lengths add up to data.max_response_length.
  $rollout.agent.default_agent_loop=search_tags
  $rollout.agent.num_workers=8
  +$search.retriever.kind=http
  +$search.retriever.settings.url=$RETRIEVER
  +$search.limits.max_turns=4
  +$search.limits.max_turn_tokens=500
  +$search.limits.max_observation_tokens=500
  +$search.limits.k=3
  +$search.reward.em=1.0
  +$search.save_rollouts=$OUTPUT/rollouts

  # The machine.
  actor_rollout_ref.model.path=$MODEL
  actor_rollout_ref.model.use_remove_padding=true
  actor_rollout_ref.model.enable_gradient_checkpointing=true
  $actor.strategy=fsdp2
  $actor.use_dynamic_bsz=true
  $actor.ppo_max_token_len_per_gpu=16384
  actor_rollout_ref.ref.strategy=fsdp2
  actor_rollout_ref.ref.log_prob_use_dynamic_bsz=true
  actor_rollout_ref.ref.log_prob_max_token_len_per_gpu=32768
  $rollout.name=vllm
  $rollout.tensor_model_parallel_size=1
  $rollout.gpu_memory_utilization=0.6
  $rollout.temperature=1.0
  $rollout.top_p=1.0
  $rollout.top_k=-1
  $rollout.calculate_log_probs=true
  $rollout.log_prob_use_dynamic_bsz=true
  $rollout.log_prob_max_token_len_per_gpu=32768
  $rollout.val_kwargs.temperature=1.0
  $rollout.val_kwargs.do_sample=true
  trainer.nnodes=1
  trainer.n_gpus_per_node=8

  # The run.
  trainer.project_name=sleuth
  trainer.experiment_name=qwen2.5-3b
  trainer.default_local_dir=$OUTPUT/checkpoints
  trainer.logger=[console,tensorboard]
  trainer.total_epochs=1
  trainer.total_training_steps=200
  trainer.val_before_train=true
  trainer.test_freq=25
  trainer.save_freq=25
  trainer.resume_mode=auto
  "$@"
)

# verl hides a plug-in that could not be loaded; this doesn't.
python -m sleuth.training.verl check "${settings[@]}"
[ -n "${CHECK:-}" ] || exec python -m verl.trainer.main_ppo "${settings[@]}"
