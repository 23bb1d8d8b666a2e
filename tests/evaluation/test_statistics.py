import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleuth.evaluation.statistics import bootstrap_interval, macro_average, paired_difference

scores = st.lists(st.floats(0, 1), min_size=1, max_size=40)


@given(scores)
def test_the_interval_holds_the_mean_and_stays_within_the_values(values):
    interval = bootstrap_interval(values, resamples=500)
    assert interval.mean == pytest.approx(np.mean(values))
    assert min(values) - 1e-9 <= interval.low <= interval.high <= max(values) + 1e-9
    assert interval.n == len(values)


def test_the_interval_of_a_share_is_that_of_the_normal_approximation():
    interval = bootstrap_interval([1.0] * 300 + [0.0] * 700)
    spread = 1.96 * math.sqrt(0.3 * 0.7 / 1000)
    assert interval.low == pytest.approx(0.3 - spread, abs=0.003)
    assert interval.high == pytest.approx(0.3 + spread, abs=0.003)


def test_many_distinct_values_are_resampled_as_plainly_as_by_index():
    values = np.random.default_rng(1).random(200)
    rng = np.random.default_rng(2)
    plain = values[rng.integers(0, 200, (4000, 200))].mean(axis=1)
    interval = bootstrap_interval(values.tolist(), resamples=4000)
    assert interval.low == pytest.approx(np.quantile(plain, 0.025), abs=0.004)
    assert interval.high == pytest.approx(np.quantile(plain, 0.975), abs=0.004)


def test_the_seed_alone_decides():
    values = [0.0, 0.5, 1.0, 1.0, 0.0, 0.25]
    assert bootstrap_interval(values, seed=3) == bootstrap_interval(values, seed=3)
    assert bootstrap_interval(values, seed=3, resamples=99) != bootstrap_interval(values, seed=4, resamples=99)


def test_each_group_weighs_the_same_in_the_average():
    average = macro_average({"large": [1.0] * 90, "small": [0.0] * 10})
    assert (average.mean, average.low, average.high, average.n) == (0.5, 0.5, 0.5, 100)


def test_the_average_varies_with_the_smaller_group():
    average = macro_average({"large": [1.0, 0.0] * 500, "small": [1.0, 0.0]})
    assert average.low < 0.3
    assert average.high > 0.7


def test_a_paired_difference_is_surer_than_two_means():
    before = [float(i % 2) for i in range(200)]
    after = [1.0 if i < 20 else b for i, b in enumerate(before)]
    gain = paired_difference(before, after)
    apart = bootstrap_interval(after).low - bootstrap_interval(before).high
    assert gain.mean == pytest.approx(0.05)
    assert gain.low > 0 > apart


def test_what_cannot_be_resampled_is_refused():
    with pytest.raises(ValueError, match="no values"):
        bootstrap_interval([])
    with pytest.raises(ValueError, match="no groups"):
        macro_average({})
    with pytest.raises(ValueError, match="same questions"):
        paired_difference([1.0], [1.0, 0.0])
