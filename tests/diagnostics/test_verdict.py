import pytest
from streams import after, stream

from sleuth.diagnostics.alarm_advice import Setup
from sleuth.diagnostics.alarm_rules import Level
from sleuth.diagnostics.verdict import judge


def only(records, *names):
    return [{k: r[k] for k in ("step", *names) if k in r} for r in records]


def test_a_healthy_run_of_which_all_is_known():
    verdict = judge(stream(60))
    assert verdict.headline == "healthy: no alarm"
    assert (verdict.level, verdict.worst, verdict.since) == (None, None, None)
    assert verdict.unknown == ()


def test_a_collapse_says_since_when_and_what_to_do():
    records = stream(60, ratio__pos__q01=after(20, 0.05), reward=after(30, 0.0), grad_norm=after(30, 0.0))
    verdict = judge(records, setup=Setup(lr=3e-6, updates=4, objective="grpo"))
    assert verdict.level is Level.DEAD
    assert verdict.since == 20
    assert verdict.headline == "collapsed, since step 30; first signs in step 20"
    assert verdict.advice[0].startswith("go back to a checkpoint from before")
    assert "lower the learning rate: trainer.lr=1.0e-06 (now 3.0e-06)" in verdict.advice
    assert len(set(verdict.advice)) == len(verdict.advice)


def test_trouble_that_went_away_is_told_apart_from_trouble_that_holds():
    gone = judge(stream(60, ratio__pos__q01=lambda s: 0.05 if 20 <= s < 30 else None))
    assert (gone.level, gone.worst) == (None, Level.EARLY)
    assert gone.headline.startswith("quiet now")


@pytest.mark.parametrize(
    ("names", "engine", "hidden"),
    [
        (("reward", "entropy", "grad_norm", "ratio/mean_log"), "verl", "no per-token ratios"),
        (("reward", "grad_norm"), "verl", "actor_rollout_ref.actor.calculate_entropy"),
        (("reward", "entropy", "grad_norm"), "trl", "DriftCallback"),
        (("reward", "entropy", "grad_norm", "likelihood/pos"), "sleuth", "each batch gets one update"),
        (("entropy",), "trl", "no reward"),
    ],
)
def test_what_cannot_be_told_is_said_with_what_to_do(names, engine, hidden):
    verdict = judge(only(stream(60), *names), engine)
    assert any(hidden in sentence for sentence in verdict.unknown)
    assert verdict.headline == "no alarm in what can be seen"


def test_ratios_that_are_all_one_are_said_to_say_nothing():
    records = [r | {"ratio/mean_log": 0.0, "ratio/clipped": 0.0} for r in stream(40)]
    assert any("every ratio is 1" in sentence for sentence in judge(records, "verl").unknown)


def test_a_sparse_log_and_a_short_one_are_said():
    assert any("one record in 10 steps" in s for s in judge([r for r in stream(200) if r["step"] % 10 == 0]).unknown)
    assert any("too few for a baseline" in s for s in judge(stream(3)).unknown)
    assert any("one batch has no history" in s for s in judge(stream(1)).unknown)


def test_published_statistics_of_a_collapse_are_an_alarm_before_the_reward_falls():
    """Search-R1 with GRPO, as the authors of search_sapo show it (arXiv 2603.10069, Fig. 1): mean ratio, clip
    fraction, entropy and reward. Reward falls from step 111 on."""
    steps = [1, 20, 40, 60, 76, 84, 90, 98, 102, 106, 108, 110, 112, 116, 118, 119, 121, 122]
    ratio = [
        0.999,
        0.997,
        0.997,
        0.998,
        0.994,
        0.997,
        0.983,
        0.967,
        0.916,
        0.835,
        0.564,
        0.671,
        0.378,
        0.403,
        0.270,
        0.049,
        0.014,
        0.032,
    ]
    clipped = [
        0,
        0.001,
        0.004,
        0.002,
        0.004,
        0.005,
        0.006,
        0.005,
        0.018,
        0.044,
        0.086,
        0.127,
        0.174,
        0.274,
        0.234,
        0.242,
        0.206,
        0.073,
    ]
    entropy = [
        0.87,
        1.06,
        1.64,
        2.68,
        4.42,
        4.01,
        1.42,
        0.99,
        0.94,
        0.81,
        0.71,
        0.52,
        0.30,
        0.32,
        0.41,
        0.41,
        0.27,
        0.36,
    ]
    reward = [
        0.30,
        0.50,
        0.50,
        0.50,
        0.49,
        0.51,
        0.54,
        0.56,
        0.56,
        0.54,
        0.52,
        0.53,
        0.40,
        0.36,
        0.38,
        0.33,
        0.21,
        0.08,
    ]
    records = [
        {"step": s, "ratio/exp_mean_log": r, "ratio/clipped": c, "entropy": e, "reward": w}
        for s, r, c, e, w in zip(steps, ratio, clipped, entropy, reward, strict=True)
    ]  # fmt: skip
    first = {}
    for alarm in judge(records, "verl").alarms:
        first.setdefault(alarm.level, alarm)
    assert first[Level.EARLY].step < 111
    assert first[Level.LATE].rule == "mean_drift"
    assert first[Level.LATE].step < 111
