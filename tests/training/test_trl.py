"""The adapter against the engine: what it hands over, and what the loss is made of."""

import pytest
import torch

from sleuth.diagnostics.token_labels import ANSWER
from sleuth.errors import UserError
from sleuth.objectives.aggregation import StepTotals
from sleuth.training.run import train
from sleuth.training.trl import _model_inputs
from sleuth.types import SearchResult


def _first_batch(trainer):
    """What the engine makes of the first rollout batch, before its shuffle, with the trajectories."""
    seen = []
    on_batch = trainer.on_batch
    trainer.on_batch = lambda step, trajectories: (seen.extend(trajectories), on_batch(step, trajectories))
    trainer.model.train()
    rows = [trainer.train_dataset[i] for i in range(3) for _ in range(4)]
    return trainer._generate_and_score_completions(rows), seen


def test_trained_ids_and_masks_are_those_of_the_rollout(built):
    trainer, _ = built()
    batch, trajectories = _first_batch(trainer)
    assert len(trajectories) == 12
    for row, t in enumerate(trajectories):
        prompt = batch["prompt_ids"][row][batch["prompt_mask"][row].bool()].tolist()
        completion = batch["completion_ids"][row][batch["completion_mask"][row].bool()].tolist()
        assert prompt == t.prompt_ids
        assert completion == t.completion_ids
        mask = (batch["completion_mask"] * batch["tool_mask"])[row][: len(completion)].tolist()
        assert mask == t.completion_mask
        assert not (batch["completion_mask"] * batch["tool_mask"])[row][len(completion) :].any()


def test_old_log_probs_are_those_of_a_plain_forward_and_agree_with_the_sampler(built):
    trainer, parts = built()
    batch, trajectories = _first_batch(trainer)
    old = batch["old_per_token_logps"]
    for row, t in enumerate(trajectories):
        ids = torch.tensor([t.prompt_ids + t.completion_ids])
        with torch.no_grad():
            logits = parts.model(input_ids=ids).logits.float().log_softmax(-1)
        start = len(t.prompt_ids)
        plain = logits[0, start - 1 : -1].gather(-1, ids[0, start:, None])[:, 0]
        mask = torch.tensor(t.completion_mask).bool()
        torch.testing.assert_close(old[row][: len(mask)][mask], plain[mask], rtol=0, atol=1e-4)
        sampled = torch.tensor(t.completion_logprobs)
        torch.testing.assert_close(sampled[mask], plain[mask], rtol=0, atol=1e-4)


def test_no_token_of_the_environment_has_loss(built):
    trainer, _ = built()
    batch, _ = _first_batch(trainer)
    policy = (batch["completion_mask"] * batch["tool_mask"]).bool()
    leaves = []

    def spy(*args, **kwargs):
        logp, entropy, aux = type(trainer)._get_per_token_logps_and_entropies(trainer, *args, **kwargs)
        logp = torch.where(policy, logp, -1.0)  # what stands there otherwise is 0
        leaves.append(logp.detach().requires_grad_())
        return leaves[-1], entropy, aux

    trainer._get_per_token_logps_and_entropies = spy
    batch["step_totals"] = StepTotals.of(policy)
    batch["advantages"] = torch.ones_like(batch["advantages"])
    trainer.current_gradient_accumulation_steps = 1
    trainer.compute_loss(trainer.model, batch).backward()
    assert not leaves[0].grad[~policy].any()
    assert (leaves[0].grad[policy] != 0).all()


def test_a_step_split_into_micro_batches_makes_the_same_update(built):
    """Two passes an update or six rows at once. Adam turns rounding in tiny gradients into whole steps, hence norms."""
    moves = []
    for micro in (6, 2):
        trainer, parts = built(f"trainer.micro_batch={micro}", "trainer.steps=1", "trainer.eval_every=0")
        start = torch.cat([p.detach().flatten().clone() for p in parts.model.parameters()])
        trainer.train()
        moves.append(torch.cat([p.detach().flatten() for p in parts.model.parameters()]) - start)
    assert moves[0].norm() > 0
    assert (moves[0] - moves[1]).norm() < 0.02 * moves[0].norm()


def test_rollouts_whose_retriever_failed_train_nothing(built):
    trainer, parts = built("trainer.max_failed_share=1.0")
    inner = parts.retriever.search
    failing = lambda requests, k: [  # noqa: E731
        SearchResult(error="down") if i % 2 else r for i, r in enumerate(inner(requests, k))
    ]
    trainer.agent.retriever = type("Flaky", (), {"search": staticmethod(failing)})()
    batch, trajectories = _first_batch(trainer)
    failed = [i for i, t in enumerate(trajectories) if t.failed]
    assert failed
    assert all(trajectories[i].reward is None for i in failed)
    policy = batch["completion_mask"] * batch["tool_mask"]
    assert not policy[failed].any()
    assert not batch["advantages"][failed].any()
    assert trainer.batch_metrics["share/retriever_failed"] == len(failed) / 12


def test_one_update_a_batch_has_no_ratios_to_tell_of(built):
    """They are exactly 1, whatever the policy does."""
    trainer, _ = built("trainer.updates_per_batch=1", "trainer.steps=1")
    records = []
    trainer.callback_handler.callbacks[-1].run.log = records.append
    trainer.train()
    assert not [name for name in records[0] if name.startswith(("ratio/", "sequence/"))]
    assert records[0]["entropy/think"] > 0
    assert records[0]["likelihood/pos"] < 0


def test_reference_kl_is_logged_and_starts_at_zero(built):
    trainer, _ = built("trainer.kl_coefficient=0.1", "trainer.updates_per_batch=1", "trainer.steps=1")
    records = []
    trainer.callback_handler.callbacks[-1].run.log = records.append
    trainer.train()
    assert records[0]["kl"] == pytest.approx(0.0, abs=1e-6)


def test_lora_trains_adapters_only(built):
    trainer, _ = built("model_settings.lora=4", "trainer.steps=1", "trainer.lr=0.01")
    before = {n: p.detach().clone() for n, p in trainer.model.named_parameters()}
    trainer.train()
    changed = {n for n, p in trainer.model.named_parameters() if not torch.equal(p, before[n])}
    assert changed
    assert all("lora_" in n for n in changed)


def test_with_lora_the_reference_is_the_model_without_its_adapters(built):
    trainer, _ = built("trainer.kl_coefficient=0.1", "model_settings.lora=4")
    batch, _ = _first_batch(trainer)
    policy = (batch["completion_mask"] * batch["tool_mask"]).bool()
    # A fresh adapter changes nothing, so both agree; the model's own weights were never copied.
    difference = (batch["ref_per_token_logps"] - batch["old_per_token_logps"])[policy]
    assert difference.abs().max() < 1e-5
    assert trainer._reference is None


def test_neither_shared_padding_nor_passages_cost_what_nobody_reads(built):
    trainer, _ = built()
    computed, projected = [], []

    def count(module, args, kwargs):
        if "labels" in kwargs:
            computed.append(kwargs["input_ids"].numel())
            projected.append(int((kwargs["labels"] != -100).sum()))

    trainer.model.register_forward_pre_hook(count, with_kwargs=True)
    trainer.args.per_device_train_batch_size = 1
    batch, trajectories = _first_batch(trainer)
    one_by_one = batch["old_per_token_logps"]
    assert sum(computed) == sum(len(t.prompt_ids) + len(t.completion_ids) for t in trajectories)
    assert sum(projected) == sum(t.policy_tokens for t in trajectories)
    policy = (batch["completion_mask"] * batch["tool_mask"]).bool()
    trainer._scoring = policy
    together, entropy, _ = trainer._get_per_token_logps_and_entropies(trainer.model, *_model_inputs(batch))
    torch.testing.assert_close(one_by_one, together, rtol=0, atol=1e-4)
    assert (entropy[policy] > 0).any()
    assert not together[~policy].any()


def test_a_pass_of_failed_rollouts_still_has_a_gradient_of_zero(built):
    from sleuth.objectives.aggregation import StepTotals

    trainer, _ = built()
    batch, _ = _first_batch(trainer)
    batch["tool_mask"] = torch.zeros_like(batch["tool_mask"])
    batch["step_totals"] = StepTotals(tokens=100, rollouts=12)
    trainer.current_gradient_accumulation_steps = 1
    loss = trainer.compute_loss(trainer.model, batch)
    loss.backward()
    assert loss == 0
    assert all(p.grad is None or not p.grad.any() for p in trainer.model.parameters())


def test_terms_are_logged_and_train_after_the_first_update(built):
    trainer, _ = built("objective=search_sapo+llds+entropy", "llds.ma=true", "trainer.steps=1", "trainer.lr=0.01")
    records = []
    trainer.callback_handler.callbacks[-1].run.log = records.append
    trainer.train()
    assert records[0]["term/search_sapo"] > 0
    assert records[0]["term/llds"] >= 0
    assert records[0]["term/entropy"] < 0


def test_an_entropy_bonus_reaches_the_weights(built):
    """The bonus alone: all advantages are 0."""
    trainer, _ = built("objective=entropy", "entropy.coefficient=1.0")
    batch, _ = _first_batch(trainer)
    batch["advantages"] = torch.zeros_like(batch["advantages"])
    batch["step_totals"] = StepTotals.of(batch["completion_mask"] * batch["tool_mask"], batch["rollout_advantages"])
    trainer.current_gradient_accumulation_steps = 1
    loss = trainer.compute_loss(trainer.model, batch)
    loss.backward()
    assert loss < 0
    assert any(p.grad is not None and p.grad.any() for p in trainer.model.parameters())


def test_groups_without_signal_leave_the_step_of_dapo(built):
    trainer, _ = built("objective=dapo")
    trainer._reward = lambda trajectories: [
        setattr(t, "reward", float(i in (0, 8, 9, 10, 11))) for i, t in enumerate(trajectories)
    ]
    batch, _ = _first_batch(trainer)
    policy = batch["completion_mask"] * batch["tool_mask"]
    assert (policy.sum(-1) > 0).tolist() == [True] * 4 + [False] * 8
    assert trainer.batch_metrics["masked_rollouts"] == 8
    assert trainer.batch_metrics["zero_variance_groups"] == 2


def test_copies_of_mixed_groups_take_the_places_of_groups_without_signal(built):
    trainer, _ = built("objective=dapo+calibadv", "dapo.zero_variance=copy", "trainer.steps=1")
    trainer._reward = lambda trajectories: [
        setattr(t, "reward", float(i in (0, 8))) for i, t in enumerate(trajectories)
    ]
    batch, trajectories = _first_batch(trainer)
    rows = batch["rows"].tolist()
    assert sorted(rows[:4]) == [0, 1, 2, 3]
    assert sorted(rows[8:]) == [8, 9, 10, 11]
    assert rows[4:8] in ([0, 1, 2, 3], [8, 9, 10, 11])
    for place, row in enumerate(rows):
        prompt = batch["prompt_ids"][place][batch["prompt_mask"][place].bool()].tolist()
        completion = batch["completion_ids"][place][batch["completion_mask"][place].bool()].tolist()
        assert (prompt, completion) == (trajectories[row].prompt_ids, trajectories[row].completion_ids)
        policy = (batch["completion_mask"] * batch["tool_mask"])[place][: len(completion)].tolist()
        assert policy == trajectories[row].completion_mask
        for name in ("old_per_token_logps", "advantages", "kinds"):
            assert torch.equal(batch[name][place], batch[name][rows.index(row)])
    assert trainer.batch_metrics["replaced_rollouts"] == 4
    assert trainer.batch_metrics["masked_rollouts"] == 0
    assert trainer.batch_metrics["calibadv/without_silver"] <= 1
    trainer.train()


def test_reshaped_advantages_keep_the_rollouts_own_beside_them(built):
    trainer, _ = built("objective=calibadv+search_sapo")
    trainer._reward = lambda trajectories: [setattr(t, "reward", float(i % 4 == 0)) for i, t in enumerate(trajectories)]
    batch, _ = _first_batch(trainer)
    assert batch["rollout_advantages"].shape == (12,)
    assert batch["advantages"].shape == batch["completion_ids"].shape
    assert (batch["rollout_advantages"][::4] > 0).all()


def test_answer_tokens_are_those_of_the_answer_channel(built):
    trainer, parts = built("objective=llds", "llds.ma=true")
    batch, trajectories = _first_batch(trainer)
    answered = 0
    for row, t in enumerate(trajectories):
        text = parts.tokenizer.decode(batch["completion_ids"][row][batch["kinds"][row] == ANSWER]).strip()
        if t.answer:
            answered += 1
            assert text == t.answer
        assert batch["searches"][row] == t.counts.get("searches", 0)
    assert answered


def test_drift_is_asked_for_before_anything_is_built(small, tmp_path):
    recipe = small("objective=search_sapo", "trainer.updates_per_batch=1")
    with pytest.raises(UserError, match=r"trainer.updates_per_batch=1"):
        train(recipe, tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


def test_nothing_is_reported_of_a_run(built, monkeypatch):
    sent = []
    monkeypatch.delenv("CI", raising=False)  # where it is set, the engine is silent anyway
    monkeypatch.setattr("trl.trainer.base_trainer.send_telemetry", lambda *args, **kwargs: sent.append(args))
    built()
    assert sent == []
