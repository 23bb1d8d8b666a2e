import torch

from sleuth.devices import own_device


def test_without_a_gpu_it_is_the_cpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert own_device() == torch.device("cpu")


def test_a_launcher_says_which_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert own_device() == torch.device("cuda", 3)
    monkeypatch.delenv("LOCAL_RANK")
    assert own_device() == torch.device("cuda", 0)
