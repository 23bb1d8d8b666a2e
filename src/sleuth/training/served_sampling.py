"""A run whose rollouts a vLLM server samples (``sampling.server``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sleuth.errors import UserError
from sleuth.recipes.schema import Recipe
from sleuth.samplers.served_policy import AdapterFolder, Delivery, ServedPolicy
from sleuth.training.processes import Processes


def check_served_sampling(recipe: Recipe) -> None:
    """Refuse what a server can't do.

    Raises:
        UserError: names the setting.
    """
    if recipe.sampling.server is not None and recipe.schedule != "rl":
        raise UserError(f"sampling.server: schedule={recipe.schedule} samples with its own model; leave the server out")


def served_policy(recipe: Recipe) -> ServedPolicy | None:
    """The recipe's server, asked whether it is there; None where the model in training samples.

    Raises:
        UserError: it isn't, or hasn't the base model.
    """
    settings = recipe.sampling.server
    if settings is None:
        return None
    sampler = ServedPolicy(settings)
    sampler.check_server()
    return sampler


def follow(served: ServedPolicy, recipe: Recipe, trainer: Any, run: Path, processes: Processes) -> None:
    """Let the server sample from the trainer's model: adapters through a folder, whole weights by vLLM's transfer.

    Raises:
        UserError: the server, or this machine, can't do that.
    """
    settings, policy = served.settings, trainer.model
    delivery: Delivery
    if recipe.model_settings.lora is None:
        from sleuth.training.weight_transfer import WeightTransfer

        delivery = WeightTransfer(settings, policy, trainer.accelerator, trainer.processing_class, processes.agreement)
    else:
        if trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled:
            raise UserError(
                "sampling.server: adapters are written by one process, which doesn't have them whole under FSDP or "
                "DeepSpeed; train them with plain data parallelism, or whole weights without model_settings.lora"
            )
        folder = Path(settings.adapters) if settings.adapters else run / "adapters"
        delivery = AdapterFolder(policy, folder, served, processes.from_main)
    served.follow(policy, delivery, processes.any if processes.count > 1 else None)
