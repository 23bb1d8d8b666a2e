"""A run whose rollouts vLLM samples: a server (``sampling.server``), or an engine here (``sampling.colocated``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sleuth.errors import UserError
from sleuth.recipes.schema import Recipe
from sleuth.samplers.colocated_policy import ColocatedPolicy
from sleuth.samplers.following import Delivery, Follower
from sleuth.samplers.served_policy import AdapterFolder, ServedPolicy
from sleuth.training.processes import Processes


def check_served_sampling(recipe: Recipe) -> None:
    """Refuse what vLLM can't do.

    Raises:
        UserError: names the setting.
    """
    chosen = [name for name in ("server", "colocated") if getattr(recipe.sampling, name) is not None]
    if len(chosen) == 2:
        raise UserError("sampling.server and sampling.colocated both sample; keep one of them")
    if chosen and recipe.schedule != "rl":
        name = f"sampling.{chosen[0]}"
        raise UserError(f"{name}: schedule={recipe.schedule} samples with its own model; leave {name} out")


def served_policy(recipe: Recipe) -> ServedPolicy | ColocatedPolicy | None:
    """The sampler beside the trainer, not yet following it; None where the model in training samples.

    Raises:
        UserError: the server isn't there, or hasn't the base model.
    """
    if recipe.sampling.colocated is not None:
        return ColocatedPolicy(recipe.sampling.colocated)
    if recipe.sampling.server is None:
        return None
    sampler = ServedPolicy(recipe.sampling.server)
    sampler.check_server()
    return sampler


def follow(
    served: ServedPolicy | ColocatedPolicy, recipe: Recipe, trainer: Any, run: Path, processes: Processes
) -> None:
    """Let it sample from the trainer's model.

    Adapters go to a server through a folder, whole weights by vLLM's transfer; an engine here is given whole ones.

    Raises:
        UserError: the server, or this machine, can't do that.
    """
    # A module of its own, since it needs TRL and vLLM.
    from sleuth.training.weight_transfer import WeightTransfer

    in_any = processes.any if processes.count > 1 else None
    delivery: Delivery
    if isinstance(served, ColocatedPolicy):
        delivery = WeightTransfer.into_engine(served.settings, trainer, processes.agreement)
        served.follow(Follower(trainer.model, delivery, in_any), delivery.engine)
        return
    if recipe.model_settings.lora is None:
        delivery = WeightTransfer.to_server(served.settings, trainer, processes.agreement)
    else:
        if trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled:
            raise UserError(
                "sampling.server: adapters are written by one process, which doesn't have them whole under FSDP or "
                "DeepSpeed; train them with plain data parallelism, or whole weights without model_settings.lora"
            )
        folder = Path(served.settings.adapters) if served.settings.adapters else run / "adapters"
        delivery = AdapterFolder(trainer.model, folder, served, processes.from_main)
    served.follow(Follower(trainer.model, delivery, in_any))
