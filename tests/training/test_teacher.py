"""Whose weights the teacher has, when they follow the policy, and that they come back from a checkpoint."""

import pytest
import torch
from torch import nn

from sleuth.errors import UserError
from sleuth.training.teacher import FILE, Teacher


class Policy(nn.Module):
    """A frozen part and a trained one, as with LoRA."""

    def __init__(self):
        super().__init__()
        self.base = nn.Linear(2, 2).requires_grad_(False)
        self.adapter = nn.Linear(2, 2)

    def forward(self, x):
        return self.base(x) + self.adapter(x)


@pytest.fixture
def policy():
    torch.manual_seed(0)
    return Policy()


def _move(policy, by=1.0):
    with torch.no_grad():
        policy.adapter.weight += by


def _scores(policy, teacher):
    with teacher.scoring():
        return policy(torch.ones(1, 2))


def test_a_copy_stays_until_it_is_renewed(policy):
    teacher = Teacher(policy, "copy", every=2)
    seen = []
    for step in range(1, 6):
        renewed = teacher.before_batch(step)
        seen.append((renewed, torch.equal(_scores(policy, teacher), policy(torch.ones(1, 2)))))
        _move(policy)
    assert seen == [(True, True), (False, False), (True, True), (False, False), (True, True)]


def test_a_copy_that_is_never_renewed_is_the_start_model(policy):
    start = policy(torch.ones(1, 2)).detach()
    teacher = Teacher(policy, "copy", every=0)
    for step in range(1, 4):
        teacher.before_batch(step)
        _move(policy)
    assert torch.equal(_scores(policy, teacher), start)


def test_the_average_moves_by_its_rate(policy):
    teacher = Teacher(policy, "ema", rate=0.25)
    teacher.before_batch(1)
    before = policy.adapter.weight.detach().clone()
    _move(policy, 4.0)
    teacher.before_batch(2)
    with teacher.scoring():
        torch.testing.assert_close(policy.adapter.weight.detach(), before + 1.0)


def test_the_policy_itself_needs_no_memory(policy):
    teacher = Teacher(policy, "policy")
    teacher.before_batch(1)
    assert teacher.bytes == 0
    _move(policy)
    assert torch.equal(_scores(policy, teacher), policy(torch.ones(1, 2)))


def test_only_what_is_trained_is_copied(policy):
    teacher = Teacher(policy, "copy")
    teacher.before_batch(1)
    assert teacher.bytes == 4 * (4 + 2)


def test_the_base_is_the_model_without_its_adapters(policy):
    with pytest.raises(UserError, match=r"model_settings\.lora"):
        Teacher(policy, "base")
    from peft import LoraConfig, get_peft_model

    start = policy(torch.ones(1, 2)).detach()
    lora = get_peft_model(policy, LoraConfig(r=1, target_modules=["base"]))
    teacher = Teacher(lora, "base")
    teacher.before_batch(1)
    assert teacher.bytes == 0
    with torch.no_grad():
        for name, p in lora.named_parameters():
            if "lora_B" in name:
                p += 1.0
    assert not torch.equal(lora(torch.ones(1, 2)), start)
    assert torch.equal(_scores(lora, teacher), start)
    assert all(p.requires_grad for n, p in lora.named_parameters() if "lora_" in n)


@pytest.mark.parametrize("weights", ["copy", "ema", "policy"])
def test_no_gradient_reaches_the_teacher_and_the_policy_comes_back(policy, weights):
    teacher = Teacher(policy, weights)
    teacher.before_batch(1)
    _move(policy)
    before = {n: p.detach().clone() for n, p in policy.named_parameters()}
    same = {n: p.data_ptr() for n, p in policy.named_parameters()}
    assert not _scores(policy, teacher).requires_grad
    with pytest.raises(ZeroDivisionError), teacher.scoring():
        raise ZeroDivisionError
    assert all(torch.equal(p, before[n]) and p.data_ptr() == same[n] for n, p in policy.named_parameters())
    loss = (policy(torch.ones(1, 2)) - _scores(policy, teacher)).sum()
    loss.backward()
    assert policy.adapter.weight.grad is not None


@pytest.mark.parametrize("weights", ["copy", "ema"])
def test_a_checkpoint_brings_the_teacher_back_bit_for_bit(policy, weights, tmp_path):
    teacher = Teacher(policy, weights, every=50, rate=0.3)
    for step in (1, 2):
        teacher.before_batch(step)
        _move(policy)
    teacher.save(tmp_path)
    other = Teacher(policy, weights, every=50, rate=0.3)
    with pytest.raises(RuntimeError, match="before step 3"):
        other.before_batch(3)
    other.load(tmp_path)
    teacher.before_batch(3)
    other.before_batch(3)
    assert torch.equal(_scores(policy, teacher), _scores(policy, other))
    assert not torch.equal(_scores(policy, other), policy(torch.ones(1, 2)))


def test_a_checkpoint_without_a_teacher_is_refused(policy, tmp_path):
    with pytest.raises(UserError, match=FILE):
        Teacher(policy, "copy").load(tmp_path)
    Teacher(policy, "policy").load(tmp_path)
    teacher = Teacher(policy, "copy")
    teacher.before_batch(1)
    teacher.save(tmp_path)
    with pytest.raises(UserError, match="other weights"):
        Teacher(nn.Linear(3, 3), "copy").load(tmp_path)
