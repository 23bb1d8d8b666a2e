"""HopWorld for verl: a data set and the settings with which the tiny policy trains on a CPU."""

import json
from dataclasses import dataclass
from pathlib import Path

from sleuth.assembly import model_source
from sleuth.data.convert import convert
from sleuth.question_sets import world_files
from sleuth.recipes.loader import load_recipe

CPU = Path(__file__).parent / "cpu"
WORLD = [
    "world.train={worlds: 4, questions: 64}",
    "world.dev={worlds: 1, questions: 8}",
    "world.test={worlds: 1, questions: 8}",
]
PROMPT_TOKENS, RESPONSE_TOKENS = 48, 256


@dataclass
class HopWorldForVerl:
    """Attributes: ``settings`` of the agent loop; ``overrides`` for verl."""

    folder: Path
    model: str
    questions: Path
    corpus: Path
    settings: dict
    overrides: list[str]


def hopworld(folder, *world):
    """Writes everything into ``folder``."""
    recipe = load_recipe("laptop", [*WORLD, *world])
    files = world_files(recipe, folder)
    questions = folder / "train.parquet"
    convert(files.train, questions, form="verl")
    settings = {
        "protocol": recipe.protocol.model_dump(),
        "limits": recipe.limits.model_dump(exclude_defaults=True),
        "retriever": {"kind": "bm25", "corpus": str(files.corpus)},
    }
    actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    overrides = [
        f"actor_rollout_ref.model.path={model_source(recipe)}",
        "+actor_rollout_ref.model.override_config.attn_implementation=eager",
        "actor_rollout_ref.model.use_remove_padding=False",
        "actor_rollout_ref.model.enable_gradient_checkpointing=False",
        f"{actor}.strategy=fsdp2",
        f"{actor}.use_torch_compile=False",
        f"{actor}.fsdp_config.model_dtype=fp32",
        f"{actor}.fsdp_config.use_torch_compile=False",
        f"+{actor}.fsdp_config.mixed_precision.param_dtype=fp32",
        f"{actor}.ppo_mini_batch_size=2",
        f"{actor}.ppo_micro_batch_size_per_gpu=4",
        f"{actor}.optim.lr=3e-4",
        f"{rollout}.n=4",
        f"{rollout}.prompt_length={PROMPT_TOKENS}",
        f"{rollout}.response_length={RESPONSE_TOKENS}",
        f"{rollout}.calculate_log_probs=True",
        f"{rollout}.log_prob_micro_batch_size_per_gpu=16",
        f"{rollout}.tensor_model_parallel_size=1",
        f"{rollout}.agent.num_workers=1",
        f"{rollout}.agent.default_agent_loop=search_tags",
        f"+{rollout}.custom={{search: {_hydra(settings)}}}",
        f"data.train_files={questions}",
        f"data.val_files={questions}",
        "data.train_batch_size=4",
        f"data.max_prompt_length={PROMPT_TOKENS}",
        f"data.max_response_length={RESPONSE_TOKENS}",
        "data.dataloader_num_workers=0",
        "data.filter_overlong_prompts=False",
    ]
    return HopWorldForVerl(folder, model_source(recipe), questions, files.corpus, settings, overrides)


CLUSTER = [
    "actor_rollout_ref.rollout.name=cpu",
    "actor_rollout_ref.rollout.free_cache_engine=False",
    "reward.num_workers=1",
    "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
    "transfer_queue.backend.SimpleStorage.total_storage_size=2000",
    "trainer.device=cpu",
    "trainer.n_gpus_per_node=1",
    "trainer.nnodes=1",
    "trainer.logger=[console]",
    "trainer.val_before_train=False",
    "trainer.test_freq=-1",
    "trainer.save_freq=-1",
    "trainer.total_epochs=1",
    "trainer.resume_mode=disable",
    "trainer.balance_batch=False",
    "+ray_kwargs.ray_init.num_gpus=1",
    "ray_kwargs.ray_init.num_cpus=12",
    "+ray_kwargs.ray_init.include_dashboard=False",
    "+ray_kwargs.ray_init.object_store_memory=300000000",
]
"""Settings of a Ray cluster that is this machine."""


def _hydra(value):
    """A value in Hydra's grammar: keys bare, strings quoted."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_hydra(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_hydra, value)) + "]"
    return json.dumps(value)
