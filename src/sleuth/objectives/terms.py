"""Terms added to a surrogate: a loss for every token, not reduced."""

from __future__ import annotations

import torch
from torch import Tensor

from sleuth.objectives.tokens import LOG_RATIO_CLAMP, Tokens


def reference_kl(tokens: Tokens) -> Tensor:
    """The k3 estimate of KL(policy ‖ reference), ``exp(d) - d - 1`` with ``d = ref_logp - logp`` (J. Schulman, 2020).

    Returns:
        (B, T), at least 0, and 0 outside of the mask.

    Raises:
        ValueError: the tokens carry no ``ref_logp``.
    """
    if tokens.ref_logp is None:
        raise ValueError("a reference KL needs ref_logp")
    d = tokens.ref_logp - tokens.logp
    k3 = d.clamp(-LOG_RATIO_CLAMP, LOG_RATIO_CLAMP).exp() - d - 1
    return torch.where(tokens.mask, k3, 0.0)
