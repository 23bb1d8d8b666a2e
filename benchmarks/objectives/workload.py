"""One batch of search rollouts: tensors for the losses, trajectories for the reshapes."""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch
from torch import Tensor

from sleuth.types import Document, Span, SpanKind, Status, Trajectory

GROUP = 8


@dataclass(frozen=True, slots=True)
class Workload:
    """A batch after some updates: log-ratios have a deviation of 0.2, so clips, gates and thresholds all have work.

    Attributes:
        logp, old_logp, ref_logp, entropy: (B, T) single precision.
        mask: (B, T) long, as trainers carry it: turns of the policy, passages between them, padding behind.
        answer: (B, T) bool. ``searches``, ``rewards``, ``advantages``, ``groups``: (B,).
        trajectories: the same rollouts.
    """

    logp: Tensor
    old_logp: Tensor
    ref_logp: Tensor
    entropy: Tensor
    mask: Tensor
    answer: Tensor
    searches: Tensor
    rewards: Tensor
    advantages: Tensor
    groups: Tensor
    trajectories: list[Trajectory]

    @classmethod
    def make(cls, rows: int, length: int, seed: int = 0) -> Workload:
        """``rows`` rollouts, eight a group, up to ``length`` tokens: turns of 64 to 192, observations of 300 to 500."""
        g, rng = torch.Generator().manual_seed(seed), random.Random(seed)
        logp = -torch.rand(rows, length, generator=g) * 3
        old = logp + 0.2 * torch.randn(rows, length, generator=g)
        mask = torch.zeros(rows, length, dtype=torch.long)
        answer = torch.zeros(rows, length, dtype=torch.bool)
        rewards = (torch.rand(rows, generator=g) < 0.4).float()
        trajectories = []
        for row in range(rows):
            spans = [Span(SpanKind.PROMPT, [0])]
            at, turns = 0, rng.randint(2, 8)
            for turn in range(turns):
                n = min(rng.randint(64, 192), length - at)
                mask[row, at : at + n] = 1
                lost = old[row, at : at + n].tolist()
                text = "<think>" + " ".join(f"word{rng.randrange(200)}" for _ in range(n // 2)) + "</think>"
                taught = [x + 0.02 for x in lost]
                spans.append(Span(SpanKind.POLICY, [0] * n, text, old_logprobs=lost, teacher_logprobs=taught))
                at += n
                if turn == turns - 1:
                    answer[row, at - 16 : at] = True
                    break
                m = min(rng.randint(300, 500), length - 200 - at)
                if m <= 0:
                    break
                found = [Document(str(rng.randrange(20)), "") for _ in range(3)]
                spans.append(Span(SpanKind.OBSERVATION, [0] * m, documents=found))
                at += m
            trajectories.append(
                Trajectory(
                    f"r{row}",
                    f"g{row // GROUP}",
                    "",
                    [],
                    spans,
                    status=Status.ANSWERED,
                    format_valid=True,
                    reward=rewards[row].item(),
                )
            )
        centred = rewards.view(-1, GROUP) - rewards.view(-1, GROUP).mean(-1, keepdim=True)
        return cls(
            logp=logp,
            old_logp=old,
            ref_logp=old - 0.1,
            entropy=torch.rand(rows, length, generator=g),
            mask=mask,
            answer=answer,
            searches=torch.tensor([len(t.policy_spans) - 1 for t in trajectories]),
            rewards=rewards,
            advantages=centred.flatten() * 2,
            groups=torch.arange(rows) // GROUP,
            trajectories=trajectories,
        )
