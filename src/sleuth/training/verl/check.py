"""Everything that can be known before a run on verl starts, from the plug-in's names to the retriever's answer."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import entry_points
from typing import Any

from sleuth.errors import UserError

ENTRY_POINT = "sleuth"


def check(overrides: Sequence[str]) -> Iterator[str]:
    """One line for each thing that is in order, until one isn't.

    Args:
        overrides: settings as ``python -m verl.trainer.main_ppo`` takes them; none: only the plug-in is checked.

    Raises:
        UserError: the first thing that is wrong, and what to do.
    """
    yield _entry_point()
    yield _registered()
    if not overrides:
        return
    config = composed(overrides)
    yield "verl's settings are valid"
    yield from _plan(config)
    search = _agent_loop(config)
    yield f"agent loop: search_tags, {search.protocol.kind}, limits {search.limits.model_dump(exclude_defaults=True)}"
    yield _retriever(search)


def _entry_point() -> str:
    policy = os.environ.get("VERL_USE_EXTERNAL_PLUGINS", "auto").strip().lower()
    if policy != "auto" and ENTRY_POINT not in {name.strip() for name in policy.split(",")}:
        raise UserError(f"VERL_USE_EXTERNAL_PLUGINS={policy} keeps the plug-in out; unset it, or add {ENTRY_POINT}")
    found = [point for point in entry_points(group="verl.plugins") if point.name == ENTRY_POINT]
    if not found:
        raise UserError(
            "the installed sleuth has no entry point in verl.plugins; reinstall it: pip install sleuth[verl]"
        )
    return f"entry point: {found[0].value}"


def _registered() -> str:
    """That verl has our names, and ours are what stands behind them."""
    from verl.experimental.agent_loop.agent_loop import _agent_loop_registry
    from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY, POLICY_LOSS_REGISTRY
    from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY

    from sleuth.training.verl.registration import AGENT_LOOP, ESTIMATORS, LOSSES, OBJECTIVE, TRAINER, is_ours, register

    wanted: list[tuple[str, dict[str, Any], Sequence[str]]] = [
        ("adv_estimator", ADV_ESTIMATOR_REGISTRY, (*ESTIMATORS, OBJECTIVE)),
        ("loss_mode", POLICY_LOSS_REGISTRY, (*LOSSES, OBJECTIVE)),
        ("trainer_mode", TRAINER_REGISTRY, (TRAINER,)),
    ]
    missing = [f"{what} {name}" for what, registry, names in wanted for name in names if name not in registry]
    if AGENT_LOOP not in _agent_loop_registry:
        missing.append(f"agent loop {AGENT_LOOP}")
    if missing:
        # verl kept the reason to itself.
        try:
            register()
        except UserError:
            raise
        except Exception as error:
            raise UserError(f"verl could not load the plug-in: {type(error).__name__}: {error}") from error
        raise UserError(f"verl did not load the plug-in, which loads by itself: {', '.join(missing)} were missing")
    for what, registry, names in wanted:
        for name in names:
            if not is_ours(registry[name]):
                raise UserError(f"verl's {what} {name} is {registry[name]!r}, not Sleuth's; unload what registered it")
    target = _agent_loop_registry[AGENT_LOOP]["_target_"]
    if not str(target).startswith("sleuth."):
        raise UserError(f"verl's agent loop {AGENT_LOOP} is {target}, not Sleuth's; unload what registered it")
    return f"verl knows {', '.join(name for _, _, names in wanted for name in names)}, {AGENT_LOOP}"


def composed(overrides: Sequence[str]) -> Any:
    """verl's whole configuration, composed and validated by verl itself.

    Raises:
        UserError: what Hydra or verl refuses.
    """
    from hydra import compose, initialize_config_module
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    try:
        with initialize_config_module("verl.trainer.config", version_base=None):
            config = compose("ppo_trainer", overrides=list(overrides))
        validate_config(config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
        OmegaConf.resolve(config)
    except (HydraException, OmegaConfBaseException, ValueError, AssertionError, TypeError) as error:
        cause = error.__cause__ or error
        raise UserError(f"verl refuses these settings: {_one_line(error)} ({_one_line(cause)})") from error
    return config


def _plan(config: Any) -> Iterator[str]:
    """What will be trained, if it is Sleuth's."""
    from verl.utils.config import omega_conf_to_dataclass

    from sleuth.training.verl.agent_settings import search_settings
    from sleuth.training.verl.estimators import estimator
    from sleuth.training.verl.losses import check_registered
    from sleuth.training.verl.registration import ESTIMATORS, LOSSES, OBJECTIVE, TRAINER
    from sleuth.training.verl.settings import ObjectiveSettings
    from sleuth.training.verl.trainer import check_trainer

    # Through the dataclass, so that what verl's workers would see is what is checked.
    actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    name = config.algorithm.adv_estimator
    if config.trainer.v1.trainer_mode == TRAINER:
        objective = ObjectiveSettings.of(actor, whole=True).resolve()
        check_trainer(config, objective, search_settings(config.actor_rollout_ref.rollout))
        yield f"trainer {TRAINER}: objective {objective.name}, {objective.aggregation.name}"
        return
    if name == OBJECTIVE:
        raise UserError(f"algorithm.adv_estimator={OBJECTIVE} needs trainer.v1.trainer_mode={TRAINER}")
    if name in ESTIMATORS:
        import torch

        ones = torch.ones(2, 1)
        estimator(ESTIMATORS[name])(ones, ones, config=config.algorithm, index=["a", "a"])
        yield f"advantages: {name}"
    mode = actor.policy_loss.loss_mode
    if mode in (*LOSSES, OBJECTIVE):
        objective = ObjectiveSettings.of(actor).resolve()
        check_registered(objective)
        updates = actor.ppo_epochs * (config.data.train_batch_size // actor.ppo_mini_batch_size)
        if objective.needs_drift and updates < 2:
            raise UserError(
                f"loss {mode} works on ratios, and with one update a batch every ratio is 1; set "
                "actor.ppo_mini_batch_size below data.train_batch_size, or actor.ppo_epochs above 1"
            )
        yield f"loss: {mode}, {objective.name}, {objective.aggregation.name}"


def _agent_loop(config: Any) -> Any:
    from sleuth.training.verl.agent_settings import search_settings

    return search_settings(config.actor_rollout_ref.rollout)


def _retriever(search: Any) -> str:
    from sleuth.assembly import build_retriever
    from sleuth.recipes.schema import Recipe

    retriever, corpus_hash = build_retriever(Recipe(name="verl", retriever=search.retriever))
    close: Callable[[], None] | None = getattr(retriever, "close", None)
    if close is not None:
        close()
    return f"retriever: {search.retriever.kind} answers" + (f", corpus {corpus_hash[:12]}" if corpus_hash else "")


def _one_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
