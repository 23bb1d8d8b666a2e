"""Our losses and advantages against verl's own, on the same log-probs and rewards; and where the two differ.

Importing verl takes seconds, which is nearly all that these tests cost.
"""

import numpy as np
import pytest
import torch
from batches import batch, step

from sleuth.objectives import advantages as ours
from sleuth.objectives import resolve
from sleuth.objectives.surrogates import ppo_clip
from sleuth.objectives.tokens import Tokens

pytest.importorskip("verl", reason="verl is not in this environment")

from verl.trainer.config import AlgoConfig
from verl.trainer.ppo.core_algos import get_adv_estimator_fn, get_policy_loss_fn
from verl_actor import actor_config, actor_loss

MAX_LENGTH = 20
NEVER = 1e9  # as a bound of verl's dual clip


def _batch(seed=0, per_token=False):
    """Wide enough that every bound is reached: ratios from 0.1 to 20 and more."""
    logp, old, advantages, mask = batch(seed, rows=8, length=16, spread=1.2)
    if per_token:
        g = torch.Generator().manual_seed(seed + 100)
        advantages = advantages[:, None] * torch.rand(mask.shape, generator=g, dtype=advantages.dtype)
    return logp, old, advantages, mask


# Losses


# Ours: name, parameters, aggregation. verl's: settings of its actor; those that aren't named are verl's defaults.
CASES = {
    "verl's default is dual_clip": ("dual_clip", {}, None, {}),
    "grpo": ("grpo", {}, None, {"clip_ratio_c": NEVER}),
    "dapo": ("dapo", {}, None, {"clip_ratio_high": 0.28, "clip_ratio_c": NEVER}),
    "gspo": (
        "gspo",
        {},
        "seq_mean_token_mean",
        {
            "loss_mode": "gspo",
            "clip_ratio_low": 3e-4,
            "clip_ratio_high": 4e-4,
            "loss_agg_mode": "seq-mean-token-mean",
        },
    ),
    "gspo, wide clip": ("gspo", {"gspo": {"clip_low": 0.2, "clip_high": 0.2}}, None, {"loss_mode": "gspo"}),
    "cispo": ("cispo", {}, None, {"loss_mode": "cispo", "clip_ratio_low": 1.0, "clip_ratio_high": 4.0}),
    "cispo, verl's default bounds": (
        "cispo",
        {"cispo": {"ratio_min": 0.8, "ratio_max": 1.2}},
        None,
        {"loss_mode": "cispo"},
    ),
    "soft_sapo": (
        "soft_sapo",
        {},
        "seq_mean_token_mean",
        {"loss_mode": "sapo", "loss_agg_mode": "seq-mean-token-mean"},
    ),
    "seq_mean_token_mean": ("dual_clip", {}, "seq_mean_token_mean", {"loss_agg_mode": "seq-mean-token-mean"}),
    "sum_over_max_length": (
        "dual_clip",
        {"aggregation": {"max_length": MAX_LENGTH}},
        "sum_over_max_length",
        {"loss_agg_mode": "seq-mean-token-sum-norm", "loss_scale_factor": MAX_LENGTH},
    ),
    "sum_over_max_length, not divided": (
        "dual_clip",
        {"aggregation": {"max_length": 1}},
        "sum_over_max_length",
        {"loss_agg_mode": "seq-mean-token-sum"},
    ),
    "dr_grpo": (
        "dr_grpo",
        {"aggregation": {"max_length": MAX_LENGTH}},
        None,
        {"clip_ratio_c": NEVER, "loss_agg_mode": "seq-mean-token-sum-norm", "loss_scale_factor": MAX_LENGTH},
    ),
    **{
        f"reference_kl, {estimator} as {kind}": (
            "dual_clip+reference_kl",
            {"reference_kl": {"coefficient": 0.04, "estimator": estimator}},
            aggregation,
            {"use_kl_loss": True, "kl_loss_coef": 0.04, "kl_loss_type": kind, "loss_agg_mode": mode},
        )
        for estimator, kind, aggregation, mode in [
            ("k1", "kl", None, "token-mean"),
            ("k2", "mse", None, "token-mean"),
            ("k3", "low_var_kl", None, "token-mean"),
            ("k3", "k3", "seq_mean_token_mean", "seq-mean-token-mean"),
        ]
    },
    "entropy": ("dual_clip+entropy", {"entropy": {"coefficient": 0.01}}, None, {"entropy_coeff": 0.01}),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("per_token", [False, True], ids=["an advantage a rollout", "an advantage a token"])
@pytest.mark.parametrize("seed", range(3))
def test_loss_and_gradient_are_those_of_verl(case, per_token, seed):
    name, parameters, aggregation, theirs = CASES[case]
    logp, old, advantages, mask = _batch(seed, per_token)
    ref = logp.detach() + (old - logp).clamp(-2, 2) - 0.2 if "reference_kl" in name else None
    entropy = 3 * torch.rand(mask.shape, dtype=logp.dtype) if "entropy" in name else None
    loss, grad = step(resolve(name, parameters, aggregation), logp, old, advantages, mask, ref, entropy=entropy)
    verls, verls_grad, _ = actor_loss(actor_config(**theirs), logp, old, advantages, mask, ref, entropy)
    assert loss.item() == pytest.approx(verls.item(), abs=1e-6)
    torch.testing.assert_close(grad, verls_grad, rtol=0, atol=1e-6)
    assert grad.abs().max() > 1e-3


@pytest.mark.parametrize("aggregation", ["token_mean", "seq_mean_token_mean"])
def test_micro_batches_and_ranks_of_verl_add_up_to_our_step(aggregation):
    logp, old, advantages, mask = _batch()
    config = actor_config(loss_agg_mode=aggregation.replace("_", "-"))
    whole = step(resolve("dual_clip", aggregation=aggregation), logp, old, advantages, mask)
    parts = [
        actor_loss(config, *(x[rows] for x in (logp, old, advantages, mask)), step_mask=mask, ranks=2)
        for rows in (slice(0, 3), slice(3, 4), slice(4, 8))
    ]
    torch.testing.assert_close(sum(part[0] for part in parts) / 2, whole[0], rtol=0, atol=1e-6)
    torch.testing.assert_close(torch.cat([part[1] for part in parts]) / 2, whole[1], rtol=0, atol=1e-6)


# Advantages

REWARDS = torch.tensor([1.0, 0, 0, 1, 0.35, 0.35, 0.35, -0.25, 0, 0, 1], dtype=torch.float64)
GROUPS = torch.tensor([3, 3, 3, 3, 7, 7, 7, 7, 5, 5, 5])


def _verls(estimator, rewards, groups, mask=None, **settings):
    """(B,) by verl's registered estimator; it returns (B, T), and all policy tokens of a row must agree."""
    mask = torch.ones(len(rewards), 3, dtype=torch.long) if mask is None else mask
    scores = torch.zeros(mask.shape, dtype=rewards.dtype)
    last = mask.shape[1] - 1 - mask.flip(1).argmax(1)
    scores[torch.arange(len(rewards)), last] = rewards  # verl puts a rollout's reward on its last token
    index = np.array([f"question {g}" for g in groups.tolist()], dtype=object)
    result, _ = get_adv_estimator_fn(estimator)(
        token_level_rewards=scores, response_mask=mask, index=index, config=AlgoConfig(), **settings
    )
    policy = mask.bool()
    first = result.gather(1, policy.int().argmax(1, keepdim=True))
    torch.testing.assert_close(result, torch.where(policy, first, 0.0))
    return first[:, 0]


@pytest.mark.parametrize(
    ("estimator", "settings", "name", "parameters"),
    [
        ("grpo", {}, "grpo", {}),
        ("grpo_vectorized", {}, "grpo", {}),
        ("grpo", {"norm_adv_by_std_in_grpo": False}, "dr_grpo", {"aggregation": {"max_length": MAX_LENGTH}}),
        ("grpo_vectorized", {"norm_adv_by_std_in_grpo": False}, "dr_grpo", {"aggregation": {"max_length": MAX_LENGTH}}),
        ("rloo", {}, "rloo", {}),
        ("rloo_vectorized", {}, "rloo", {}),
    ],
)
@pytest.mark.parametrize("permuted", [False, True])
def test_advantages_are_those_of_verl(estimator, settings, name, parameters, permuted):
    order = torch.randperm(len(REWARDS), generator=torch.Generator().manual_seed(1)) if permuted else slice(None)
    rewards, groups = REWARDS[order], GROUPS[order]
    valid = torch.ones(len(rewards), dtype=torch.bool)
    advantages = resolve(name, parameters).advantages(rewards, groups, valid)
    torch.testing.assert_close(advantages, _verls(estimator, rewards, groups, **settings), rtol=0, atol=1e-6)
    assert advantages.abs().max() > 0.5


@pytest.mark.parametrize(
    ("estimator", "group_baseline"), [("reinforce_plus_plus", False), ("reinforce_plus_plus_baseline", True)]
)
def test_reinforce_pp_of_equally_long_rollouts_is_verls_but_for_the_sample_correction(estimator, group_baseline):
    n, length = len(REWARDS), 3
    valid = torch.ones(n, dtype=torch.bool)
    advantages = ours.reinforce_pp(REWARDS, GROUPS, valid, group_baseline=group_baseline)
    # Both divide by a sample deviation: ours of n rollouts, verl's of n · length tokens.
    correction = ((n * length - 1) / (length * (n - 1))) ** 0.5
    torch.testing.assert_close(advantages * correction, _verls(estimator, REWARDS, GROUPS), rtol=0, atol=1e-6)


# Where verl differs by definition. Each of these is said in docs/verl.md.


def test_verls_reinforce_pp_weighs_rollouts_by_their_length():
    lengths = torch.tensor([9, 1, 1, 9, 5, 5, 5, 1, 2, 3, 4])
    mask = (torch.arange(9) < lengths[:, None]).long()
    verls = _verls("reinforce_plus_plus", REWARDS, GROUPS, mask)
    tokens = REWARDS.repeat_interleave(lengths)
    torch.testing.assert_close(verls, (REWARDS - tokens.mean()) / tokens.std(), rtol=0, atol=1e-6)
    rollouts = ours.reinforce_pp(REWARDS, GROUPS, torch.ones(len(REWARDS), dtype=torch.bool))
    assert (verls - rollouts).abs().max() > 0.1


def test_verls_reinforce_pp_loses_the_reward_of_a_rollout_that_ends_in_a_passage():
    rewards, groups = torch.tensor([1.0, 1.0, 0.0, 0.0]), torch.tensor([0, 0, 1, 1])
    mask = torch.tensor([[1, 1, 0], [1, 1, 1], [1, 1, 1], [1, 1, 1]])
    scores = torch.zeros(4, 3)
    scores[:, -1] = rewards  # verl's agent loops put it on the last token of all
    verls, _ = get_adv_estimator_fn("reinforce_plus_plus")(
        token_level_rewards=scores, response_mask=mask, config=AlgoConfig()
    )
    first = verls[:, 0]
    assert first[0] == first[2] == first[3] < 0 < first[1]
    rollouts = ours.reinforce_pp(rewards, groups, torch.ones(4, dtype=torch.bool))
    assert rollouts[0] == rollouts[1] > 0


def test_verl_keeps_the_reward_of_a_lone_rollout_and_we_give_zero():
    rewards, groups = torch.tensor([1.0, 0.0, 0.7]), torch.tensor([0, 0, 1])
    valid = torch.ones(3, dtype=torch.bool)
    for estimator, name in [("grpo", ours.grpo), ("rloo", ours.rloo)]:
        assert _verls(estimator, rewards, groups)[2] == pytest.approx(0.7, abs=1e-5)
        assert name(rewards, groups, valid)[2] == 0


def test_equal_rewards_leave_a_residue_in_verl_and_exactly_zero_in_ours():
    rewards, groups = torch.full((7,), 0.35), torch.zeros(7, dtype=torch.long)
    assert _verls("grpo", rewards, groups).abs().max() > 1e-3
    assert not ours.grpo(rewards, groups, torch.ones(7, dtype=torch.bool)).any()


def test_verls_vanilla_without_a_bound_for_bad_rollouts_is_not_to_be_had_by_default():
    values = _batch()
    loss, _ = step(resolve("grpo"), *values)
    verls, *_ = actor_loss(actor_config(), *values)
    assert loss - verls > 1e-3


def test_verls_sapo_takes_the_mean_over_rollouts_whatever_is_asked_for():
    values = _batch()
    verls, *_ = actor_loss(actor_config("sapo", loss_agg_mode="token-mean"), *values)
    torch.testing.assert_close(step(resolve("soft_sapo", aggregation="seq_mean_token_mean"), *values)[0], verls)
    assert abs(step(resolve("soft_sapo"), *values)[0] - verls) > 1e-3


def test_verls_sapo_is_not_search_sapo():
    values = _batch()
    verls, *_ = actor_loss(actor_config("sapo"), *values)
    assert abs(step(resolve("search_sapo", aggregation="seq_mean_token_mean"), *values)[0] - verls) > 1e-3


def test_verl_caps_k3_of_a_token_at_ten_and_we_do_not():
    logp = torch.tensor([[-4.0, -1.0]], dtype=torch.float64)
    ref = torch.tensor([[-1.0, -1.0]], dtype=torch.float64)  # exp(3) - 3 - 1 = 16.09
    values = (logp, logp.clone(), torch.zeros(1), torch.ones(1, 2, dtype=torch.bool), ref)
    loss, grad = step(resolve("reference_kl", {"reference_kl": {"coefficient": 1.0}}), *values)
    verls, verls_grad, _ = actor_loss(actor_config(use_kl_loss=True, kl_loss_coef=1.0), *values)
    assert (loss.item(), verls.item()) == (pytest.approx((np.exp(3) - 4) / 2), 5.0)
    assert grad[0, 0] < -1
    assert verls_grad[0, 0] == 0


def test_verl_bounds_the_ratio_of_gspo_at_e10_and_we_at_e20():
    old = torch.full((1, 2), -15.0, dtype=torch.float64)
    values = (old + 15, old, torch.tensor([-1.0]), torch.ones(1, 2, dtype=torch.bool))
    loss, _ = step(resolve("gspo"), *values)
    verls, *_ = actor_loss(actor_config("gspo"), *values)
    assert (loss.item(), verls.item()) == (pytest.approx(np.exp(15)), pytest.approx(np.exp(10)))


def test_verl_divides_by_the_padded_length_where_none_is_given():
    values = _batch()
    verls, *_ = actor_loss(actor_config(loss_agg_mode="seq-mean-token-sum-norm"), *values)
    padded = values[-1].shape[1]
    objective = resolve("dual_clip", {"aggregation": {"max_length": padded}}, "sum_over_max_length")
    torch.testing.assert_close(step(objective, *values)[0], verls)


def test_verl_counts_rollouts_without_a_policy_token_and_we_do_not():
    logp, old, advantages, mask = _batch()
    mask[-1] = False
    values = (logp, old, advantages, mask)
    verls, *_ = actor_loss(actor_config(loss_agg_mode="seq-mean-token-mean"), *values)
    loss, _ = step(resolve("dual_clip", aggregation="seq_mean_token_mean"), *values)
    torch.testing.assert_close(loss * 7 / 8, verls, rtol=0, atol=1e-6)


def test_what_stands_at_masked_places_does_not_reach_ours_and_is_nan_in_verl():
    logp, old, advantages, mask = _batch()
    clean = ppo_clip(Tokens.build(logp, old, advantages, mask))[0].detach()
    dirty = torch.where(mask, old, float("nan"))
    torch.testing.assert_close(ppo_clip(Tokens.build(logp, dirty, advantages, mask))[0].detach(), clean)
    spread = advantages[:, None] * mask
    config = actor_config(loss_agg_mode="seq-mean-token-mean")
    loss, _ = get_policy_loss_fn("vanilla")(dirty, logp, spread, mask, "seq-mean-token-mean", config)
    assert loss.isnan()
