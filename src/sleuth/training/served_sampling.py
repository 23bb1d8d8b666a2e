"""A run whose rollouts a vLLM server samples (``sampling.server``)."""

from __future__ import annotations

from pathlib import Path

from sleuth.errors import UserError
from sleuth.recipes.schema import Recipe
from sleuth.samplers.served_policy import ServedPolicy


def check_served_sampling(recipe: Recipe, processes: int) -> None:
    """Refuse what a server can't do.

    Raises:
        UserError: names the setting.
    """
    if recipe.sampling.server is None:
        return
    if recipe.model_settings.lora is None:
        raise UserError(
            "sampling.server: a server is sent adapters alone; set model_settings.lora=16, or leave sampling.server out"
        )
    if processes > 1:
        raise UserError("sampling.server: only a run in one process can use a server; start it without a launcher")
    if recipe.schedule != "rl":
        raise UserError(f"sampling.server: schedule={recipe.schedule} samples with its own model; leave the server out")


def served_policy(recipe: Recipe, run: Path) -> ServedPolicy | None:
    """The recipe's server, asked whether it is there; None where the model in training samples.

    Raises:
        UserError: it isn't, or hasn't the base model.
    """
    settings = recipe.sampling.server
    if settings is None:
        return None
    sampler = ServedPolicy(settings, Path(settings.adapters) if settings.adapters else run / "adapters")
    sampler.check_server()
    return sampler
