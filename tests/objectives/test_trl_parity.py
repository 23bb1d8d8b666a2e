"""Our losses against TRL's own ``_compute_loss``, on the same log-probs and advantages."""

from collections import defaultdict
from types import SimpleNamespace

import pytest
import torch
from batches import batch, step

from sleuth.objectives import resolve

trl = pytest.importorskip("trl", reason="TRL is not in this environment")

MAX_LENGTH = 20


def _trl(loss_type, logp, old, advantages, mask, *, ref=None, beta=0.0, level="token", low=0.2, high=0.2, delta=None):
    """(loss, gradient) of TRL for a step that is this one batch. Its method reads the trainer it is bound to, so one
    that holds just what it reads does."""
    leaf = logp.detach().clone().requires_grad_()
    one_process = SimpleNamespace(
        num_processes=1, gather=lambda x: x, reduce=lambda x, reduction: x, gather_for_metrics=lambda x: x
    )
    trainer = SimpleNamespace(
        _get_per_token_logps_and_entropies=lambda *args, **kwargs: (leaf, torch.zeros_like(leaf), None),
        aux_loss_enabled=False,
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=None,
        importance_sampling_level=level,
        beta=beta,
        loss_type=loss_type,
        epsilon_low=low,
        epsilon_high=high,
        args=SimpleNamespace(
            delta=delta,
            use_bias_correction_kl=False,
            sapo_temperature_pos=1.0,
            sapo_temperature_neg=1.05,
            steps_per_generation=1,
        ),
        use_vllm=False,
        vllm_importance_sampling_correction=False,
        model=SimpleNamespace(training=True),
        current_gradient_accumulation_steps=1,
        max_completion_length=MAX_LENGTH,
        accelerator=one_process,
        _entropy_bonus_enabled=False,
        _metrics={"train": defaultdict(list)},
    )
    rows, length = mask.shape
    inputs = {
        "prompt_ids": torch.zeros(rows, 1, dtype=torch.long),
        "prompt_mask": torch.ones(rows, 1, dtype=torch.long),
        "completion_ids": torch.zeros(rows, length, dtype=torch.long),
        "completion_mask": torch.ones(rows, length, dtype=torch.long),
        "tool_mask": mask.long(),
        "advantages": advantages,
        "old_per_token_logps": old,
        "ref_per_token_logps": ref,
        "num_items_in_batch": mask.sum(),
    }
    loss = trl.GRPOTrainer._compute_loss(trainer, None, inputs)
    (grad,) = torch.autograd.grad(loss, leaf)
    return loss.detach(), grad


CASES = {
    "grpo": ("grpo", {}, "seq_mean_token_mean", {"loss_type": "grpo"}),
    "grpo token_mean": ("grpo", {}, None, {"loss_type": "dapo"}),
    "grpo with reference": ("grpo", {}, "seq_mean_token_mean", {"loss_type": "grpo", "beta": 0.04}),
    "dapo": ("dapo", {}, None, {"loss_type": "dapo", "high": 0.28}),
    "dr_grpo": ("dr_grpo", {"aggregation": {"max_length": MAX_LENGTH}}, None, {"loss_type": "dr_grpo"}),
    "gspo": ("gspo", {}, "seq_mean_token_mean", {"loss_type": "grpo", "level": "sequence", "low": 3e-4, "high": 4e-4}),
    "gspo, wide clip": (
        "gspo",
        {"gspo": {"clip_low": 0.2, "clip_high": 0.2}},
        "token_mean",
        {"loss_type": "dapo", "level": "sequence"},
    ),
    "cispo": ("cispo", {}, None, {"loss_type": "cispo", "high": 5.0}),
    "dual_clip": ("dual_clip", {}, None, {"loss_type": "dapo", "delta": 3.0}),
    "soft_sapo": ("soft_sapo", {}, "seq_mean_token_mean", {"loss_type": "sapo"}),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", range(3))
def test_loss_and_gradient_are_those_of_trl(case, seed):
    name, parameters, aggregation, theirs = CASES[case]
    beta = theirs.get("beta", 0.0)
    # Wide enough that every bound is reached: ratios from 0.1 to 20 and more.
    logp, old, advantages, mask = batch(seed, rows=8, length=16, spread=1.2)
    ref = old - 0.2
    ours = step(resolve(name, parameters, aggregation, beta), logp, old, advantages, mask, ref)
    loss, grad = _trl(logp=logp, old=old, advantages=advantages, mask=mask, ref=ref, **theirs)
    assert ours[0].item() == pytest.approx(loss.item(), abs=1e-6)
    torch.testing.assert_close(ours[1], grad, rtol=0, atol=1e-6)
    assert grad.abs().max() > 1e-3


def test_trls_sapo_is_not_search_sapo():
    logp, old, advantages, mask = batch(rows=8, length=16, spread=1.2)
    loss, _ = _trl("sapo", logp, old, advantages, mask)
    ours, _ = step(resolve("search_sapo", aggregation="seq_mean_token_mean"), logp, old, advantages, mask)
    assert abs(ours - loss) > 1e-3
