import pytest

from sleuth.samplers.scripted import ScriptedSampler, ScriptedTurn
from sleuth.types import Sampler, SampleRequest, SamplingParams, StopReason

PARAMS = SamplingParams()


def ask(sampler, rule, key="a", ids=(1, 2), limit=10):
    return sampler.sample([SampleRequest(key, list(ids), limit, rule)], PARAMS)[0]


def test_is_a_sampler():
    assert isinstance(ScriptedSampler({}), Sampler)


def test_plays_each_keys_turns_in_order(rule):
    sampler = ScriptedSampler({"a": [[3, 4], [5]], "b": [[6]]})
    both = [SampleRequest("b", [1], 10, rule()), SampleRequest("a", [1], 10, rule())]
    assert [c.ids for c in sampler.sample(both, PARAMS)] == [[6], [3, 4]]
    assert ask(sampler, rule()).ids == [5]
    with pytest.raises(LookupError, match="one more"):
        ask(sampler, rule())
    with pytest.raises(LookupError, match="no script for 'c'"):
        ask(sampler, rule(), key="c")


def test_a_function_sees_the_request(rule):
    sampler = ScriptedSampler(lambda request: [request.ids[-1] + 1])
    assert ask(sampler, rule(), ids=[7]).ids == [8]
    assert ask(sampler, rule(), key="b", ids=[9]).ids == [10]
    assert [r.ids for r in sampler.requests] == [[7], [9]]


def test_logprobs_are_given_or_the_default(rule):
    sampler = ScriptedSampler({"a": [ScriptedTurn([3, 4], [-1.0, -2.0]), [5]]}, logprob=-0.25)
    assert ask(sampler, rule()).logprobs == [-1.0, -2.0]
    assert ask(sampler, rule()).logprobs == [-0.25]
    with pytest.raises(ValueError, match="2 ids with 1 log-probs"):
        ask(ScriptedSampler({"a": [ScriptedTurn([3, 4], [-1.0])]}), rule())


@pytest.mark.parametrize(
    ("ids", "limit", "kept", "reason"),
    [
        ([3, 8, 4, 9, 5], 10, [3, 8, 4, 9], StopReason.ACTION),  # 8 triggers, but only 9 completes
        ([3, 0, 4], 10, [3, 0], StopReason.END_OF_TURN),
        ([3, 4, 5], 2, [3, 4], StopReason.LENGTH),
        ([3, 9], 2, [3, 9], StopReason.ACTION),  # an action at the limit is complete
        ([3, 4], 10, [3, 4], StopReason.END_OF_TURN),  # the script just ends
    ],
)
def test_stops_where_a_precise_sampler_would(rule, ids, limit, kept, reason):
    stop = rule(triggers=[8, 9], ends=[0], complete=lambda seen: seen[-1] == 9)
    completion = ask(ScriptedSampler({"a": [ids]}), stop, limit=limit)
    assert (completion.ids, completion.stop) == (kept, reason)
    assert len(completion.logprobs) == len(kept)


def test_overshoot_runs_past_the_action_but_not_past_the_limit(rule):
    stop = rule(triggers=[9])
    sampler = ScriptedSampler({"a": [[3, 9, 4, 5, 6]]}, overshoot=True)
    completion = ask(sampler, stop, limit=4)
    assert (completion.ids, completion.stop) == ([3, 9, 4, 5], StopReason.ACTION)


def test_release_is_recorded(rule):
    sampler = ScriptedSampler({"a": [[3]]})
    sampler.release(["a", "unknown"])
    assert sampler.released == ["a", "unknown"]
