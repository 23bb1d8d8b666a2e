import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sleuth.objectives.turns import turns_in_mask, turns_of
from sleuth.types import Span, SpanKind, Trajectory


def sampled(lengths=(3, 2, 2), between=2):
    """Turns of so many tokens, with ``between`` observation tokens after every one but the last."""
    spans = [Span(SpanKind.PROMPT, [1, 2])]
    for i, length in enumerate(lengths):
        if i:
            spans.append(Span(SpanKind.OBSERVATION, [7] * between))
        spans.append(Span(SpanKind.POLICY, [5] * length))
    return Trajectory("r7", "q", "?", ["a"], spans)


def policy_mask(trajectories):
    width = max(len(t.completion_ids) for t in trajectories)
    rows = [t.completion_mask + [0] * (width - len(t.completion_mask)) for t in trajectories]
    return torch.tensor(rows, dtype=torch.bool)


def test_turns_without_text_between_them_stay_apart_by_their_spans():
    rollout = sampled(between=0)
    mask = policy_mask([rollout])
    assert turns_of([rollout], mask).tolist() == [[0, 0, 0, 1, 1, 2, 2]]
    assert turns_in_mask(mask).tolist() == [[0] * 7]


def test_turns_of_a_padded_batch():
    rollouts = [sampled(), sampled(lengths=(1,))]
    # What the template puts before the first sampled token belongs to the prompt, hints between turns to neither.
    rollouts[1].spans.insert(1, Span(SpanKind.OBSERVATION, [9]))
    rollouts[0].spans[2].kind = SpanKind.HINT
    mask = policy_mask(rollouts)
    expected = [[0, 0, 0, -1, -1, 1, 1, -1, -1, 2, 2], [0, *[-1] * 10]]
    assert turns_of(rollouts, mask).tolist() == expected
    assert turns_in_mask(mask).tolist() == expected


def test_a_mask_of_another_batch_is_refused():
    rollout = sampled()
    mask = policy_mask([rollout])
    with pytest.raises(ValueError, match=r"'r7'.*didn't sample"):
        turns_of([rollout], torch.ones_like(mask))
    with pytest.raises(ValueError, match=r"'r7'.*up to 7"):
        turns_of([rollout], mask[:, :5])
    with pytest.raises(ValueError, match="2 trajectories"):
        turns_of([rollout, rollout], mask)


@given(st.lists(st.integers(0, 1), min_size=1, max_size=30))
def test_turns_in_a_mask_number_its_runs(mask):
    turns = turns_in_mask(torch.tensor([mask]))[0].tolist()
    expected, run = [], -1
    for t, bit in enumerate(mask):
        run += bit and (t == 0 or not mask[t - 1])
        expected.append(run if bit else -1)
    assert turns == expected
