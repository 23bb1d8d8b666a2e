"""examples/one_line/verl_loss.py, called as verl's workers call it. Importing verl takes seconds."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from batches import batch

from sleuth.objectives import conditional_kl

pytest.importorskip("verl", reason="verl is not in this environment")

from hydra import compose, initialize_config_module
from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.import_utils import import_external_libs
from verl_actor import actor_config, actor_loss

EXAMPLE = Path(__file__).parents[2] / "examples" / "one_line"
NAME = "vanilla_conditional_kl"


@pytest.fixture
def registered(monkeypatch):
    """The example is loaded as verl loads ``actor_rollout_ref.model.external_lib=verl_loss``."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    monkeypatch.delitem(sys.modules, "verl_loss", raising=False)
    import_external_libs("verl_loss")
    yield
    del POLICY_LOSS_REGISTRY[NAME], sys.modules["verl_loss"]


def _term(logp, old, advantages, mask, **extra):
    """(value, gradient) of the line alone."""
    leaf = logp.detach().clone().requires_grad_()
    value = conditional_kl(leaf, old, advantages, mask, gamma=0.1, tau=1.0, **extra)
    return value.detach(), torch.autograd.grad(value, leaf)[0]


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("mode", ["token-mean", "seq-mean-token-mean"])
def test_the_loss_is_verls_and_the_term(mode):
    values = batch(rows=8, length=16)
    loss, grad, metrics = actor_loss(actor_config(NAME, loss_agg_mode=mode), *values)
    vanilla, vanilla_grad, _ = actor_loss(actor_config(loss_agg_mode=mode), *values)
    term, term_grad = _term(*values)
    torch.testing.assert_close(loss, vanilla + term)
    torch.testing.assert_close(grad, vanilla_grad + term_grad)
    assert term > 1e-3
    assert term_grad.abs().max() > 1e-4
    assert metrics["actor/pg_loss"].aggregate() == pytest.approx(loss.item())
    assert "actor/pg_clipfrac" in metrics


@pytest.mark.usefixtures("registered")
def test_micro_batches_on_two_ranks_add_up_to_the_whole_update():
    values = batch(rows=8, length=16)
    config, mask = actor_config(NAME), values[-1]
    _, whole, _ = actor_loss(config, *values)
    parts = [
        actor_loss(config, *(x[rows] for x in values), step_mask=mask, ranks=2)[1]
        for rows in (slice(0, 1), slice(1, 6), slice(6, 8))
    ]
    torch.testing.assert_close(torch.cat(parts) / 2, whole)


@pytest.mark.usefixtures("registered")
def test_the_setting_of_the_docs_chooses_it():
    actor = "actor_rollout_ref.actor"
    given = [f"{actor}.policy_loss.loss_mode={NAME}", f"{actor}.ppo_micro_batch_size_per_gpu=2"]
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = omega_conf_to_dataclass(compose("ppo_trainer", overrides=given).actor_rollout_ref.actor)
    values = batch(rows=8, length=16)
    loss, *_ = actor_loss(config, *values)
    torch.testing.assert_close(loss, actor_loss(actor_config(), *values)[0] + _term(*values)[0])


@pytest.mark.slow
def test_the_environment_variable_of_the_docs_registers_it():
    names = "from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY as r; print(*r)"
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLE), "VERL_USE_EXTERNAL_MODULES": "verl_loss"}
    done = subprocess.run([sys.executable, "-c", names], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert NAME in done.stdout.split()
