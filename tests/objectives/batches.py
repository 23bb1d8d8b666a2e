"""Batches of log-probs and the loss of a whole step, for the tests beside this file."""

import torch

from sleuth.objectives.aggregation import StepTotals
from sleuth.objectives.tokens import Tokens


def batch(seed=0, rows=6, length=9, dtype=torch.float64, spread=0.4):
    """(logp with gradient, old_logp, advantages (B,), mask): random, every row with a policy token first."""
    g = torch.Generator().manual_seed(seed)
    logp = -torch.rand(rows, length, generator=g, dtype=dtype) * 3
    old = logp + spread * torch.randn(rows, length, generator=g, dtype=dtype)
    mask = torch.rand(rows, length, generator=g) < 0.6
    mask[:, 0] = True
    advantages = torch.randn(rows, generator=g, dtype=dtype)
    return logp.requires_grad_(), old, advantages, mask


def from_ratios(ratios, dtype=torch.float64):
    """(logp with gradient, old_logp) with these ratios; logp is -1 everywhere."""
    log_ratio = torch.tensor(ratios, dtype=dtype).log()
    logp = torch.full_like(log_ratio, -1.0)
    return logp.requires_grad_(), logp.detach() - log_ratio


def step(objective, logp, old, advantages, mask, ref=None, **extra):
    """(loss, gradient) of a step that is this one batch; extra goes to ``Tokens.build``."""
    leaf = logp.detach().clone().requires_grad_()
    mask = torch.as_tensor(mask)
    tokens = Tokens.build(leaf, old, advantages, mask, ref, **extra)
    loss = objective.token_loss(tokens, StepTotals.of(mask, tokens.rollout_advantages)).loss.sum()
    (grad,) = torch.autograd.grad(loss, leaf)
    return loss.detach(), grad
