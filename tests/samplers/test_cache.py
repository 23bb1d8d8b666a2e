import torch

from sleuth.samplers.cache import KVStore


def test_growing_keeps_what_is_held():
    store = KVStore()
    store.reserve(2, 10)
    like = torch.zeros(1, 3, 4)
    keys, values = store.layer(0, like, like)
    keys[:, :, :10] = torch.randn(2, 3, 10, 4)
    values[:, :, :10] = torch.randn(2, 3, 10, 4)
    store.reserve(5, store.columns + 1)
    grown_keys, grown_values = store.layer(0, like, like)
    assert grown_keys.shape[0] == 5
    assert grown_keys.shape[2] > keys.shape[2]
    assert torch.equal(grown_keys[:2, :, :10], keys[:, :, :10])
    assert torch.equal(grown_values[:2, :, :10], values[:, :, :10])
    assert not grown_keys[2:].any()


def test_keys_and_values_may_differ_in_size():
    store = KVStore()
    store.reserve(1, 1)
    keys, values = store.layer(0, torch.zeros(1, 2, 4), torch.zeros(1, 2, 6))
    assert (keys.shape[-1], values.shape[-1]) == (4, 6)


def test_what_is_held_follows_the_number_type():
    store = KVStore()
    store.reserve(1, 1)
    like = torch.zeros(1, 2, 4)
    store.layer(0, like, like)[0].fill_(1.5)
    keys, values = store.layer(0, like.bfloat16(), like.bfloat16())
    assert (keys.dtype, values.dtype) == (torch.bfloat16, torch.bfloat16)
    assert (keys == 1.5).all()


def test_slots_trade_places():
    store = KVStore()
    store.reserve(3, 4)
    like = torch.zeros(1, 2, 4)
    keys, values = store.layer(0, like, like)
    keys += torch.arange(3.0).view(3, 1, 1, 1)
    values -= torch.arange(3.0).view(3, 1, 1, 1)
    store.move([0, 2], [2, 0], length=2)
    assert keys[:, 0, :, 0].tolist() == [[2] * 2 + [0] * 62, [1] * 64, [0] * 2 + [2] * 62]
    assert torch.equal(values, -keys)
