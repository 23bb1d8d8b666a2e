"""Time to collapse, against an estimate worked by hand."""

import math

import pytest

from sleuth.lab.survival import survival


def test_kaplan_meier_by_hand():
    # Five runs: collapses at 10, 12 and 16, two are sound up to 36.
    curve = survival([(10, True), (16, True), (36, False), (12, True), (36, False)])
    assert curve.batches == [0, 10, 12, 16, 36]
    assert curve.share == pytest.approx([1, 4 / 5, 3 / 5, 2 / 5, 2 / 5])
    assert curve.median == 16


def test_a_run_that_was_watched_for_less_time_leaves_the_count():
    curve = survival([(10, True), (11, False), (12, True)])
    assert curve.batches == [0, 10, 11, 12]
    assert curve.share == pytest.approx([1, 2 / 3, 2 / 3, 0])


def test_the_interval_is_greenwoods_on_the_log_log_scale():
    curve = survival([(10, True), (36, False), (36, False), (36, False)])
    s = 3 / 4
    spread = 1.959964 * math.sqrt(1 / (4 * 3)) / math.log(s)
    assert curve.low[1] == pytest.approx(s ** math.exp(-spread), rel=1e-5)
    assert curve.high[1] == pytest.approx(s ** math.exp(spread), rel=1e-5)
    assert curve.low[0] is None


def test_without_collapses_there_is_neither_median_nor_interval():
    curve = survival([(36, False)] * 3)
    assert curve.share == [1.0, 1.0]
    assert curve.low == curve.high == [None, None]
    assert curve.median is None


def test_when_all_collapse_the_end_has_no_interval():
    curve = survival([(10, True)] * 3)
    assert curve.share == [1.0, 0.0]
    assert curve.low[-1] is None
    assert curve.median == 10


def test_no_runs():
    with pytest.raises(ValueError, match="no runs"):
        survival([])
