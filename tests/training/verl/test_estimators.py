"""Advantages through verl's own ``compute_advantage``."""

import numpy as np
import pytest
import torch

pytest.importorskip("verl", reason="verl is not in this environment")

from omegaconf import OmegaConf
from verl import DataProto
from verl.trainer.ppo.ray_trainer import compute_advantage

from sleuth.errors import UserError
from sleuth.objectives import resolve
from sleuth.training.verl.registration import ESTIMATORS

REWARDS = torch.tensor([1.0, 0, 0.5, 0, 0, 0, 0, 1])
MASK = torch.ones(8, 12, dtype=torch.long)
MASK[:, 4:7] = 0
MASK[:, 10:] = 0
MASK[3, 5:] = 0


def advantages(name, config=None, mask=MASK, rewards=REWARDS):
    scores = torch.zeros(mask.shape)
    scores[:, -1] = rewards  # verl puts a reward at the row's last token, be it a passage's
    data = DataProto.from_dict(
        tensors={"token_level_rewards": scores, "response_mask": mask},
        non_tensors={"uid": np.array(["b"] * 4 + ["a"] * 4, dtype=object)},
    )
    return compute_advantage(data, adv_estimator=name, config=OmegaConf.create(config or {})).batch["advantages"]


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_advantages_are_ours_at_policy_tokens_and_0_elsewhere(name):
    groups, valid = torch.arange(8) // 4, torch.ones(8, dtype=torch.bool)
    objective = resolve(ESTIMATORS[name], aggregation="token_mean")
    wanted = objective.advantages(REWARDS, groups, valid, MASK.sum(-1))
    torch.testing.assert_close(advantages(name), wanted[:, None] * MASK)
    assert wanted.abs().max() > 0.1


def test_parameters_come_from_the_algorithms_settings():
    scaled = advantages("search_signbalance", {"parameters": {"signbalance": {"c": 2.0}}})
    torch.testing.assert_close(scaled, 2 * advantages("search_signbalance"))


def test_signs_balance_under_the_aggregation_that_is_named():
    by_tokens = advantages("search_signbalance")
    by_rollouts = advantages("search_signbalance", {"aggregation": "seq-mean-token-mean"})
    torch.testing.assert_close(by_tokens[:4].sum(), torch.tensor(0.0), atol=1e-5, rtol=0)
    torch.testing.assert_close(by_rollouts[:4, 0].sum(), torch.tensor(0.0), atol=1e-5, rtol=0)
    assert not torch.allclose(by_tokens, by_rollouts)


def test_a_rollout_without_policy_tokens_has_no_part_in_its_group():
    mask = MASK.clone()
    mask[1] = 0
    out = advantages("search_grpo", mask=mask)
    others = torch.tensor([1.0, 0.5, 0.0])
    wanted = (others - others.mean()) / (others.std() + 1e-6)
    torch.testing.assert_close(out[[0, 2, 3], 0], wanted)
    assert not out[1].any()


def test_a_parameter_that_does_not_exist_is_refused():
    with pytest.raises(UserError, match="signbalance has: c"):
        advantages("search_signbalance", {"parameters": {"signbalance": {"cc": 2.0}}})


def test_the_placeholder_is_refused_without_its_trainer():
    with pytest.raises(UserError, match="trainer_mode=search_sync"):
        advantages("search_objective")
