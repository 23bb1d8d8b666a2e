"""50,000 inputs for parsers and graders, and those that once broke one. Ten million: benchmarks/fuzzing/results.md."""

import itertools

import pytest
from benchmarks.fuzzing import SHARES
from benchmarks.fuzzing.__main__ import Tally, random_inputs
from benchmarks.fuzzing.growth import FUNCTIONS
from benchmarks.fuzzing.targets import TARGETS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

SEED = 2026
RANDOM, GUIDED = 45_000, 5_000

# Each raised before it was mended, in the target of that name.
SEEDS = [
    ("answers", "c7b3c152afe7fc08a752a6153537999cba609d034a"),  # {"value": […]}, which no dict can hold as a key
    ("rows", "757a"),  # extra_info.sleuth that is no JSON
    ("rows", "08410000757a0000000000"),
    ("rows", "787d5bbcbcbcbcbcbcbcbcbcbcbcbc"),
    ("rows", "24200000b0"),  # … and that is JSON, but no object
    ("normal_forms", "17e599037468043468d385fe999b"),  # U+0374, whose other name is an apostrophe here
    # A target that asked too much: JSON joins two halves of a character.
    (
        "answers",
        "b252180c09ad6b81c102f3ca9ef6f5cbc33293c933df00e0a2c54dd506afde93f9907ff93f798751f3f4abb5557bf74b"
        "1def1e148eb9d135bb3f",
    ),
]


@pytest.mark.parametrize(("target", "data"), SEEDS)
def test_what_once_broke_a_target(target, data):
    tally = Tally(target)
    tally.run(TARGETS[target], bytes.fromhex(data))
    assert tally.findings == {}


@pytest.mark.parametrize("target", TARGETS)
def test_random_inputs(target):
    tally = Tally(target)
    for data in random_inputs(SEED, -(-RANDOM * SHARES[target] // sum(SHARES.values()))):
        tally.run(TARGETS[target], data)
    assert tally.findings == {}


@pytest.mark.parametrize("target", TARGETS)
def test_inputs_by_hypothesis(target):
    @settings(max_examples=-(-GUIDED * SHARES[target] // sum(SHARES.values())), suppress_health_check=list(HealthCheck))
    @given(st.binary(max_size=96))
    def holds(data):
        TARGETS[target](data)

    holds()


def test_every_target_has_its_share():
    assert set(SHARES) == set(TARGETS)
    assert sum(SHARES.values()) == 1_000


def test_a_target_that_does_not_hold_is_a_finding_once():
    tally = Tally("broken")

    def broken(data):
        assert len(data) < 3

    for data in (b"", b"abc", b"abcd"):
        tally.run(broken, data)
    assert tally.inputs == 3
    assert list(tally.findings.values()) == [b"abc".hex()]


def test_random_inputs_are_the_same_for_a_seed_and_not_for_another():
    one, other = list(random_inputs(1, 200)), list(random_inputs(2, 200))
    assert one == list(random_inputs(1, 200))
    assert one != other
    assert len(set(one)) > 150


@pytest.mark.parametrize("name", FUNCTIONS)
def test_long_repetitions_are_read_in_no_time(name):
    """Without a limit on time: what isn't linear takes minutes at this length."""
    function, pieces = FUNCTIONS[name]
    for head, piece in itertools.product(("", "1"), [*pieces[:4], "Action: search[", "1,111", ",111", "<answer>", "["]):
        function(head + piece * 30_000)
