import torch
from hypothesis import given
from hypothesis import strategies as st

from sleuth.samplers.cache import KVStore
from sleuth.samplers.conversations import Conversation, Conversations


def filled(slots, columns=8):
    """A store whose slot s holds s + 1 in every key and -(s + 1) in every value."""
    store = KVStore()
    store.reserve(slots, columns)
    like = torch.zeros(1, 2, 4)
    keys, values = store.layer(0, like, like)
    keys += torch.arange(1.0, slots + 1).view(-1, 1, 1, 1)
    values -= torch.arange(1.0, slots + 1).view(-1, 1, 1, 1)
    return store


def content(store, slot, length):
    keys, values = store.layer(0, torch.zeros(1, 2, 4), torch.zeros(1, 2, 4))
    (number,) = keys[slot, :, :length].unique().tolist()
    assert (values[slot, :, :length] == -number).all()
    return number


def test_prefix_is_kept_but_for_the_last_token():
    conversation = Conversation(0, [1, 2, 3, 4])
    conversation.keep_prefix_of([1, 2, 3, 4, 5, 6])
    assert conversation.ids == [1, 2, 3, 4]
    conversation.keep_prefix_of([1, 2, 3, 4])
    assert conversation.ids == [1, 2, 3]
    conversation.keep_prefix_of([1, 9, 3, 4])
    assert conversation.ids == [1]
    conversation.keep_prefix_of([7])
    assert conversation.ids == []


@given(st.lists(st.integers(0, 2), max_size=8), st.lists(st.integers(0, 2), min_size=1, max_size=8))
def test_what_is_kept_is_the_longest_proper_common_prefix(held, ids):
    conversation = Conversation(0, list(held))
    conversation.keep_prefix_of(ids)
    n = len(conversation.ids)
    assert conversation.ids == held[:n] == ids[:n]
    assert n == len(ids) - 1 or n == len(held) or held[n] != ids[n]


def test_released_slots_are_used_again():
    conversations = Conversations(KVStore())
    a, b = conversations.admit(["a", "b"])
    assert (a.slot, b.slot) == (0, 1)
    conversations.release(["a", "unknown"])
    assert "a" not in conversations
    c, again = conversations.admit(["c", "b"])
    assert (c.slot, again) == (0, b)


def test_a_limit_takes_slots_from_the_least_recent_and_spares_who_waits():
    conversations = Conversations(KVStore())
    conversations.admit(["a", "b", "c"])
    conversations.admit(["a"])
    admitted = conversations.admit(["d", "e"], limit=3, spare=["b"])
    assert [k in conversations for k in "abcde"] == [False, True, False, True, True]
    assert {c.slot for c in admitted} < {0, 1, 2}


def test_moving_together_keeps_what_everybody_has():
    store = filled(6)
    conversations = Conversations(store)
    held = dict(zip("abcdef", conversations.admit("abcdef"), strict=True))
    for conversation in held.values():
        conversation.ids = [1, 2, 3]
    conversations.release("b")
    numbers = {k: c.slot + 1 for k, c in held.items() if k != "b"}
    assert conversations.move_together([held["a"], held["e"], held["f"]], longest=5) == 3
    assert {held[k].slot for k in "aef"} == {0, 1, 2}
    assert len({held[k].slot for k in "acdef"}) == 5
    for key, number in numbers.items():
        assert content(store, held[key].slot, 5 if key in "aef" else 3) == number
    (g,) = conversations.admit("g")
    assert g.slot not in {held[k].slot for k in "acdef"}


def test_nothing_moves_while_most_are_busy():
    conversations = Conversations(filled(6))
    held = conversations.admit("abcdef")
    assert conversations.move_together([c for c in held if c.slot != 2], longest=3) == 6
    assert [c.slot for c in held] == [0, 1, 2, 3, 4, 5]
