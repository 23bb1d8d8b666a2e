"""Our objective through SkyRL's own registries, scaling and corrections, against the objective itself: 1e-6."""

import cloudpickle
import pytest
import torch

pytest.importorskip("skyrl", reason="SkyRL is not in this environment")

from skyrl.backends.skyrl_train.utils import ppo_utils
from skyrl.train.config import AlgorithmConfig

from sleuth.errors import UserError
from sleuth.objectives import resolve
from sleuth.objectives.aggregation import StepTotals
from sleuth.objectives.table import TABLE
from sleuth.objectives.tokens import Tokens
from sleuth.training.skyrl import NAME, REDUCTIONS, policy_loss, register

EXACT = {"rtol": 1e-6, "atol": 1e-9}
ROWS, LENGTH = 8, 9
GROUPS = ["a", "b", "a", "b", "a", "b", "a", "b"]
REWARDS = [1.0, 0.0, 0.0, 0.5, 0.0, 1.0, 1.0, 0.0]
SURROGATES = [name for name, entry in TABLE.items() if entry.slot == "surrogate"]
KEEP = {"dapo": {"dapo": {"zero_variance": "keep"}}}


@pytest.fixture(autouse=True)
def clean_registries():
    yield
    for registry in (ppo_utils.AdvantageEstimatorRegistry, ppo_utils.PolicyLossRegistry):
        if NAME in registry.list_available():
            registry.unregister(NAME)


def rollouts(seed=0):
    """(log-probs, old ones, policy mask, response mask): a passage in each row, and padding in all but one."""
    g = torch.Generator().manual_seed(seed)
    logp = -torch.rand(ROWS, LENGTH, generator=g, dtype=torch.float64) * 3
    old = logp + 0.4 * torch.randn(ROWS, LENGTH, generator=g, dtype=torch.float64)
    response = torch.arange(LENGTH) < torch.randint(5, LENGTH + 1, (ROWS, 1), generator=g)
    policy = response.clone()
    policy[:, 2:4] = False
    return logp, old, policy, response


def through_skyrl(objective, parameters, reduction, micro_batch, **settings):
    """(loss, gradient) of one update as SkyRL's trainer and workers go about it."""
    register(objective, parameters, reduction=reduction, rollouts_per_update=ROWS)
    config = AlgorithmConfig(
        advantage_estimator=NAME, policy_loss_type=NAME, loss_reduction=reduction, max_seq_len=LENGTH, **settings
    )
    logp, old, policy, response = rollouts()
    rewards = torch.zeros(ROWS, LENGTH)
    rewards[:, -1] = torch.tensor(REWARDS)
    advantages, _ = ppo_utils.compute_advantages_and_returns(
        rewards, response.float(), GROUPS, config.advantage_estimator, config
    )
    scaled = ppo_utils.apply_loss_reduction_to_advantages_minibatch(
        advantages.double(), policy.double(), reduction, micro_batch, LENGTH
    )
    # Workers get the functions as bytes.
    loss_function = cloudpickle.loads(cloudpickle.dumps(ppo_utils.PolicyLossRegistry.get(config.policy_loss_type)))
    leaf = logp.clone().requires_grad_()
    total = 0.0
    for first in range(0, ROWS, micro_batch):
        rows = slice(first, first + micro_batch)
        loss, metrics = loss_function(
            leaf[rows], old[rows], scaled[rows], config=config, loss_mask=policy[rows].double(), rollout_logprobs=None
        )
        assert 0 <= metrics["clip_ratio"] <= 1
        assert metrics["dropped_tokens"] == 0
        loss.backward()
        total += loss.item()
    return total, leaf.grad


def by_the_objective(objective, parameters, reduction):
    logp, old, policy, _ = rollouts()
    parameters = dict(parameters or {})
    if reduction == "seq_mean_token_sum_norm":
        parameters["aggregation"] = {"max_length": LENGTH}
    resolved = resolve(objective, parameters, aggregation=REDUCTIONS[reduction])
    groups = torch.tensor([ord(name) for name in GROUPS])
    advantages = resolved.advantages(torch.tensor(REWARDS), groups, torch.ones(ROWS, dtype=torch.bool))
    leaf = logp.clone().requires_grad_()
    tokens = Tokens.build(leaf, old, advantages.double(), policy)
    loss = resolved.token_loss(tokens, StepTotals.of(policy, tokens.rollout_advantages)).loss.sum()
    loss.backward()
    return loss.item(), leaf.grad


@pytest.mark.parametrize(
    ("objective", "reduction"),
    [
        (name, reduction)
        for name in ("grpo", "rloo", "dr_grpo", "reinforce_pp", *SURROGATES)
        for reduction in REDUCTIONS
        if TABLE[name].aggregation in (None, REDUCTIONS[reduction])
    ],
)
def test_an_objective_without_a_term_is_itself_under_every_reduction(objective, reduction):
    loss, grad = through_skyrl(objective, KEEP.get(objective), reduction, micro_batch=2)
    expected, expected_grad = by_the_objective(objective, KEEP.get(objective), reduction)
    assert loss == pytest.approx(expected, rel=1e-6, abs=1e-9)
    torch.testing.assert_close(grad, expected_grad, **EXACT)
    assert grad.abs().sum() > 0


@pytest.mark.parametrize("reduction", ["sequence_mean", "seq_mean_token_sum_norm"])
@pytest.mark.parametrize(
    ("objective", "parameters"),
    [
        ("search_sapo", {"search_sapo": {"gamma": 0.3}}),
        ("gspo+search_sapo", {"search_sapo": {"gamma": 0.7, "tau": 0.9}}),
        ("soft_sapo+search_sapo", {"search_sapo": {"preset": "released", "normalizer": "aggregation"}}),
        ("rloo+dual_clip+search_sapo", {}),
    ],
)
@pytest.mark.parametrize("micro_batch", [1, 4, 8])
def test_terms_have_their_share_though_skyrl_scales_advantages_alone(objective, parameters, reduction, micro_batch):
    loss, grad = through_skyrl(objective, parameters, reduction, micro_batch)
    expected, expected_grad = by_the_objective(objective, parameters, reduction)
    assert loss == pytest.approx(expected, rel=1e-6, abs=1e-9)
    torch.testing.assert_close(grad, expected_grad, **EXACT)
    without, _ = by_the_objective("grpo", None, reduction)
    assert abs(loss - without) > 1e-4


def test_signbalance_under_the_mean_of_sequences():
    loss, grad = through_skyrl("signbalance+search_sapo", None, "sequence_mean", micro_batch=2)
    expected, expected_grad = by_the_objective("signbalance+search_sapo", None, "sequence_mean")
    assert loss == pytest.approx(expected, rel=1e-6, abs=1e-9)
    torch.testing.assert_close(grad, expected_grad, **EXACT)


def test_our_grpo_is_skyrls_own():
    loss, grad = through_skyrl("grpo", None, "token_mean", micro_batch=2)
    logp, old, policy, response = rollouts()
    config = AlgorithmConfig(loss_reduction="token_mean")
    rewards = torch.zeros(ROWS, LENGTH)
    rewards[:, -1] = torch.tensor(REWARDS)
    advantages, _ = ppo_utils.compute_advantages_and_returns(
        rewards, response.float(), GROUPS, "grpo", config, grpo_norm_by_std=True
    )
    scaled = ppo_utils.apply_loss_reduction_to_advantages_minibatch(
        advantages.double(), policy.double(), "token_mean", 2, LENGTH
    )
    leaf = logp.clone().requires_grad_()
    theirs, _ = ppo_utils.PolicyLossRegistry.get("regular")(leaf, old, scaled, config, policy.double())
    theirs.backward()
    assert loss == pytest.approx(theirs.item(), rel=1e-5)
    torch.testing.assert_close(grad, leaf.grad, rtol=1e-5, atol=1e-9)


def test_skyrls_correction_weighs_the_surrogate_and_not_the_term():
    logp, old, policy, _ = rollouts()
    config = AlgorithmConfig(loss_reduction="sequence_mean")
    config.off_policy_correction.tis_ratio_type = "token"
    config.off_policy_correction.token_tis_ratio_clip_high = 2.0
    share = 1 / (ROWS * policy.sum(-1, keepdim=True))
    advantages = torch.linspace(-1, 1, ROWS)[:, None] * share
    sampled = old - 0.5  # the sampler's log-probs: weights exp(0.5) everywhere
    masked = policy.double()
    plain = policy_loss("grpo", None, "sequence_mean", ROWS)(logp, old, advantages, config, masked)[0]
    weighed = policy_loss("grpo", None, "sequence_mean", ROWS)(logp, old, advantages, config, masked, sampled)[0]
    torch.testing.assert_close(weighed, plain * torch.tensor(0.5, dtype=torch.float64).exp(), rtol=1e-6, atol=0)
    both = policy_loss("search_sapo", None, "sequence_mean", ROWS)(logp, old, advantages, config, masked, sampled)[0]
    term = policy_loss("search_sapo", None, "sequence_mean", ROWS)(logp, old, advantages, config, masked)[0] - plain
    torch.testing.assert_close(both - weighed, term, rtol=1e-6, atol=1e-12)


def test_a_failed_rollout_takes_no_part():
    register("grpo", reduction="token_mean")
    config = AlgorithmConfig(advantage_estimator=NAME)
    response = torch.ones(4, 3)
    response[3] = 0
    rewards = torch.zeros(4, 3)
    rewards[0, -1] = 1.0
    rewards[3, -1] = 100.0
    advantages, _ = ppo_utils.compute_advantages_and_returns(rewards, response, ["a"] * 4, NAME, config)
    assert advantages[3].abs().sum() == 0
    assert advantages[:3, 0].sum().item() == pytest.approx(0, abs=1e-6)
    assert advantages[0, 0] > 0


@pytest.mark.parametrize(
    ("objective", "reduction", "rollouts_per_update", "message"),
    [
        ("calibadv", "sequence_mean", 8, "turns and documents"),
        ("sspo+search_sapo", "sequence_mean", 8, "turns and documents"),
        ("search_sapo", "token_mean", 8, "sequence_mean"),
        ("search_sapo", "sequence_mean", None, "policy_mini_batch_size"),
        ("search_sapo+llds", "sequence_mean", 8, "nonnegative tokens"),
        ("signbalance", "token_mean", None, "sequence_mean"),
        ("dr_grpo", "token_mean", None, "seq_mean_token_sum_norm"),
        ("reference_kl", "sequence_mean", 8, "use_kl_loss"),
        ("dapo", "token_mean", None, "zero_variance_filter"),
        ("grpo", "prompt_mean", None, "no counterpart"),
    ],
)
def test_what_the_registries_cant_do_is_refused(objective, reduction, rollouts_per_update, message):
    with pytest.raises(UserError, match=message):
        register(objective, reduction=reduction, rollouts_per_update=rollouts_per_update)
    assert NAME not in ppo_utils.PolicyLossRegistry.list_available()


def test_other_settings_than_those_registered_for_are_refused():
    logp, old, policy, _ = rollouts()
    loss = policy_loss("grpo", None, "token_mean", None)
    with pytest.raises(UserError, match="loss_reduction=sequence_mean"):
        loss(logp, old, logp, AlgorithmConfig(loss_reduction="sequence_mean"), policy)
    with pytest.raises(UserError, match="advantage_batch_normalize"):
        loss(logp, old, logp, AlgorithmConfig(advantage_batch_normalize=True), policy)


def test_a_name_that_is_taken_is_refused():
    register("grpo", reduction="token_mean")
    with pytest.raises(UserError, match="one objective a process"):
        register("rloo", reduction="token_mean")
