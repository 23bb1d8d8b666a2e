import math

import pytest
import torch

from sleuth.training.metrics import RatioStatistics, rollout_metrics
from sleuth.types import STATUS_OF, EndReason, Span, SpanKind, Trajectory


def _trajectory(end=EndReason.ANSWER, reward=1.0, searches=1):
    spans = [Span(SpanKind.PROMPT, [1, 2]), Span(SpanKind.POLICY, [3, 4, 5], logprobs=[0.0] * 3)]
    status = STATUS_OF[end]
    return Trajectory(
        "a", "g", "q", ["x"], spans, status=status, end=end, reward=reward, rewards={"em": reward or 0.0},
        counts={"searches": searches},
    )  # fmt: skip


def test_failed_rollouts_are_counted_and_left_out_of_the_means():
    batch = [_trajectory(reward=1.0), _trajectory(reward=0.0), _trajectory(EndReason.RETRIEVER_FAILED, None, 9)]
    metrics = rollout_metrics(batch)
    assert metrics["reward"] == 0.5
    assert metrics["searches"] == 1
    assert metrics["share/retriever_failed"] == pytest.approx(1 / 3)


def test_truncated_is_not_the_same_as_wrong():
    metrics = rollout_metrics([_trajectory(EndReason.MAX_TOKENS, 0.0), _trajectory()])
    assert metrics["share/truncated"] == 0.5
    assert metrics["share/answered"] == 0.5


def test_a_batch_of_failures_has_shares_and_nothing_else():
    metrics = rollout_metrics([_trajectory(EndReason.ABORTED, None)])
    assert metrics["share/aborted"] == 1
    assert "reward" not in metrics


def test_ratios_are_split_by_the_sign_of_the_advantage():
    statistics = RatioStatistics()
    log_ratio = torch.log(torch.tensor([[0.4, 1.0, 5.0], [3.0, 1.0, 7.0]]))
    advantages = torch.tensor([[1.0, 1.0, 1.0], [-1.0, -1.0, -1.0]])
    mask = torch.tensor([[True, True, False], [True, True, False]])
    statistics.add(log_ratio, advantages, torch.zeros(2, 3, dtype=torch.bool), mask)
    out = statistics.flush()
    assert out["ratio/pos/min"] == pytest.approx(0.4)
    assert out["ratio/pos/max"] == pytest.approx(1.0)
    assert out["ratio/pos/below_0.5"] == 0.5
    assert out["ratio/neg/max"] == pytest.approx(3.0)
    assert out["ratio/neg/above_2"] == 0.5
    assert out["ratio/mean"] == pytest.approx((0.4 + 1 + 3 + 1) / 4)
    assert statistics.flush() == {}


def test_ratio_statistics_stay_finite():
    statistics = RatioStatistics()
    one = torch.full((1, 1), 400.0)
    statistics.add(one, torch.ones(1, 1), torch.zeros(1, 1, dtype=torch.bool), torch.ones(1, 1, dtype=torch.bool))
    assert all(math.isfinite(v) for v in statistics.flush().values())
