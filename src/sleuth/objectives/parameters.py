"""Settings of the objectives, with the papers' defaults. Imports no torch: they are listed without it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Parameters(BaseModel):
    """Settings of one name of the table; unknown ones are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


ZeroVariance = Literal["mask", "copy", "keep"]
"""What becomes of the rollouts of groups whose rewards are all equal."""


class Nothing(Parameters):
    """No settings."""


# Advantages


class GRPO(Parameters):
    """The base that every other name changes."""

    std: Literal["sample", "population"] = Field("sample", description="which standard deviation divides")
    eps: float = Field(1e-6, ge=0, description="added to the standard deviation")
    clip_low: float = Field(0.2, ge=0, lt=1, description="the ratio is clipped below 1 - clip_low")
    clip_high: float = Field(0.2, ge=0, description="the ratio is clipped above 1 + clip_high")


class ReinforcePP(Parameters):
    baseline: Literal["none", "group"] = Field(
        "none", description="subtracted before the batch's statistics: none, or the group's mean (several rollouts)"
    )
    eps: float = Field(1e-8, ge=0, description="added to the standard deviation")


class SignBalance(Parameters):
    c: float = Field(1.0, gt=0, description="advantage of a right rollout")
    threshold: float = Field(1.0, description="a reward of at least this counts as right")
    all_correct: Literal["zero", "c"] = Field(
        "zero", description="advantage in a group without a wrong rollout: zero, or c as the paper's algorithm returns"
    )
    balance: Literal["aggregation", "rollouts"] = Field(
        "aggregation",
        description="what sums to zero in a group: the weights that the aggregation gives, or rollouts as in the paper",
    )
    max_negative: float | None = Field(
        None, gt=0, description="bound on the size of a wrong rollout's advantage; none: unbounded, as in the paper"
    )


# Reshapes

CALIBADV_PRESETS: dict[str, dict[str, Any]] = {
    "paper": {"silver": "correct", "novelty": False, "max_similarity": None, "max_shared": None},
    "released": {"silver": "best", "novelty": True, "max_similarity": 0.5, "max_shared": 1},
}
"""Where the paper's formula and the authors' published code differ."""


class CalibAdv(Parameters):
    """A preset sets what isn't given beside it; the defaults shown are the paper's."""

    model_config = ConfigDict(populate_by_name=True)

    preset: Literal["paper", "released"] = Field(
        default="paper", description="the paper's formula, or its published code with the novelty and repetition rules"
    )
    threshold: float = Field(default=0.7, description="a well-formed rollout with at least this reward is correct")
    silver: Literal["correct", "best"] = Field(
        default="correct",
        description="whose documents are silver: all correct rollouts, or those of the highest reward",
    )
    novelty: bool = Field(default=False, description="a document counts only where the rollout sees it first")
    max_similarity: float | None = Field(
        default=None, ge=0, le=1, description="a search whose thought is more alike to an earlier one scores 0"
    )
    max_shared: int | None = Field(
        default=None, ge=0, description="a search that shares more documents with an earlier one scores 0"
    )
    think: str = Field(
        default="think", min_length=1, description="tag around thoughts in the rollouts' text, for max_similarity"
    )
    soften: bool = Field(default=True, description="soft penalisation of searches")
    score_malformed: bool = Field(default=False, description="soften searches of malformed rollouts too")
    rebalance: Literal["answer", "all", "none"] = Field(
        default="answer", description="the tokens that are rebalanced: of the last turns, of all turns, or none"
    )
    lambda_: float = Field(
        default=1.0, gt=0, alias="lambda", description="positive sum over negative sum that the rebalance aims at"
    )
    zero_one_sided: bool = Field(
        default=True, description="a group whose rebalanced tokens have only one sign gets 0 there"
    )

    @model_validator(mode="before")
    @classmethod
    def _fill_from_preset(cls, given: Any) -> Any:
        preset = CALIBADV_PRESETS.get(given.get("preset", "paper")) if isinstance(given, dict) else None
        return given if preset is None else {**preset, **given}


Granularity = Literal["step", "token"]


class SSPO(Parameters):
    eps: float = Field(default=0.2, ge=0, description="a weight is at most 1 + eps; there is no floor above 0")
    granularity: Granularity = Field(default="step", description="one weight a step (a policy turn), or one a token")
    gain_as: Literal["weight", "advantage"] = Field(
        default="weight",
        description="what the teacher's gain becomes: a weight of the advantage, or the advantage itself, token by "
        "token (the paper's OPSD ablation)",
    )
    correct_reward: float = Field(
        default=1.0, description="rollouts with a reward below this are incorrect and get weighed"
    )
    zero_variance: ZeroVariance = Field(default="keep", description="as dapo.zero_variance; the paper's runs have copy")


# Surrogates


class PPOClip(Parameters):
    clip_low: float = Field(0.2, ge=0, lt=1, description="the ratio is clipped below 1 - clip_low")
    clip_high: float = Field(0.2, ge=0, description="the ratio is clipped above 1 + clip_high")


class DualClip(PPOClip):
    clip_max: float = Field(3.0, gt=1, description="for A < 0 the loss stays at most clip_max · |A|")


class DAPO(PPOClip):
    clip_high: float = Field(0.28, ge=0, description="the ratio is clipped above 1 + clip_high")
    zero_variance: ZeroVariance = Field(
        "mask",
        description="groups whose rewards are all equal: left out of the step (mask), their places given to copies of "
        "other groups (copy), or kept in the counts (keep)",
    )


class GSPO(Parameters):
    clip_low: float = Field(3e-4, ge=0, lt=1, description="the sequence's ratio is clipped below 1 - clip_low")
    clip_high: float = Field(4e-4, ge=0, description="the sequence's ratio is clipped above 1 + clip_high")


class CISPO(Parameters):
    ratio_min: float = Field(0.0, ge=0, description="lower bound of the weight; 0: none, as in the paper")
    ratio_max: float = Field(5.0, gt=0, description="upper bound of the weight (the paper tunes it and names no value)")


class SoftSAPO(Parameters):
    temperature_pos: float = Field(1.0, gt=0, description="steepness of the gate for A > 0")
    temperature_neg: float = Field(1.05, gt=0, description="steepness of the gate for A <= 0")


# Terms


class SearchSAPO(Parameters):
    preset: Literal["paper", "released"] = Field(
        "paper", description="where paper and code differ: condition, boundary and normaliser follow this"
    )
    gamma: float = Field(0.1, ge=0, description="weight of the penalty")
    tau: float = Field(1.0, gt=0, description="ratios below this are penalised")
    arm: Literal["full", "ratio", "advantage", "unconditional"] = Field(
        "full", description="which conditions hold: both, one of them, or none (the paper's ablation)"
    )
    condition: Literal["positive", "nonnegative"] | None = Field(
        None, description="rollouts it protects: A > 0 or A >= 0; by preset positive | nonnegative"
    )
    boundary: Literal["open", "closed"] | None = Field(
        None, description="a ratio of exactly tau: left alone or penalised; by preset open | closed"
    )
    normalizer: Literal["aggregation", "protected_tokens"] | None = Field(
        None,
        description="divided as the surrogate is, or by the step's tokens of protected rollouts; "
        "by preset aggregation | protected_tokens",
    )


class LLDS(Parameters):
    preset: Literal["paper", "released"] = Field("paper", description="where paper and code differ: the normaliser")
    weight: float = Field(0.2, ge=0, description="weight of the penalty (the paper's 7B-Instruct run has 0.3)")
    gate: Literal["token", "response", "action"] = Field(
        "action", description="what must have lost likelihood as a whole before its tokens are penalised"
    )
    ma: bool = Field(
        False, description="answer tokens weigh min(searches / 2, 1), so that answering early is not protected"
    )
    normalizer: Literal["protected_tokens", "all_tokens"] | None = Field(
        None,
        description="divided by the step's tokens of protected rollouts or by all; "
        "by preset protected_tokens | all_tokens",
    )


class ReferenceKL(Parameters):
    coefficient: float = Field(0.001, gt=0, description="weight of the penalty")
    estimator: Literal["k1", "k2", "k3"] = Field("k3", description="which estimate of the KL, after Schulman (2020)")


class Entropy(Parameters):
    coefficient: float = Field(0.001, description="weight of the bonus; negative punishes entropy")
