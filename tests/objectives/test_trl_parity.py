"""Our losses against TRL's own ``_compute_loss``, on the same log-probs and advantages."""

import pytest
import torch
from batches import batch, step

from sleuth.objectives import resolve

pytest.importorskip("trl", reason="TRL is not in this environment")

from benchmarks.objectives.trl_loss import TRLLoss, inputs_of

MAX_LENGTH = 20


def _trl(loss_type, logp, old, advantages, mask, *, ref=None, **settings):
    """(loss, gradient) of TRL for a step that is this one batch."""
    leaf = logp.detach().clone().requires_grad_()
    loss = TRLLoss(loss_type, max_length=MAX_LENGTH, **settings)(
        leaf, torch.zeros_like(leaf), inputs_of(old, advantages, mask, ref)
    )
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
