"""The rest of a training step, with the smallest policy that ships: where a loss weighs most."""

from __future__ import annotations

from pathlib import Path

import torch
from benchmarks.objectives.measure import Step

import sleuth
from sleuth.models import load_model


def model_step(rows: int, length: int) -> Step:
    """Forward, backward and optimiser of the tiny policy on (rows, length) tokens, without any loss but a mean."""
    model = load_model(Path(sleuth.__file__).parent / "recipes" / "assets" / "tiny")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)
    ids = torch.randint(0, model.config.vocab_size, (rows, length), generator=torch.Generator().manual_seed(0))

    def step() -> None:
        logits = model(input_ids=ids[:, :-1]).logits
        logits.log_softmax(-1).gather(-1, ids[:, 1:, None]).mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step
