import math

import pytest
import torch
from batches import batch, from_ratios, step

from sleuth.objectives import resolve
from sleuth.objectives.aggregation import StepTotals
from sleuth.objectives.surrogates import cispo, dual_clip, gspo, ppo_clip, soft_sapo
from sleuth.objectives.tokens import Tokens


def _tokens(ratios, advantages, **extra):
    logp, old = from_ratios(ratios)
    return Tokens.build(logp, old, torch.tensor(advantages, dtype=torch.float64), torch.ones(logp.shape), **extra)


def test_ppo_clip_of_two_negative_tokens():
    loss, clipped = ppo_clip(_tokens([[1.3, 0.7]], [-0.471246]))
    assert (-loss[0]).tolist() == pytest.approx([-0.612620, -0.376997], abs=1e-6)
    assert clipped[0].tolist() == [False, True]


def test_clip_higher_leaves_room_above():
    objective = resolve("dapo")
    logp, old = from_ratios([[1.25, 1.3]])
    _, grad = step(objective, logp, old, torch.ones(1), torch.ones(1, 2))
    assert grad[0].tolist() == pytest.approx([-1.25 / 2, 0])


def test_dual_clip_bounds_only_bad_rollouts():
    loss, clipped = dual_clip(_tokens([[5.0, 2.0], [5.0, 2.0]], [-2.0, 2.0]))
    assert loss.tolist() == [pytest.approx([6.0, 4.0]), pytest.approx([-2.4, -2.4])]
    assert clipped.tolist() == [[True, False], [True, True]]


def test_gspo_clips_whole_rollouts_by_their_geometric_mean():
    tokens = _tokens([[2.0, 0.5], [1.1, 1.1]], [1.0, 1.0])
    loss, clipped = gspo(tokens, clip_low=0.05, clip_high=0.05)
    assert loss.tolist() == [pytest.approx([-1.0, -1.0]), pytest.approx([-1.05, -1.05])]
    assert clipped.tolist() == [[False, False], [True, True]]


def test_gspo_gives_reshaped_tokens_their_own_advantage():
    logp, old = from_ratios([[2.0, 0.5]])
    _, grad = step(resolve("gspo"), logp, old, torch.tensor([[1.0, -3.0]]), torch.ones(1, 2))
    assert grad[0].tolist() == pytest.approx([-0.5, 1.5])


def test_cispo_bounds_the_weight_and_keeps_the_gradient():
    logp, old = from_ratios([[8.0, 0.5]])
    _, grad = step(resolve("cispo"), logp, old, torch.ones(1, dtype=torch.float64), torch.ones(1, 2))
    assert grad[0].tolist() == pytest.approx([-5 / 2, -0.5 / 2])
    assert cispo(_tokens([[8.0, 0.5]], [1.0]))[1].tolist() == [[True, False]]


@pytest.mark.parametrize(("ratio", "slope"), [(1.0, 1.0), (0.1, 0.082), (0.01, 0.008)])
def test_soft_sapo_fades_where_search_sapo_holds(ratio, slope):
    """Coefficient of grad log π: A r 4 s (1 - s)."""
    logp, old = from_ratios([[ratio]])
    _, grad = step(resolve("soft_sapo"), logp, old, torch.ones(1, dtype=torch.float64), torch.ones(1, 1))
    assert -grad.item() == pytest.approx(slope, abs=5e-4)
    s = 1 / (1 + math.exp(-(ratio - 1)))
    assert -grad.item() == pytest.approx(ratio * 4 * s * (1 - s), rel=1e-9)


def test_soft_sapo_is_steeper_for_bad_rollouts():
    loss, clipped = soft_sapo(_tokens([[1.0], [1.0]], [1.0, -1.0]))
    assert loss[:, 0].tolist() == pytest.approx([-2.0, 2 / 1.05])
    assert not clipped.any()


@pytest.mark.parametrize("name", ["dapo", "dual_clip", "gspo", "cispo", "soft_sapo"])
def test_on_policy_every_surrogate_has_the_plain_gradient(name):
    logp, _, a, mask = batch()
    old = logp.detach().clone()
    plain = step(resolve("grpo"), logp, old, a, mask)[1]
    torch.testing.assert_close(step(resolve(name), logp, old, a, mask)[1], plain, rtol=1e-9, atol=1e-12)


def test_dapo_leaves_out_groups_without_signal():
    rewards = torch.tensor([1.0, 1.0, 1.0, 0.0, 1.0, 9.0])
    groups = torch.tensor([0, 0, 1, 1, 2, 2])
    valid = torch.tensor([True, True, True, True, True, False])
    assert resolve("dapo").kept(rewards, groups, valid).tolist() == [False, False, True, True, False, False]
    kept = resolve("dapo", {"dapo": {"zero_variance": "keep"}}).kept(rewards, groups, valid)
    assert kept.tolist() == valid.tolist() == resolve("grpo").kept(rewards, groups, valid).tolist()


def test_sum_over_max_length_is_blind_to_the_lengths():
    objective = resolve("dr_grpo", {"aggregation": {"max_length": 10}})
    mask = torch.tensor([[1, 1, 1, 1], [1, 0, 0, 0]])
    logp = torch.zeros(2, 4)
    _, grad = step(objective, logp, logp.clone(), torch.ones(2), mask)
    torch.testing.assert_close(grad, -mask / 20)
    weights = objective.aggregation.weights(mask, StepTotals.of(mask), torch.float64)
    assert (mask * weights).sum().item() == pytest.approx(5 / 20)
