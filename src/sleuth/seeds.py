"""Seeds derived from names, so that a draw depends on what it is for and never on what was drawn before it."""

from __future__ import annotations

import hashlib


def derive_seed(*parts: int | str) -> int:
    """A 63-bit seed that is a pure function of ``parts``, e.g. ``(run seed, step, row, turn)``."""
    digest = hashlib.blake2b("\x1f".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
