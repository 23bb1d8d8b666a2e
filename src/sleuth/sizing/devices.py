"""What the accelerators are taken to do: the makers' figures, and the shares of them that work leaves."""

from __future__ import annotations

from dataclasses import dataclass

from sleuth.errors import UserError


@dataclass(frozen=True, slots=True)
class Device:
    """One accelerator and its links.

    Attributes:
        memory: bytes. ``flops``: dense 16-bit operations a second. ``bandwidth``: of its memory, bytes a second.
        link: bytes a second to a neighbour in the machine, one way. ``network``: to another machine, one way.
    """

    name: str
    memory: float
    flops: float
    bandwidth: float
    link: float
    network: float = 50e9


GB = 1e9
DEVICES = {
    "a100": Device("A100 SXM 80 GB", 80 * GB, 312e12, 2.04e12, 300e9, 25e9),
    "h100": Device("H100 SXM 80 GB", 80 * GB, 989e12, 3.35e12, 450e9),
    "h200": Device("H200 SXM 141 GB", 141 * GB, 989e12, 4.8e12, 450e9),
    "b200": Device("B200 SXM 180 GB", 180 * GB, 2250e12, 7.7e12, 900e9),
    "l40s": Device("L40S 48 GB", 48 * GB, 362e12, 0.864e12, 32e9, 12.5e9),
    "4090": Device("RTX 4090 24 GB", 24 * GB, 165e12, 1.008e12, 32e9, 1.25e9),
}
"""Peaks without sparsity; the network is one 400 Gbit/s port a GPU (a100: 200, l40s: 100, 4090: 10)."""


@dataclass(frozen=True, slots=True)
class Shares:
    """What is left of the makers' figures. None of it was measured with Sleuth; settable one by one.

    Attributes:
        training: of ``flops`` in a forward and backward pass. ``reading``: in a forward pass over known tokens.
        decoding: of ``bandwidth`` while tokens are sampled. ``links``: of link and network in collectives.
        decode_overhead: seconds that sampling one token of a batch takes beyond memory and arithmetic.
    """

    training: float = 0.35
    reading: float = 0.5
    decoding: float = 0.6
    links: float = 0.6
    decode_overhead: float = 0.003


def find_device(name: str) -> Device:
    """Raises UserError for an accelerator that isn't known."""
    if name.lower() not in DEVICES:
        raise UserError(f"--gpu {name}: not known; write {', '.join(DEVICES)}")
    return DEVICES[name.lower()]
