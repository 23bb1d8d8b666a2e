"""examples/one_line is what docs/one-line.md shows: it runs, and adds just the term to the loop that it is put in."""

import importlib.util
import os
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parents[2] / "examples" / "one_line"
DOCS = Path(__file__).parents[2] / "docs" / "one-line.md"
GAMMA = 0.1


def _load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _pull_by_hand(logp, old, advantages, mask, tokens):
    """d term / d logp, (B, T): -gamma / tokens wherever a good rollout's token became less likely."""
    pulled = (logp < old) & (advantages[:, None] > 0) & mask.bool()
    return -GAMMA / float(tokens) * pulled.to(logp.dtype)


@pytest.mark.parametrize("file", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_the_docs_show_the_file_as_it_stands(file):
    assert f"```python\n{(EXAMPLES / file).read_text()}```" in DOCS.read_text()


# ---------------------------------------------------------------------------------------------------------------------
# Plain PyTorch


class Bigram(torch.nn.Module):
    """The smallest language model: the next token's logits by the last one."""

    def __init__(self):
        super().__init__()
        g = torch.Generator().manual_seed(0)
        self.table = torch.nn.Parameter(torch.randn(7, 7, generator=g, dtype=torch.float64))

    def forward(self, input_ids):
        return type("Output", (), {"logits": self.table[input_ids]})()


@pytest.fixture
def plain():
    return _load("plain_loop")


@pytest.fixture
def rollouts(plain):
    """(model, batch) after the policy has moved a little."""
    g = torch.Generator().manual_seed(1)
    model = Bigram()
    ids = torch.randint(0, 7, (6, 12), generator=g)
    mask = (torch.rand(6, 9, generator=g) < 0.6).long()
    advantages = torch.tensor([1.0, -1.0, 0.5, 0.0, 2.0, -0.3], dtype=torch.float64)
    old = plain.log_probs(model, ids, 9).detach()
    with torch.no_grad():
        model.table.add_(0.2 * torch.randn(7, 7, generator=g, dtype=torch.float64))
    return model, {"ids": ids, "old_logp": old, "mask": mask, "advantages": advantages}


class Keep:
    """In place of an optimiser: keeps the gradient."""

    def __init__(self, model):
        self.model = model

    def step(self):
        self.grad = self.model.table.grad.clone()

    def zero_grad(self):
        self.model.table.grad = None


def _plain_step(plain, rollouts, rows_a_pass=6):
    model, batch = rollouts
    kept = Keep(model)
    return plain.update(model, kept, batch, rows_a_pass), kept.grad


def test_the_plain_loop_gets_the_term_and_its_gradient(plain, rollouts, monkeypatch):
    model, batch = rollouts
    loss, grad = _plain_step(plain, rollouts)
    monkeypatch.setattr(plain, "conditional_kl", lambda *args, **kwargs: 0.0)
    base, base_grad = _plain_step(plain, rollouts)
    logp, old, mask, a = plain.log_probs(model, batch["ids"], 9), batch["old_logp"], batch["mask"], batch["advantages"]
    pull = _pull_by_hand(logp, old, a, mask, mask.sum())
    assert loss - base == pytest.approx(((logp - old) * pull).sum().item(), rel=1e-9)
    assert loss > base
    (by_hand,) = torch.autograd.grad(logp, model.table, pull)
    torch.testing.assert_close(grad - base_grad, by_hand, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("rows_a_pass", [1, 4])
def test_the_plain_loop_may_cut_its_step_in_any_way(plain, rollouts, rows_a_pass):
    loss, grad = _plain_step(plain, rollouts)
    cut_loss, cut_grad = _plain_step(plain, rollouts, rows_a_pass)
    assert cut_loss == pytest.approx(loss, rel=1e-9)
    torch.testing.assert_close(cut_grad, grad, rtol=1e-9, atol=1e-12)


def test_the_plain_loop_trains(plain, rollouts):
    model, batch = rollouts
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    losses = [plain.update(model, optimizer, batch, 3) for _ in range(10)]
    assert losses[-1] < losses[0]


# ---------------------------------------------------------------------------------------------------------------------
# TRL


def _trl_trainer(folder, **settings):
    """The example's trainer on a tiny model, and the calls of its loss: (inputs, log-probs, TRL's loss, its loss)."""
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    trl = pytest.importorskip("trl", reason="TRL is not in this environment")
    from datasets import Dataset

    from sleuth.models import load_model, load_tokenizer

    tiny = Path(importlib.util.find_spec("sleuth").origin).parent / "recipes" / "assets" / "tiny"
    calls = []

    class Watched(_load("trl_trainer").SearchSAPOTrainer):
        def _compute_loss(self, model, inputs):
            loss = super()._compute_loss(model, inputs)
            logp = self._logp
            # TRL's own loss and both gradients, on the very same log-probs.
            leaf = logp.detach().requires_grad_()
            given = lambda *args, **kwargs: (self.__dict__.__setitem__("_logp", leaf) or leaf, leaf.detach(), None)  # noqa: E731
            self._get_per_token_logps_and_entropies = given
            try:
                base = trl.GRPOTrainer._compute_loss(self, model, inputs)
                ours = super()._compute_loss(model, inputs)
                grads = [torch.autograd.grad(x, leaf, retain_graph=True)[0] for x in (base, ours)]
            finally:
                del self._get_per_token_logps_and_entropies
            calls.append((inputs, leaf.detach(), base.item(), loss.item(), grads))
            return loss

    tokenizer = load_tokenizer(str(tiny))
    config = trl.GRPOConfig(
        output_dir=str(folder),
        per_device_train_batch_size=4,
        num_generations=4,
        gradient_accumulation_steps=2,
        max_completion_length=8,
        max_steps=2,
        learning_rate=0.02,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        disable_tqdm=True,
        logging_steps=1,
        **settings,
    )
    trainer = Watched(
        model=load_model(str(tiny)),
        # Every other rollout is good, so that each group has both.
        reward_funcs=lambda prompts, **_: [float(i % 2) for i in range(len(prompts))],
        args=config,
        train_dataset=Dataset.from_dict({"prompt": ["who is it ?", "where is it ?"] * 4}),
        processing_class=tokenizer,
    )
    return trainer, calls


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The calls of a run of two optimiser steps on one batch of rollouts, two passes each."""
    trainer, calls = _trl_trainer(tmp_path_factory.mktemp("trl"), num_iterations=2)
    trainer.train()
    assert trainer.state.global_step == 2
    return calls


def test_trl_trains_with_the_line_and_loses_nothing_of_its_own(trained):
    assert len(trained) == 4
    for inputs, logp, base, loss, _ in trained:
        mask, old = inputs["completion_mask"], inputs["old_per_token_logps"]
        tokens = inputs["num_items_in_batch"]  # one process; a generation batch is one optimiser step
        pull = _pull_by_hand(logp, old, inputs["advantages"], mask, tokens)
        assert loss == pytest.approx(base + ((logp - old) * pull).sum().item(), abs=1e-6)
    moved = [loss - base for _, _, base, loss, _ in trained]
    assert moved[:2] == pytest.approx([0, 0], abs=1e-6)  # before the first update every ratio is 1
    assert sum(moved[2:]) > 1e-4


def test_the_line_adds_to_trls_gradient_what_it_should(trained):
    pulled = 0
    for inputs, logp, _, _, (base, ours) in trained[2:]:
        pull = _pull_by_hand(
            logp,
            inputs["old_per_token_logps"],
            inputs["advantages"],
            inputs["completion_mask"],
            inputs["num_items_in_batch"],
        )
        torch.testing.assert_close(ours - base, pull, rtol=0, atol=1e-7)
        pulled += int((pull != 0).sum())
    assert pulled > 0


def test_trl_on_policy_is_refused_with_the_settings_to_change(tmp_path):
    trainer, _ = _trl_trainer(tmp_path)
    with pytest.raises(ValueError, match="num_iterations"):
        trainer.train()
