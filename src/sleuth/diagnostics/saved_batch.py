"""Saved rollouts as the tensors that an objective takes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sleuth.objectives.turns import policy_stretches
from sleuth.types import Span, SpanKind, Trajectory

DTYPE = torch.float64
"""Double precision: rounding is none of the things that saved rollouts are looked at for."""


@dataclass(frozen=True, slots=True)
class SavedBatch:
    """Column t of (B, T) is ``completion_ids[t]``, right-padded.

    Attributes:
        rewards: (B,); 0 for a failed rollout, NaN for another one without a reward.
        valid: (B,) bool, False for failed rollouts. ``groups``: (B,), equal numbers are one ``(step, group)``.
        mask: (B, T) bool, policy tokens of sound rollouts.
        old, new: (B, T) log-probs, 0 outside of policy tokens and where there are none.
        old_source, new_source: where those came from: the field, what stood in for it, or ``mixed``.
        notes: what a reader must know to trust the numbers, a sentence each.
    """

    rewards: Tensor
    valid: Tensor
    groups: Tensor
    mask: Tensor
    old: Tensor
    new: Tensor
    old_source: str
    new_source: str
    notes: tuple[str, ...]

    @classmethod
    def of(cls, trajectories: Sequence[Trajectory]) -> SavedBatch:
        sound = [not t.failed for t in trajectories]
        numbers: dict[tuple[int, str], int] = {}
        groups = [numbers.setdefault((t.step, t.group), len(numbers)) for t in trajectories]
        shape = torch.Size((len(trajectories), max(1, *(len(t.completion_ids) for t in trajectories))))
        mask = torch.zeros(shape, dtype=torch.bool)
        for row, t in enumerate(trajectories):
            for _, _, start, end in policy_spans(t):
                mask[row, start:end] = sound[row]
        spans = [s for t in trajectories if not t.failed for s in t.policy_spans if s.ids]
        without_old = sum(s.old_logprobs is None for s in spans)
        without_new = sum(s.new_logprobs is None for s in spans)
        notes = []
        if without_old:
            notes.append(
                f"{without_old} of {len(spans)} policy spans have no old_logprobs: the sampler's logprobs stand in, "
                "which differ from a trainer's own pass"
            )
        odd = sum(not math.isfinite(x) for s in spans for x in (s.new_logprobs or ()))
        odd += sum(not math.isfinite(x) for s in spans for x in (s.old_logprobs or s.logprobs or ()))
        if odd:
            notes.append(f"{odd} log-probs are NaN or infinite: their tokens count in nothing, as in training")
        if 0 < without_new < len(spans):
            notes.append(f"{without_new} of {len(spans)} policy spans have no new_logprobs: taken as on-policy")
        return cls(
            rewards=torch.tensor(
                [
                    0.0 if not ok else math.nan if t.reward is None else t.reward
                    for t, ok in zip(trajectories, sound, strict=True)
                ],
                dtype=DTYPE,
            ),
            valid=torch.tensor(sound),
            groups=torch.tensor(groups),
            mask=mask,
            old=log_probs_of(trajectories, shape, "old_logprobs", "logprobs"),
            new=log_probs_of(trajectories, shape, "new_logprobs", "old_logprobs", "logprobs"),
            old_source=_source(without_old, len(spans), "old_logprobs", "logprobs"),
            new_source=_source(without_new, len(spans), "new_logprobs", "on_policy"),
            notes=tuple(notes),
        )


def _source(without: int, spans: int, field: str, otherwise: str) -> str:
    return field if not without else otherwise if without == spans else "mixed"


def policy_spans(trajectory: Trajectory) -> Iterator[tuple[int, Span, int, int]]:
    """Each policy span: its index in ``spans``, itself, its start and end (exclusive) in ``completion_ids``."""
    stretches = iter(policy_stretches(trajectory))
    for index, span in enumerate(trajectory.spans):
        if span.kind is SpanKind.POLICY:
            yield index, span, *next(stretches)


def log_probs_of(trajectories: Sequence[Trajectory], shape: torch.Size, *fields: str) -> Tensor:
    """(B, T) from the first of these fields that a policy span has; 0 elsewhere."""
    out = torch.zeros(shape, dtype=DTYPE)
    for row, t in enumerate(trajectories):
        for _, span, start, end in policy_spans(t):
            values = next((v for field in fields if (v := getattr(span, field)) is not None), None)
            if values is not None:
                out[row, start:end] = torch.tensor(values, dtype=DTYPE)
    return out
