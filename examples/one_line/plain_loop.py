"""A loop of plain PyTorch: one optimiser step on a batch of rollouts, in micro-batches, with one line more."""

import torch

from sleuth.objectives import conditional_kl


def log_probs(model, ids, completion):
    """(B, T) log-probs of the last ``completion`` ids of each row; ``ids`` is (B, P + T)."""
    logits = model(input_ids=ids).logits[:, -completion - 1 : -1]
    return logits.log_softmax(-1).gather(-1, ids[:, -completion:, None])[..., 0]


def update(model, optimizer, batch, rows_a_pass):
    """One step. Call it several times a batch: at the first one every ratio is 1, and the line adds nothing.

    ``batch`` holds ``ids`` (B, P + T), ``old_logp`` (B, T) from before the first update, ``mask`` (B, T), 1 for tokens
    that the policy sampled, and ``advantages`` (B,). Returns the loss.
    """
    total = 0.0
    tokens = batch["mask"].sum()  # of the whole step, so that passes may be cut in any way
    for rows in torch.arange(len(batch["ids"])).split(rows_a_pass):
        ids, old_logp, mask, advantages = (batch[key][rows] for key in ("ids", "old_logp", "mask", "advantages"))
        logp = log_probs(model, ids, mask.shape[1])
        ratio, a = (logp - old_logp).exp(), advantages[:, None]
        loss = -torch.min(ratio * a, ratio.clamp(0.8, 1.2) * a)
        loss = (loss * mask).sum() / tokens
        # The line:
        loss = loss + conditional_kl(logp, old_logp, advantages, mask, gamma=0.1, tau=1.0, normalizer=tokens)
        loss.backward()
        total += loss.item()
    optimizer.step()
    optimizer.zero_grad()
    return total
