"""Terms of any policy-gradient method: distance to a reference policy, and entropy. Token losses, not reduced."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from sleuth.objectives.tokens import LOG_RATIO_CLAMP, Tokens


def reference_kl(tokens: Tokens, *, estimator: Literal["k1", "k2", "k3"] = "k3") -> Tensor:
    """An estimate of KL(policy ‖ reference) from the sampled token alone (J. Schulman, 2020); ``d = ref_logp - logp``.

    Args:
        estimator: ``k1``: -d, unbiased, of either sign, and on-policy of zero expected gradient; ``k2``: d²/2;
            ``k3``: exp(d) - d - 1, never negative, GRPO's; beyond d = 20 it is constant, so that it can't overflow.

    Returns:
        (B, T), 0 outside of the mask.

    Raises:
        ValueError: the tokens carry no ``ref_logp``.
    """
    if tokens.ref_logp is None:
        raise ValueError("a reference KL needs ref_logp")
    d = tokens.ref_logp - tokens.logp
    if estimator == "k1":
        return -d
    if estimator == "k2":
        return d.square() / 2
    # Bounded as a whole: with exp alone bounded, a token far below the reference would be pushed further down.
    d = d.clamp(max=LOG_RATIO_CLAMP)
    return d.expm1() - d


def negative_entropy(tokens: Tokens) -> Tensor:
    """Minus the entropy of the policy's next-token distribution, in nats: added to a loss it keeps entropy up.

    Returns:
        (B, T), 0 outside of the mask.

    Raises:
        ValueError: the tokens carry no ``entropy``.
    """
    if tokens.entropy is None:
        raise ValueError("an entropy bonus needs the policy's entropy")
    return -tokens.entropy
