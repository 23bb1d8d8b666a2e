import numpy as np
import pytest

from sleuth.samplers.turn import Turn
from sleuth.types import Completion, SampleRequest, StopReason


def feed(turn, rows, tokens):
    return turn.add(np.array(rows), np.array(tokens), -np.array(tokens, dtype=float))


def test_each_row_stops_by_its_own_rule(rule):
    requests = [
        SampleRequest("a", [1], 9, rule(triggers=[5])),
        SampleRequest("b", [1], 9, rule(ends=[5])),
        SampleRequest("c", [1], 2, rule()),
    ]
    turn = Turn(requests, vocabulary=10)
    assert feed(turn, [0, 1, 2], [3, 3, 5]) == {}
    assert feed(turn, [0, 1, 2], [5, 5, 5]) == {
        0: Completion([3, 5], [-3.0, -5.0], StopReason.ACTION),
        1: Completion([3, 5], [-3.0, -5.0], StopReason.END_OF_TURN),
        2: Completion([5, 5], [-5.0, -5.0], StopReason.LENGTH),
    }


def test_rows_may_come_in_any_order_and_leave(rule):
    turn = Turn([SampleRequest(k, [1], 3, rule(ends=[0])) for k in "abc"], vocabulary=10)
    assert set(feed(turn, [0, 1, 2], [1, 0, 3])) == {1}
    assert feed(turn, [2, 0], [4, 2]) == {}
    done = feed(turn, [0, 2], [5, 6])
    assert (done[0].ids, done[2].ids) == ([1, 2, 5], [3, 4, 6])


def test_complete_is_asked_only_after_a_trigger_and_with_this_turns_ids(rule):
    asked = []
    stop = rule(triggers=[7], complete=lambda ids: asked.append(list(ids)) or len(asked) == 2)
    turn = Turn([SampleRequest("a", [7, 7], 9, stop)], vocabulary=10)
    for token in (1, 7, 2):
        assert feed(turn, [0], [token]) == {}
    assert feed(turn, [0], [7])[0].stop is StopReason.ACTION
    assert asked == [[1, 7], [1, 7, 2, 7]]


def test_an_action_that_ends_at_the_limit_is_an_action(rule):
    turn = Turn([SampleRequest("a", [1], 1, rule(triggers=[7]))], vocabulary=10)
    assert feed(turn, [0], [7])[0].stop is StopReason.ACTION


def test_an_incomplete_trigger_at_the_limit_is_a_cut(rule):
    turn = Turn([SampleRequest("a", [1], 1, rule(triggers=[7], complete=lambda ids: False))], vocabulary=10)
    assert feed(turn, [0], [7])[0].stop is StopReason.LENGTH


def test_ids_outside_the_vocabulary_never_stop_anything(rule):
    turn = Turn([SampleRequest("a", [1], 2, rule(triggers=[50], ends=[-1]))], vocabulary=10)
    assert feed(turn, [0], [9]) == {}


@pytest.mark.parametrize("kind", ["ids", "logprobs"])
def test_completions_hold_plain_numbers(rule, kind):
    turn = Turn([SampleRequest("a", [1], 1, rule())], vocabulary=10)
    (value,) = getattr(feed(turn, [0], [3])[0], kind)
    assert type(value) in (int, float)
