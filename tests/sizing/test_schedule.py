"""The simulated step: worked examples, and bounds that no schedule can beat."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleuth.sizing.devices import DEVICES, Device, Shares
from sleuth.sizing.lengths import LengthModel, MeasuredLengths, PlannedTurn
from sleuth.sizing.schedule import Cluster, Engine, Searches, Work, overlapped, play
from sleuth.sizing.shapes import SHAPES, Shape
from sleuth.types import Span, SpanKind, Trajectory

SHAPE = SHAPES["Qwen2.5-0.5B"]
FLAT = Device("flat", memory=1e12, flops=1e30, bandwidth=1e30, link=1e30, network=1e30)
MILLISECOND = Shares(decode_overhead=1e-3)
"""Every token takes a millisecond, whatever the batch; nothing else takes time."""


def rollouts(*turns):
    """(sampled, read) of each turn → lengths that are always these."""
    return MeasuredLengths(prompt=10, rollouts=[[PlannedTurn(*turn) for turn in turns]])


def flat(gpus=1, **settings):
    return Cluster(gpus, FLAT, MILLISECOND, cache=1e30, **settings)


@pytest.mark.parametrize("engine", ["vllm", "trainer"])
def test_a_rollout_takes_its_turns_and_its_searches(engine):
    lengths = rollouts((100, 50), (30, 50), (20, 0))
    times = play(SHAPE, Work(1, 1), lengths, Searches(0.5, spread=0), flat(engine=engine))
    assert times.rollout == pytest.approx(0.150 + 2 * 0.5)
    assert times.searching == pytest.approx(1.0 / 1.15)
    assert times.tail == pytest.approx(0)
    assert times.tokens == 10 + 150 + 100


@pytest.mark.parametrize("engine", ["vllm", "trainer"])
def test_rollouts_of_a_batch_share_a_token_s_time(engine):
    lengths = rollouts((100, 0))
    many = play(SHAPE, Work(8, 4), lengths, Searches(0), flat(engine=engine))
    assert many.rollout == pytest.approx(0.1)


def test_those_that_find_no_room_wait_for_the_ones_before():
    lengths = rollouts((90, 0))
    cluster = Cluster(1, FLAT, MILLISECOND, cache=2.5 * 100 * SHAPE.cache_bytes(2))
    assert play(SHAPE, Work(3, 2), lengths, Searches(0), cluster).rollout == pytest.approx(3 * 0.09)


def test_a_busy_retriever_is_a_queue():
    lengths = rollouts((10, 5), (10, 0))
    times = play(SHAPE, Work(4, 4), lengths, Searches(0.5, spread=0, slots=2), flat())
    assert times.rollout == pytest.approx(0.010 + 16 / 2 * 0.5 + 0.010)


def test_processes_that_sample_turn_by_turn_share_the_retriever_as_they_come():
    """Two processes, a slot for every rollout: neither waits for what the other asks later."""
    lengths = rollouts((10, 5), (10, 5), (10, 0))
    times = play(SHAPE, Work(2, 2), lengths, Searches(0.5, spread=0, slots=4), flat(2, engine="trainer"))
    assert times.rollout == pytest.approx(0.030 + 2 * 0.5)


def test_turn_by_turn_all_wait_for_the_longest_turn_and_event_by_event_nobody_does():
    lengths = MeasuredLengths(
        10, [[PlannedTurn(10, 1), PlannedTurn(100, 0)], [PlannedTurn(100, 1), PlannedTurn(10, 0)]]
    )

    class Both(MeasuredLengths):
        def draw(self, count, rng):
            return list(self.rollouts)

    both = Both(lengths.prompt, lengths.rollouts)
    work = Work(1, 2)
    assert play(SHAPE, work, both, Searches(0), flat(engine="trainer")).rollout == pytest.approx(0.200)
    assert play(SHAPE, work, both, Searches(0), flat()).rollout == pytest.approx(0.110)


def test_a_token_costs_the_weights_the_cache_or_the_arithmetic_whichever_is_more():
    device = Device("d", 1e12, flops=1e12, bandwidth=1e11, link=1, network=1)
    shares = Shares(reading=1, decoding=1, decode_overhead=0)
    engine = Engine(SHAPE, Cluster(1, device, shares), 2)
    assert engine.token_seconds(1, 0) == pytest.approx(2 * SHAPE.parameters / 1e11)
    held = 1e7
    assert engine.token_seconds(1, held) == pytest.approx((2 * SHAPE.parameters + held * SHAPE.cache_bytes()) / 1e11)
    assert engine.token_seconds(100_000, 0) == pytest.approx(SHAPE.flops(100_000, 0) / 1e12)


def test_an_update_is_three_forward_passes_and_four_with_recomputation():
    device = Device("d", 1e12, flops=1e12, bandwidth=1e30, link=1e30, network=1e30)
    shares = Shares(training=1, reading=1, decode_overhead=0)
    lengths = rollouts((90, 0))
    forward = SHAPE.flops(100, 50, logits=90) / 1e12
    plain, again = (
        play(SHAPE, Work(1, 4, micro_batch=1, checkpointing=c), lengths, Searches(0), Cluster(4, device, shares))
        for c in (False, True)
    )
    assert plain.update == pytest.approx(3 * forward)
    assert again.update == pytest.approx(4 * forward)
    assert plain.score == 0  # one update: the loss's own pass is the old one
    scored = play(SHAPE, Work(2, 4, 2, 1, reference=True), lengths, Searches(0), Cluster(4, device, shares))
    assert scored.score == pytest.approx(2 * 2 * forward)


def test_gpus_without_a_rollout_are_said():
    times = play(SHAPE, Work(8, 4, updates=4), rollouts((5, 0)), Searches(0), flat(32))
    assert times.idle_ranks == pytest.approx(0.75)


@given(
    gpus=st.sampled_from([1, 3, 8, 16]),
    prompts=st.integers(1, 12),
    slots=st.integers(1, 6),
    engine=st.sampled_from(["vllm", "trainer"]),
    seed=st.integers(0, 5),
)
def test_no_schedule_beats_its_bounds(gpus, prompts, slots, engine, seed):
    lengths = LengthModel(turn=20, observation=30, max_turn=60, max_tokens=300)
    searches = Searches(0.2, spread=0, slots=slots)
    times = play(SHAPE, Work(prompts, 3), lengths, searches, flat(gpus, engine=engine), seed)
    drawn = lengths.draw(prompts * 3, random.Random(seed))
    asked = sum(len(r) - 1 for r in drawn)
    slowest = max(sum(t.sampled for t in r) * 1e-3 + (len(r) - 1) * 0.2 for r in drawn)
    assert times.rollout >= slowest - 1e-9
    assert times.rollout >= asked * 0.2 / slots - 1e-9
    one_by_one = sum(t.sampled for r in drawn for t in r) * 1e-3 + asked * 0.2
    assert times.rollout <= one_by_one + 1e-6
    assert 0 <= times.tail < 1
    assert 0 <= times.searching <= 1


def test_sampling_ahead_hides_the_shorter_half():
    shape, work, searches = SHAPES["Qwen2.5-3B"], Work(64, 8), Searches()
    cluster = Cluster(64, DEVICES["h100"])
    together = play(shape, work, LengthModel(), searches, cluster)
    ahead = overlapped(shape, work, LengthModel(), searches, cluster)
    assert 0 < ahead.sampling < 64
    assert ahead.step < together.step
    assert overlapped(shape, work, LengthModel(), searches, Cluster(1, DEVICES["h100"])) is None


def test_drawn_lengths_keep_the_limits_and_the_mean():
    model = LengthModel(turn=80, spread=0.7, searches=1.5, max_searches=50, max_turn=10_000, max_tokens=10**6)
    drawn = model.draw(4000, random.Random(0))
    turns = [t.sampled for r in drawn for t in r]
    assert sum(turns) / len(turns) == pytest.approx(80, rel=0.05)
    assert sum(len(r) - 1 for r in drawn) / len(drawn) == pytest.approx(1.5, rel=0.1)
    short = LengthModel(turn=80, max_turn=100, max_searches=2, max_tokens=150).draw(500, random.Random(0))
    for r in short:
        assert len(r) <= 3
        assert max(t.sampled for t in r) <= 100
        assert sum(t.sampled + t.read for t in r) <= 150
        assert r[-1].read == 0 or sum(t.sampled + t.read for t in r) == 150


def test_measured_lengths_are_those_of_the_rollouts():
    spans = [
        Span(SpanKind.PROMPT, [1, 2, 3]),
        Span(SpanKind.POLICY, [4] * 7),
        Span(SpanKind.OBSERVATION, [5] * 9),
        Span(SpanKind.POLICY, [6] * 2),
    ]
    found = MeasuredLengths.of([Trajectory("a", "g", "q", [], spans)])
    assert (found.prompt, found.rollouts) == (3, [[PlannedTurn(7, 9), PlannedTurn(2, 0)]])
    with pytest.raises(ValueError, match="no rollout"):
        MeasuredLengths.of([Trajectory("a", "g", "q", [], spans[:1])])


def test_the_simulation_depends_on_its_seed_alone():
    arguments = (Shape(2, 64, 128, 4, 2, 16, 100), Work(8, 4), LengthModel(), Searches(), Cluster(8, DEVICES["a100"]))
    assert play(*arguments, seed=3) == play(*arguments, seed=3)
    assert play(*arguments, seed=3) != play(*arguments, seed=4)
