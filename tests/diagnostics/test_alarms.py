import json
import math
from pathlib import Path
from typing import get_args

import pytest
from streams import after, stream

from sleuth.diagnostics.alarm_limits import _SENSIBLE, AlarmLimits, Threshold
from sleuth.diagnostics.alarm_rules import RULES, Level, table
from sleuth.diagnostics.alarms import AlarmMonitor, find_alarms
from sleuth.diagnostics.names import is_known
from sleuth.recipes.schema import AlarmAction

ONSET = 21

WRONG = {
    "low_tail": {"ratio__pos__q01": after(ONSET, 0.05)},
    "large_steps": {"ratio__pos__q95": after(ONSET, 1.2)},
    "sinking_tokens": {"ratio__pos__below_0_p_8": after(ONSET, 0.1)},
    "lost_tokens": {"ratio__pos__min": after(ONSET, 1e-9)},
    "negative_burst": {"ratio__neg__max": after(ONSET, 220.0)},
    "sequence_drift": {"sequence__pos__below_0_p_9": after(ONSET, 0.4)},
    "likelihood_falls": {
        "likelihood__pos": lambda s: -0.3 - 0.02 * max(s - ONSET + 1, 0),
        "reward": lambda s: 0.4 + 0.005 * max(s - ONSET + 1, 0),
    },
    "entropy_rise": {"entropy": after(ONSET, 0.8)},
    "entropy_collapse": {"entropy": after(ONSET, 0.01)},
    "gradient_explosion": {"grad_norm": after(ONSET, 23.0)},
    "gradient_vanishing": {"grad_norm": after(ONSET, 1e-5)},
    "clip_share": {"ratio__clipped": after(ONSET, 0.2)},
    "answer_avoidance": {"share__no_answer": after(ONSET, 0.5)},
    "format_slips": {"format": after(ONSET, 0.65)},
    "degenerate": {"degenerate": after(ONSET, 0.3)},
    "searches_vanish": {"searches": after(ONSET, 0.1)},
    "repeated_queries": {"repeated_queries": after(ONSET, 2.0)},
    "zero_variance": {"zero_variance_groups": after(ONSET, 15)},
    "failed_rollouts": {"share__retriever_failed": after(ONSET, 0.4)},
    "mean_drift": {"ratio__mean_log": after(ONSET, -0.2)},
    "reward_fell": {"reward": after(ONSET, 0.22)},
    "format_fell": {"format": after(ONSET, 0.3)},
    "reward_gone": {"reward": after(ONSET, 0.02)},
    "no_signal": {"grad_norm": after(ONSET, 0.0)},
    "not_finite": {"grad_norm": after(ONSET, math.nan)},
}
"""For each rule what goes wrong from step :data:`ONSET` on."""

AVERAGED = ("likelihood_falls", "reward_fell", "format_fell")
"""Rules that look at a mean or a trend: a change shows later, and one bad batch for several steps."""


def rules_of(records, limits=None):
    return [alarm.rule for alarm in find_alarms(records, limits)]


def test_every_rule_has_a_limit_with_a_reason_and_a_case_here():
    names = [rule.name for rule in RULES]
    assert names == list(AlarmLimits.rules())
    assert all(AlarmLimits.rules().values())
    assert sorted(WRONG) == sorted(names)


def test_rules_read_names_of_the_catalogue_alone():
    assert [name for rule in RULES for name in rule.needs if not is_known(name)] == []


@pytest.mark.parametrize("seed", range(10))
def test_a_healthy_run_raises_no_alarm(seed):
    assert rules_of(stream(200, seed)) == []


@pytest.mark.parametrize("rule", WRONG)
def test_what_goes_wrong_is_found_within_five_steps_and_dated(rule):
    alarms = {a.rule: a for a in find_alarms(stream(60, **WRONG[rule]))}
    assert rule in alarms
    alarm = alarms[rule]
    assert ONSET <= alarm.since <= alarm.step <= ONSET + (20 if rule == "likelihood_falls" else 4)
    assert alarm.since == ONSET or rule in AVERAGED
    assert alarm.advice


@pytest.mark.parametrize("rule", [r for r in WRONG if AlarmLimits().of(r).hits > 1 and r not in AVERAGED])
def test_one_bad_batch_is_noise(rule):
    once = {name: lambda s, f=f: f(s) if s == ONSET else None for name, f in WRONG[rule].items()}
    assert rule not in rules_of(stream(60, **once))


def test_a_rule_that_is_off_says_nothing():
    limits = AlarmLimits.model_validate({"low_tail": {"on": False}})
    assert "low_tail" not in rules_of(stream(**WRONG["low_tail"]), limits)


def test_a_limit_that_is_set_alone_keeps_the_rules_own_window():
    limits = AlarmLimits.model_validate({"low_tail": {"limit": 0.9}})
    assert limits.low_tail == Threshold(
        limit=0.9, hits=AlarmLimits().low_tail.hits, window=AlarmLimits().low_tail.window
    )
    assert "low_tail" in rules_of(stream(), limits)


def test_more_hits_than_the_window_has_steps_are_refused():
    with pytest.raises(ValueError, match="window"):
        AlarmLimits.model_validate({"low_tail": {"hits": 9}})


def test_an_alarm_comes_once_and_again_only_after_a_quiet_window():
    def tail(quiet):
        return lambda s: 0.05 if s in range(10, 20) or s >= 20 + quiet else None

    assert rules_of(stream(40, ratio__pos__q01=tail(2))).count("low_tail") == 1
    assert rules_of(stream(40, ratio__pos__q01=tail(8))).count("low_tail") == 2


def test_a_run_noisy_from_its_start_is_its_own_baseline():
    def noisy(step):
        return (0.2, 0.5, 0.35, 0.65, 0.1)[step % 5]

    assert "entropy_rise" not in rules_of(stream(60, entropy=noisy))


def test_rules_that_need_a_baseline_are_silent_in_the_first_steps():
    limits = AlarmLimits()
    assert find_alarms(stream(limits.warmup, entropy=after(1, 9.0), grad_norm=after(1, 50.0))) == []


def test_a_record_without_a_statistic_tells_nothing_of_it():
    records = [{"step": r["step"], "reward": r["reward"]} for r in stream(**WRONG["low_tail"])]
    assert find_alarms(records) == []


def test_streaming_and_replay_agree():
    records = stream(60, **WRONG["reward_gone"], **WRONG["low_tail"])
    monitor = AlarmMonitor()
    assert [a for r in records for a in monitor.observe(r)] == find_alarms(records)
    assert {"low_tail", "reward_gone"} <= set(monitor.active)


def test_levels_come_in_order_as_a_run_collapses():
    """Tails first, then the reward, then nothing."""
    records = stream(
        60,
        ratio__pos__q01=after(15, 0.05),
        reward=lambda s: None if s < 25 else max(0.4 - 0.05 * (s - 24), 0.0),
    )
    first = {}
    for alarm in find_alarms(records):
        first.setdefault(alarm.level, alarm.step)
    assert first[Level.EARLY] < 25 <= first[Level.LATE] < first[Level.DEAD]


def test_rewards_below_zero_have_a_peak_too():
    fell = stream(60, reward=lambda s: -0.2 if s < ONSET else -0.9)
    steady = stream(60, reward=lambda s: -0.2 - 0.01 * (s % 3))
    assert "reward_gone" in rules_of(fell)
    assert find_alarms(steady) == []


def test_the_place_is_the_worst_split():
    def split(kind, turn):
        return {
            f"ratio__pos__{k}__q01": after(ONSET, 0.05 if k in (kind, turn) else 0.7)
            for k in ("think", "query", "answer", "tag", "turn1", "turn2", "turn6+")
        }

    records = stream(**WRONG["low_tail"], **split("query", "turn2"))
    where = next(a.where for a in find_alarms(records) if a.rule == "low_tail")
    assert where.to_dict() == {"sign": "pos", "kind": "query", "turn": 2}
    assert str(where) == "query tokens, turn 2, positive advantage"
    where = next(a.where for a in find_alarms(stream(**WRONG["low_tail"], **split("tag", "turn6+"))))
    assert (where.kind, where.turn) == ("tag", 6)


def test_a_split_of_few_tokens_is_no_place():
    records = stream(
        **WRONG["low_tail"],
        ratio__pos__answer__q01=after(1, 0.001), ratio__pos__answer__tokens=after(1, 3),
        ratio__pos__think__q01=after(1, 0.05), ratio__pos__think__tokens=after(1, 300),
    )  # fmt: skip
    assert next(a.where.kind for a in find_alarms(records) if a.rule == "low_tail") == "think"


def test_entropys_place_is_the_kind_that_grew_most():
    records = stream(
        entropy=after(ONSET, 0.8),
        entropy__think=lambda s: 1.0,
        entropy__query=lambda s: 0.1 if s < ONSET else 0.5,
    )
    assert next(a.where.kind for a in find_alarms(records) if a.rule == "entropy_rise") == "query"


def test_an_alarm_is_a_line_of_json_even_where_its_value_is_not_a_number():
    alarm = next(a for a in find_alarms(stream(**WRONG["not_finite"])) if a.rule == "not_finite")
    line = json.dumps(alarm.to_dict(), allow_nan=False)
    assert json.loads(line)["value"] is None
    assert json.loads(line)["level"] == "dead"
    assert "\n" not in alarm.line


def test_a_number_of_silent_groups_says_nothing_without_the_number_of_groups():
    counts = [{k: v for k, v in r.items() if k != "groups"} for r in stream(**WRONG["zero_variance"])]
    assert "zero_variance" not in rules_of(counts)


def test_a_single_batch_counts_at_once_and_has_no_baseline():
    monitor = AlarmMonitor(single=True)
    record = stream(1, ratio__pos__q01=after(1, 0.05), entropy=after(1, 9.0))[0]
    assert [a.rule for a in monitor.observe(record)] == ["low_tail"]


def test_the_docs_hold_the_table_of_rules_and_every_setting():
    docs = (Path(__file__).parents[2] / "docs" / "diagnosis.md").read_text(encoding="utf-8")
    assert table() in docs
    assert all(f"`{action}`" in docs for action in get_args(AlarmAction))


def test_ratios_of_the_first_steps_raise_no_alarm():
    loud = {"ratio__pos__q95": lambda s: 1.3 if s <= 3 else 1.02, "ratio__pos__q01": lambda s: 0.01 if s <= 3 else 0.9}
    assert find_alarms(stream(30, **loud)) == []
    assert {a.rule for a in find_alarms(stream(30, **loud), AlarmLimits(settle=0))} == {"large_steps", "low_tail"}


def test_a_single_batch_has_no_first_steps():
    record = stream(1)[0] | {"ratio/pos/q95": 1.3}
    assert [a.rule for a in AlarmMonitor(single=True).observe(record)] == ["large_steps"]


@pytest.mark.parametrize(
    ("rule", "limit"),
    [("low_tail", -1), ("low_tail", 0), ("large_steps", 0.9), ("sinking_tokens", 1), ("reward_gone", -0.5),
     ("entropy_rise", 0.5), ("degenerate", float("nan"))],
)  # fmt: skip
def test_a_limit_that_is_crossed_always_or_never_is_refused(rule, limit):
    with pytest.raises(ValueError, match=r"limit"):
        AlarmLimits.model_validate({rule: {"limit": limit}})
    if limit == limit:
        assert AlarmLimits.model_validate({rule: {"limit": limit, "on": False}}).of(rule).limit == limit


def test_every_rule_says_between_which_values_its_limit_must_lie():
    named = [name for names, _, _ in _SENSIBLE for name in names]
    assert sorted([*named, "not_finite"]) == sorted(AlarmLimits.rules())
