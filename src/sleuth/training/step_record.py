"""What is known of one step when its last update is made: the numbers of its record, and its log-probs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from sleuth.diagnostics.drift import Drift
from sleuth.objectives.compose import TokenLoss
from sleuth.objectives.tokens import Tokens
from sleuth.training.importance import SamplerGap
from sleuth.types import SpanKind, Trajectory


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """What a pass of the loss worked on.

    Attributes:
        rows: (B,) the rollouts' places in the batch as it was rolled out, which shuffling and sorting change; -1 for a
            row that is none and fills the pass.
        kinds, turns: (B, T) of :func:`~sleuth.diagnostics.token_labels.token_labels`.
        logp: (B, T) as the loss saw it, before tokens that are not finite were dropped; no gradient.
        old_logp: (B, T) of the trainer's own pass over all rollouts, masked ones too; None when there was none, since
            no update came between the rollout and this pass.
        update: number of the update in its batch, from 1.
    """

    rows: Tensor
    kinds: Tensor
    turns: Tensor
    logp: Tensor
    old_logp: Tensor | None
    update: int


class StepRecord:
    """Collects the updates of one batch.

    Args:
        updates: optimiser updates made of one batch.

    Attributes:
        sampler_gap: between trainer and sampler, where another engine samples.
    """

    def __init__(self, updates: int):
        self._updates = updates
        self._drift = Drift()
        self._start()

    def _start(self) -> None:
        self._losses: list[Tensor] = []
        self._kls: list[Tensor] = []
        self._tokens = 0
        self._dropped = 0
        self._terms: dict[str, Tensor | float] = {}
        self._gradients: list[float] = []
        self._skipped = 0
        self._passes: list[tuple[MicroBatch, Tensor]] = []
        self.sampler_gap = SamplerGap()

    def add(self, batch: MicroBatch, tokens: Tokens, result: TokenLoss, entropy: Tensor, loss: Tensor) -> None:
        """One pass; ``entropy`` (B, T) in nats, ``loss`` the sum of the token losses."""
        self._losses.append(loss.detach())
        self._tokens += int(tokens.mask.sum())
        self._dropped += tokens.dropped
        if result.kl is not None:
            self._kls.append(result.kl.detach().sum())
        for name, part in result.terms.items():
            self._terms[name] = self._terms.get(name, 0.0) + part.sum()
        moved = None if batch.old_logp is None else batch.update > 1
        self._drift.add(tokens, result.clipped, batch.kinds, batch.turns, entropy=entropy, moved=moved)
        self._passes.append((batch, tokens.policy))

    def add_gradient(self, norm: float) -> None:
        """The norm of one update's gradient, before it is clipped."""
        self._gradients.append(norm)

    def add_skipped(self) -> None:
        """An update was left out, since its gradient was not finite."""
        self._skipped += 1

    def take(self) -> StepRecord:
        """Everything collected, on the CPU, to be sent to another process; and forget it."""
        taken = StepRecord(self._updates)
        taken._drift, self._drift = self._drift, Drift()
        taken.sampler_gap = self.sampler_gap
        taken._losses = [x.cpu() for x in self._losses]
        taken._kls = [x.cpu() for x in self._kls]
        taken._tokens, taken._dropped = self._tokens, self._dropped
        taken._terms = {name: float(part) for name, part in self._terms.items()}
        taken._gradients, taken._skipped = self._gradients, self._skipped
        for batch, policy in self._passes:
            rows, kinds, turns, logp = (x.cpu() for x in (batch.rows, batch.kinds, batch.turns, batch.logp))
            old = None if batch.old_logp is None else batch.old_logp.cpu()
            taken._passes.append((MicroBatch(rows, kinds, turns, logp, old, batch.update), policy.cpu()))
        self._start()
        return taken

    def absorb(self, other: StepRecord) -> None:
        """Take over what another process collected of the same updates. Their gradients are the same."""
        self._drift.absorb(other._drift)
        self.sampler_gap.absorb(other.sampler_gap)
        self._losses += other._losses
        self._kls += other._kls
        self._tokens += other._tokens
        self._dropped += other._dropped
        for name, part in other._terms.items():
            self._terms[name] = self._terms.get(name, 0.0) + part
        self._gradients, self._skipped = self._gradients or other._gradients, other._skipped
        self._passes += other._passes

    def flush(self) -> dict[str, float]:
        """Loss, terms (means over updates), largest gradient, KL, drift and the rest of the step; and forget it."""
        metrics: dict[str, float] = {
            "loss": sum(x.item() for x in self._losses) / self._updates,
            "dropped_tokens": self._dropped,
            "skipped_updates": self._skipped,
        }
        if self._gradients:
            metrics["grad_norm_max"] = max(self._gradients)
        if self._kls:
            metrics["kl"] = sum(x.item() for x in self._kls) / max(self._tokens, 1)
        metrics |= {f"term/{name}": float(part) / self._updates for name, part in self._terms.items()}
        metrics |= self._drift.flush() | self.sampler_gap.metrics()
        self._start()
        return metrics

    def write_log_probs(self, trajectories: Sequence[Trajectory]) -> None:
        """Put ``old_logprobs``, ``new_logprobs`` and ``update`` into the step's rollouts, as far as passes were made.

        A rollout that the loss left out (failed, or masked by the objective) gets no ``new_logprobs``; one that was
        copied gets those of its last pass. What was not finite stays so: a broken rollout is data.

        Args:
            trajectories: the whole batch in the order in which it was rolled out.
        """
        for batch, policy in self._passes:
            new = batch.logp.float().cpu()
            old = new if batch.old_logp is None else batch.old_logp.float().cpu()
            used = policy.any(-1).tolist()
            for i, row in enumerate(batch.rows.tolist()):
                if row < 0 or (trajectory := trajectories[row]).failed:
                    continue
                if batch.old_logp is not None or used[i]:
                    _write(trajectory, "old_logprobs", old[i])
                if used[i]:
                    _write(trajectory, "new_logprobs", new[i])
                    trajectory.update = batch.update


def _write(trajectory: Trajectory, field: str, values: Tensor) -> None:
    """Set a field of every policy span from the row's values, column t being ``completion_ids[t]``."""
    at = -len(trajectory.prompt_ids)
    for span in trajectory.spans:
        if span.kind is SpanKind.POLICY:
            setattr(span, field, values[at : at + len(span.ids)].tolist())
        at += len(span.ids)
