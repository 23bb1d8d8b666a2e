"""From names and settings to the functions of an objective."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from pydantic import BaseModel, ValidationError
from torch import Tensor

from sleuth.errors import UserError
from sleuth.objectives import advantages, calibadv, parameters, sspo, surrogates, terms
from sleuth.objectives.aggregation import AGGREGATIONS, Aggregation
from sleuth.objectives.compose import Advantage, Objective, Reshape, Surrogate, Term
from sleuth.objectives.lost_likelihood import lost_likelihood
from sleuth.objectives.search_sapo import conditional_kl_tokens
from sleuth.objectives.signbalance import signbalance
from sleuth.objectives.table import TABLE, Entry, find


def resolve(
    name: str,
    parameters: Mapping[str, Mapping[str, Any]] | None = None,
    aggregation: str | None = None,
    kl_coefficient: float = 0.0,
) -> Objective:
    """The objective that ``name`` (names joined by ``+``) describes.

    Args:
        parameters: settings by the part's name; ``grpo`` stands for what no part replaces, and ``aggregation`` for
            the aggregation's ``max_length``.
        aggregation: a name of :data:`sleuth.objectives.aggregation.AGGREGATIONS`; None: what a part implies, else
            ``token_mean``.
        kl_coefficient: weight of a reference KL (k3).

    Raises:
        UserError: unknown name, part or parameter, two parts for one slot; the message says what to write instead.
    """
    entries = [find(part.strip()) for part in name.split("+")]
    _refuse_clashes(name, entries, aggregation, kl_coefficient)
    given = dict(parameters or {})
    max_length = _max_length(given.pop("aggregation", {}))
    chosen = {entry.name for entry in entries}
    for part in given:
        if part not in chosen and part != "grpo":
            raise UserError(f"parameters for {part!r}, but the objective is {name!r}; add it with + or drop them")
    implied = next((entry for entry in entries if entry.aggregation), None)
    source = implied.name if implied and aggregation is None else None
    chosen_aggregation = aggregation or (implied and implied.aggregation) or "token_mean"
    return _put_together(
        name,
        {entry.name: _parameters(entry, given.get(entry.name, {})) for entry in entries},
        _parameters(TABLE["grpo"], given.get("grpo", {})),
        check_aggregation(chosen_aggregation, max_length, source),
        kl_coefficient,
    )


def _refuse_clashes(name: str, entries: list[Entry], aggregation: str | None, kl_coefficient: float) -> None:
    for i, second in enumerate(entries):
        for first in entries[:i]:
            if first.name == second.name:
                raise UserError(f"objective {name!r} names {first.name} twice")
            if first.slot == second.slot and first.slot in ("advantage", "surrogate"):
                raise UserError(
                    f"objective {name!r}: {first.name} and {second.name} both set the {first.slot}; keep one of them"
                )
            implied = {first.aggregation, second.aggregation} - {None}
            if aggregation is None and len(implied) == 2:
                raise UserError(
                    f"objective {name!r}: {first.name} implies aggregation {first.aggregation}, {second.name} "
                    f"{second.aggregation}; choose with aggregation="
                )
    if kl_coefficient and any(entry.name == "reference_kl" for entry in entries):
        raise UserError(
            f"objective {name!r}: reference_kl and trainer.kl_coefficient both add a reference KL; keep one of them"
        )


def _max_length(given: Mapping[str, Any]) -> Any:
    for key in given:
        if key != "max_length":
            raise UserError(f"aggregation.{key} is no parameter; aggregation has: max_length")
    return given.get("max_length")


def _parameters(entry: Entry, given: Mapping[str, Any]) -> Any:
    try:
        return entry.parameters(**given)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join([entry.name, *map(str, first["loc"])])
        if first["type"] == "extra_forbidden":
            known = ", ".join(entry.parameter_names) or "none"
            raise UserError(f"{key} is no parameter; {entry.name} has: {known}") from None
        raise UserError(f"{key}={first['input']!r}: {first['msg']}") from None


# ---------------------------------------------------------------------------------------------------------------------
# From settings to functions


def _unweighted(function: Callable[..., Tensor], **settings: Any) -> Advantage:
    """An advantage that asks for no weights of rollouts."""
    return lambda rewards, groups, valid, weights: function(rewards, groups, valid, **settings)


def _signbalance(p: parameters.SignBalance) -> Advantage:
    def advantage(rewards: Tensor, groups: Tensor, valid: Tensor, weights: Tensor | None, /) -> Tensor:
        return signbalance(
            rewards,
            groups,
            valid,
            weights if p.balance == "aggregation" else None,
            c=p.c,
            threshold=p.threshold,
            all_correct=p.c if p.all_correct == "c" else 0.0,
            max_negative=p.max_negative,
        )

    return advantage


def _search_sapo(p: parameters.SearchSAPO) -> Term:
    released = p.preset == "released"
    condition = p.condition or ("nonnegative" if released else "positive")
    boundary = p.boundary or ("closed" if released else "open")
    normalizer = p.normalizer or ("protected_tokens" if released else "aggregation")
    loss = partial(
        conditional_kl_tokens, tau=p.tau, arm=p.arm, nonnegative=condition == "nonnegative", closed=boundary == "closed"
    )
    if normalizer == "aggregation":
        return Term("search_sapo", loss, p.gamma)
    if p.arm in ("ratio", "unconditional"):  # every rollout is protected
        return Term("search_sapo", loss, p.gamma, "all_tokens")
    return Term("search_sapo", loss, p.gamma, "nonnegative_tokens" if condition == "nonnegative" else "positive_tokens")


def _llds(p: parameters.LLDS) -> Term:
    normalizer = p.normalizer or ("all_tokens" if p.preset == "released" else "protected_tokens")
    return Term(
        "llds",
        partial(lost_likelihood, gate=p.gate, ma=p.ma),
        p.weight,
        "all_tokens" if normalizer == "all_tokens" else "nonnegative_tokens",
    )


def _reference_kl(p: parameters.ReferenceKL) -> Term:
    return Term("reference_kl", partial(terms.reference_kl, estimator=p.estimator), p.coefficient)


def _entropy(p: parameters.Entropy) -> Term:
    return Term("entropy", terms.negative_entropy, p.coefficient, "all_tokens")


ADVANTAGES: dict[str, Callable[[Any], Advantage]] = {
    "grpo": lambda p: _unweighted(advantages.grpo, ddof=1 if p.std == "sample" else 0, eps=p.eps),
    "dr_grpo": lambda p: _unweighted(advantages.dr_grpo),
    "rloo": lambda p: _unweighted(advantages.rloo),
    "reinforce_pp": lambda p: _unweighted(advantages.reinforce_pp, group_baseline=p.baseline == "group", eps=p.eps),
    "signbalance": _signbalance,
}
"""Makers of the advantage slot, by name."""

RESHAPES: dict[str, Callable[[Any], Reshape]] = {
    "calibadv": lambda p: Reshape("calibadv", partial(calibadv.calibrate_trajectories, parameters=p)),
    "sspo": lambda p: Reshape("sspo", partial(sspo.weigh, parameters=p), partial(sspo.wants_teacher, parameters=p)),
}
"""Makers of reshapes, by name."""

SURROGATES: dict[str, Callable[[Any], Surrogate]] = {
    "ppo_clip": lambda p: partial(surrogates.ppo_clip, clip_low=p.clip_low, clip_high=p.clip_high),
    "dapo": lambda p: partial(surrogates.ppo_clip, clip_low=p.clip_low, clip_high=p.clip_high),
    "dual_clip": lambda p: partial(surrogates.dual_clip, **p.model_dump()),
    "gspo": lambda p: partial(surrogates.gspo, **p.model_dump()),
    "cispo": lambda p: partial(surrogates.cispo, **p.model_dump()),
    "soft_sapo": lambda p: partial(surrogates.soft_sapo, **p.model_dump()),
}
"""Makers of the surrogate slot, by name."""

TERMS: dict[str, Callable[[Any], Term]] = {
    "search_sapo": _search_sapo,
    "llds": _llds,
    "reference_kl": _reference_kl,
    "entropy": _entropy,
}
"""Makers of terms, by name."""


def _put_together(
    name: str,
    parts: Mapping[str, BaseModel],
    base: parameters.GRPO,
    aggregation: Aggregation,
    kl_coefficient: float,
) -> Objective:
    """The objective of these parts, in their order; slots that none of them fills are plain GRPO's.

    Args:
        parts: name → settings; at most one part a slot (see :func:`sleuth.objectives.resolve`).
        base: settings of plain GRPO.
        aggregation: checked.
        kl_coefficient: weight of a reference KL of its own, 0 where a part adds one.

    Raises:
        UserError: ``base`` sets something that another part's slot makes void.
    """
    advantage = _slot("advantage", ADVANTAGES, parts, base, {"std", "eps"})
    surrogate = _slot("surrogate", SURROGATES, parts, base, {"clip_low", "clip_high"})
    added = [TERMS[part](p) for part, p in parts.items() if part in TERMS]
    if kl_coefficient:
        added.append(_reference_kl(parameters.ReferenceKL(coefficient=kl_coefficient, estimator="k3")))
    reference = [term.weight for term in added if term.name == "reference_kl"]
    return Objective(
        name=name,
        advantage=advantage,
        surrogate=surrogate,
        reshapes=tuple(RESHAPES[part](p) for part, p in parts.items() if part in RESHAPES),
        terms=tuple(added),
        aggregation=aggregation,
        kl_coefficient=reference[0] if reference else 0.0,
        needs_entropy="entropy" in parts,
        needs_answers=any(isinstance(p, parameters.LLDS) and p.ma for p in parts.values()),
        needs_drift=tuple(part for part in parts if part in ("search_sapo", "llds")),
        needs_teacher="sspo" in parts,
        zero_variance=_zero_variance(name, parts),
    )


def _zero_variance(name: str, parts: Mapping[str, Any]) -> parameters.ZeroVariance:
    """What the parts that have a say in it agree on.

    Raises:
        UserError: they don't.
    """
    asked = {part: p for part, p in parts.items() if "zero_variance" in type(p).model_fields}
    # A default of keep asks for nothing: beside dapo, sspo leaves the choice to it.
    wanted = {
        p.zero_variance for p in asked.values() if p.zero_variance != "keep" or "zero_variance" in p.model_fields_set
    }
    if len(wanted) > 1:
        found = " and ".join(f"{part}.zero_variance={p.zero_variance}" for part, p in asked.items())
        raise UserError(f"objective {name!r}: {found} differ; set both alike")
    return wanted.pop() if wanted else "keep"


def _slot(
    slot: str, makers: dict[str, Callable], parts: Mapping[str, Any], base: parameters.GRPO, own: set[str]
) -> Any:
    """What fills a slot: a part, or plain GRPO."""
    filling = next((part for part in parts if part in makers and part != "grpo"), None)
    if filling is None:
        return makers["grpo" if "grpo" in makers else "ppo_clip"](base)
    void = sorted(base.model_fields_set & own)
    if void:
        raise UserError(f"grpo.{void[0]} has no effect, since {filling} sets the {slot}; drop it")
    return makers[filling](parts[filling])


def check_aggregation(name: str, max_length: Any, implied_by: str | None = None) -> Aggregation:
    """The aggregation of this name.

    Raises:
        UserError: no such aggregation; ``sum_over_max_length`` without its length; a length that nothing uses.
    """
    if name not in AGGREGATIONS:
        raise UserError(f"aggregation {name!r} is not known; known: {', '.join(AGGREGATIONS)}")
    source = f", which {implied_by} implies," if implied_by else ""
    if name != "sum_over_max_length":
        if max_length is not None:
            raise UserError(
                f"aggregation.max_length has no effect with {name}{source.rstrip(',')}; "
                "write aggregation=sum_over_max_length or drop it"
            )
        return Aggregation(name)
    if max_length is None:
        raise UserError(
            f"aggregation sum_over_max_length{source} needs aggregation.max_length, the tokens of the longest "
            "completion; set it, or choose another, such as aggregation=token_mean"
        )
    if isinstance(max_length, bool) or not isinstance(max_length, int) or max_length < 1:
        raise UserError(f"aggregation.max_length={max_length!r}: must be a whole number of tokens, at least 1")
    return Aggregation(name, max_length)
