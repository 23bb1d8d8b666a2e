import torch
from hypothesis import given
from hypothesis import strategies as st

from sleuth.samplers.cache import KVStore
from sleuth.samplers.packing import Packing, Segment

CPU = torch.device("cpu")


def store_for(segments):
    store = KVStore()
    store.reserve(1 + max(s.slot for s in segments), max(s.end for s in segments))
    return store


@st.composite
def segment_lists(draw):
    slots = draw(st.permutations(range(draw(st.integers(1, 9)))))
    return [
        Segment(slot, draw(st.integers(0, 90)), [100 * slot + i for i in range(draw(st.integers(1, 300)))])
        for slot in slots
    ]


@given(segment_lists())
def test_every_token_keeps_its_slot_and_position(segments):
    packing, last = Packing.of_segments(store_for(segments), segments, CPU)
    expected = {(s.slot, s.start + i, t) for s in segments for i, t in enumerate(s.ids)}
    packed = list(zip(packing.slots.tolist(), packing.positions.tolist(), packing.tokens.tolist(), strict=True))
    assert len(packed) == len(expected)
    assert set(packed) == expected
    for segment, end in zip(segments, last.tolist(), strict=True):
        assert packed[end] == (segment.slot, segment.end - 1, segment.ids[-1])


@given(segment_lists())
def test_groups_cover_the_tokens_and_see_their_own_past_only(segments):
    packing, _ = Packing.of_segments(store_for(segments), segments, CPU)
    reached = 0
    for group in packing.groups:
        first, last = group.tokens
        assert first == reached
        reached = last
        rows, queries = group.positions.shape
        real = torch.arange(rows * queries) if group.real is None else group.real
        spread = torch.arange(rows * queries) if group.spread is None else group.spread
        assert spread[real].tolist() == list(range(last - first))
        slots = torch.arange(store_for(segments).slots)[group.rows].repeat_interleave(queries)
        assert slots[real].tolist() == packing.slots[first:last].tolist()
        assert group.positions.reshape(-1)[real].tolist() == packing.positions[first:last].tolist()
        visible = (group.bias(2, torch.float32) == 0).sum(-1)[:, 0].expand(rows, -1)
        assert visible.shape == (rows, 2 * queries if queries > 1 else 1)
        for copy in visible.split(queries, dim=1):
            assert (copy.reshape(-1)[real] == packing.positions[first:last] + 1).all()
    assert reached == len(packing.tokens)


def test_segments_of_very_different_length_are_not_padded_to_one():
    segments = [Segment(0, 0, [1] * 10), Segment(1, 0, [1] * 12), Segment(2, 900, [1] * 12), Segment(3, 0, [1] * 120)]
    packing, _ = Packing.of_segments(store_for(segments), segments, CPU)
    assert [(tuple(g.positions.shape), g.columns) for g in packing.groups] == [
        ((2, 12), 12),
        ((1, 12), 912),
        ((1, 120), 120),
    ]


def test_long_segments_attend_in_pieces_that_see_no_more_than_they_need():
    segments = [Segment(0, 50, [1] * 300)]
    packing, last = Packing.of_segments(store_for(segments), segments, CPU)
    assert sorted((g.columns, g.positions.shape[1]) for g in packing.groups) == [(178, 128), (306, 128), (350, 44)]
    assert packing.positions[last].tolist() == [349]


def test_next_tokens_carry_idle_slots_through_attention_only():
    store = KVStore()
    store.reserve(4, 10)
    slots, positions, tokens = torch.tensor([0, 1, 3]), torch.tensor([5, 2, 7]), torch.tensor([11, 12, 13])
    packing = Packing.of_next_tokens(store, tokens, slots, positions, span=4, columns=8)
    assert packing.tokens.tolist() == [11, 12, 13]
    (group,) = packing.groups
    assert group.positions[:, 0].tolist() == [5, 2, 0, 7]
    assert group.real is not None
    assert group.real.tolist() == [0, 1, 3]


def test_write_reaches_its_place_and_nothing_else():
    segments = [Segment(1, 3, [0, 0]), Segment(0, 0, [0])]
    store = store_for(segments)
    packing, _ = Packing.of_segments(store, segments, CPU)
    key = torch.arange(1.0, 1 + 3 * 2 * 4).view(3, 2, 4)
    keys, values = packing.write(0, key, -key)
    assert torch.equal(keys, -values)
    for n, (slot, position) in enumerate(zip(packing.slots.tolist(), packing.positions.tolist(), strict=True)):
        assert torch.equal(keys[slot, :, position], key[n])
    assert (keys != 0).sum() == key.numel()
