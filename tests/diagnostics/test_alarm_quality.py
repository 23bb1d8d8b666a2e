import pytest
from streams import after, stream

from sleuth.diagnostics.alarm_limits import AlarmLimits
from sleuth.diagnostics.alarm_quality import (
    alarm_quality,
    alarms,
    mean_ratio,
    onset_step,
    reward_fell,
    rule_detectors,
    standard_detectors,
)
from sleuth.diagnostics.alarm_rules import RULES, Level
from sleuth.lab.onset import collapse_onset


def collapse(at, tail=None, **changes):
    """Reward is gone from step ``at`` on, with low ratios from step ``tail`` on."""
    if tail is not None:
        changes["ratio__pos__q01"] = after(tail, 0.05)
    return stream(60, reward=after(at, 0.02), **changes)


RUNS = [collapse(30, 15), collapse(40, 37), collapse(30), stream(60), stream(60, 1, ratio__pos__q01=after(20, 0.05))]
"""Warned long before, warned just before, not to be seen coming; healthy, and healthy with low tails."""


def test_leads_warnings_and_false_alarms_are_counted():
    (quality,) = alarm_quality(RUNS, collapse_onset, detectors={"alarms": alarms()})
    assert (quality.collapsed, quality.warned, quality.warned_by_5) == (3, 2, 1)
    assert quality.leads[0] == 30 - 16
    assert quality.leads[1] == 40 - 38
    assert quality.leads[2] < 0
    assert (quality.healthy, quality.false_alarms) == (2, 1)
    assert quality.median_lead == (14 + 2) / 2
    assert quality.to_dict()["false_share"] == 0.5


def test_a_warning_in_the_batch_of_the_onset_is_too_late():
    (quality,) = alarm_quality([collapse(30, 29)], collapse_onset, detectors={"alarms": alarms(rules=("low_tail",))})
    assert quality.leads == (0,)
    assert quality.warned == 0


def test_a_run_that_lost_much_without_a_collapse_is_no_false_alarm_on_a_steady_one():
    fading = stream(60, reward=lambda s: 0.4 - 0.003 * s, ratio__pos__q01=after(10, 0.05))
    (quality,) = alarm_quality([fading, *RUNS[3:]], collapse_onset, detectors={"alarms": alarms()})
    assert (quality.healthy, quality.false_alarms) == (3, 2)
    assert (quality.steady, quality.false_on_steady) == (2, 1)


def test_an_onset_is_a_step_of_the_records():
    assert onset_step(collapse(30)[4:], collapse_onset) == 30
    assert onset_step(stream(60), collapse_onset) is None


def test_limits_can_be_tried_without_touching_anything_else():
    strict = AlarmLimits.model_validate({name: {"on": False} for name in AlarmLimits.rules()})
    (quality,) = alarm_quality(RUNS, collapse_onset, detectors={"none": alarms(strict)})
    assert (quality.warned, quality.false_alarms) == (0, 0)
    assert quality.leads == (None, None, None)


def test_our_alarms_stand_beside_the_plain_rules():
    assert list(standard_detectors()) == ["alarms", "early alarms", "mean ratio < 0.98", "reward fell"]
    assert list(rule_detectors()) == [rule.name for rule in RULES]


@pytest.mark.parametrize(("mean", "step"), [(0.97, 12), (0.99, None)])
def test_the_plain_rule_of_the_mean(mean, step):
    assert mean_ratio()(stream(30, ratio__pos__mean=lambda s: mean if s == 12 else 1.0)) == step


def test_the_plain_rule_of_the_reward_averages_three_steps():
    assert reward_fell()(stream(40, reward=after(20, 0.2))) in (20, 21)
    assert reward_fell()(stream(40)) is None


def test_a_detector_sees_nothing_of_the_future():
    for records in RUNS:
        for detector in (*standard_detectors().values(), alarms(level=Level.LATE)):
            warning = detector(records)
            if warning is not None:
                assert detector([r for r in records if r["step"] <= warning]) == warning
                assert detector([r for r in records if r["step"] < warning]) is None
