"""An engine beside the trainer that samples from the weights in training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Delivery(Protocol):
    """A way by which an engine gets weights."""

    def deliver(self) -> str:
        """Send the weights as they are now; all processes call it together.

        Returns:
            the name to ask the engine for from now on.
        """
        ...


class Follower:
    """Sends the weights to an engine when they aren't the ones that it has.

    Args:
        policy: the model in training.
        in_any: where several processes train: whether something is so in any of them.

    Attributes:
        alone: one process trains, so that :meth:`refresh` may come at any moment; else all call it together.
    """

    def __init__(self, policy: Any, delivery: Delivery, in_any: Callable[[bool], bool] | None = None):
        self._policy, self._delivery, self._in_any = policy, delivery, in_any
        self._delivered: list[float] | None = None
        self.alone = in_any is None

    def refresh(self) -> str | None:
        """The name to ask for, if weights were sent."""
        now = fingerprint(self._policy)
        changed = now != self._delivered
        if self._in_any is not None:
            changed = self._in_any(changed)
        if not changed:
            return None
        name = self._delivery.deliver()
        self._delivered = now
        return name


def fingerprint(model: Any) -> list[float]:
    """Sum and norm of every trained tensor, of this process's shard where it is sharded.

    torch's own counters miss what a fused optimiser writes.
    """
    import torch  # recipes name the settings of such engines, and have to load at once

    numbers = [
        number
        for p in model.parameters()
        if p.requires_grad
        for own in (_own_part(p.detach()),)
        for number in (own.sum(dtype=torch.float64), torch.linalg.vector_norm(own, dtype=torch.float64))
    ]
    return torch.stack([number.cpu() for number in numbers]).tolist()


def _own_part(parameter: Any) -> Any:
    """What this process holds: FSDP2's tensors know their part, DeepSpeed's ZeRO-3 keeps it in an attribute."""
    if hasattr(parameter, "ds_tensor"):
        return parameter.ds_tensor
    return parameter.to_local() if hasattr(parameter, "to_local") else parameter
