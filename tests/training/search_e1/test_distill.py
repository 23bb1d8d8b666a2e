"""The stage on a tiny policy: exact zero, masks, teacher without gradients, and that breaking it changes nothing."""

from dataclasses import replace

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from sleuth.errors import RunFailed
from sleuth.recipes.loader import load_recipe
from sleuth.training.run_folder import RunFolder
from sleuth.training.search_e1 import distill
from sleuth.training.search_e1.distill import collate, distillation_loss, run_stage, save_model, schedule_rows
from sleuth.training.search_e1.hidden_states import frozen_head_of, head_of, hidden_states
from sleuth.training.search_e1.settings import DistillSettings
from sleuth.training.search_e1.views import Views
from sleuth.training.teacher import Teacher
from sleuth.world.tiny import make_tiny_model, make_tiny_tokenizer

PLAIN = DistillSettings(clip=None)


def views(seed, prompt=4, reference=6, response=8, vocabulary=100):
    g = torch.Generator().manual_seed(seed)

    def ids(n):
        return torch.randint(3, vocabulary, (n,), generator=g).tolist()

    bare = ids(prompt)
    kept = [True, True, False, True, False, False, True, True][:response]
    return Views(bare, ids(reference) + bare, ids(response), kept, (f"s{seed}", f"r{seed}"))


@pytest.fixture
def pairs():
    return [views(i, prompt=3 + i % 3, reference=4 + i) for i in range(5)]


def rows(pairs, settings=PLAIN):
    return schedule_rows(pairs, settings, 0)


def adapted(model, rank=4):
    from peft import LoraConfig, get_peft_model

    return get_peft_model(model, LoraConfig(r=rank, target_modules="all-linear", task_type="CAUSAL_LM"))


def recipe(*settings):
    small = ["search_e1.distill.lora=4", "search_e1.distill.batch=2", "search_e1.distill.lr=1e-3"]
    return load_recipe("laptop", [*small, *settings])


# The loss of a batch


def test_equal_prompts_and_fresh_adapters_give_exactly_zero(pairs):
    model = adapted(make_tiny_model(0))
    same = [replace(v, teacher=v.student) for v in pairs]
    result = distillation_loss(model, Teacher(model, "base"), collate(rows(same), 0), PLAIN)
    assert result.loss.tolist() == [0.0] * sum(v.tokens for v in pairs)


def test_equal_prompts_and_a_fresh_copy_give_exactly_zero(pairs):
    model = make_tiny_model(0)
    teacher = Teacher(model, "copy", every=0)
    teacher.before_batch(1)
    same = [replace(v, teacher=v.student) for v in pairs]
    assert distillation_loss(model, teacher, collate(rows(same), 0), PLAIN).loss.abs().max() == 0


def test_other_prompts_do_not(pairs):
    model = adapted(make_tiny_model(0))
    assert (distillation_loss(model, Teacher(model, "base"), collate(rows(pairs), 0), PLAIN).loss > 0).all()


@pytest.mark.parametrize("lora", [True, False])
def test_no_gradient_reaches_the_teacher_and_its_weights_stay(pairs, lora):
    model = adapted(make_tiny_model(0)) if lora else make_tiny_model(0)
    teacher = Teacher(model, "base" if lora else "copy", every=0)
    teacher.before_batch(1)
    batch = collate(rows(pairs), 0)
    with teacher.scoring():
        before = hidden_states(model, batch["teacher_ids"], batch["teacher_attention"]).clone()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=1.0)
    distillation_loss(model, teacher, batch, PLAIN).loss.mean().backward()
    if lora:
        assert all(p.grad is None for n, p in model.named_parameters() if "lora_" not in n)
    optimizer.step()
    with teacher.scoring():
        assert torch.equal(hidden_states(model, batch["teacher_ids"], batch["teacher_attention"]), before)
    assert distillation_loss(model, teacher, batch, PLAIN).loss.isfinite().all()


def test_the_gradient_is_that_of_the_loss_written_out(pairs):
    """With the teacher's distributions as constants and the student's from the model's own forward."""
    model = make_tiny_model(0)
    teacher = Teacher(model, "copy", every=0)
    teacher.before_batch(1)
    batch = collate(rows(pairs), 0)
    distillation_loss(model, teacher, batch, PLAIN).loss.mean().backward()
    ours = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    with torch.no_grad():
        p = (
            model(input_ids=batch["teacher_ids"], attention_mask=batch["teacher_attention"])
            .logits[batch["teacher_kept"]]
            .log_softmax(-1)
        )
    q = (
        model(input_ids=batch["student_ids"], attention_mask=batch["student_attention"])
        .logits[batch["student_kept"]]
        .log_softmax(-1)
    )
    torch.nn.functional.kl_div(q, p, log_target=True, reduction="batchmean").backward()
    for a, b in zip(ours, model.parameters(), strict=True):
        torch.testing.assert_close(a, b.grad, rtol=1e-4, atol=1e-7)


def test_logits_at_observations_change_nothing(pairs):
    """Noise on the hidden states of every position that predicts no sampled token."""
    model = adapted(make_tiny_model(0))
    batch = collate(rows(pairs), 0)
    teacher = Teacher(model, "base")
    clean = distillation_loss(model, teacher, batch, PLAIN)
    kept = {batch[f"{view}_kept"].shape: batch[f"{view}_kept"] for view in ("student", "teacher")}

    def noise(module, arguments, output):
        states = output.last_hidden_state
        mask = kept[states.shape[:2]]
        output.last_hidden_state = torch.where(mask[..., None], states, torch.randn_like(states) * 100)
        return output

    handle = model.get_base_model().base_model.register_forward_hook(noise)
    noisy = distillation_loss(model, teacher, batch, PLAIN)
    handle.remove()
    assert torch.equal(clean.loss, noisy.loss)


def test_padding_changes_nothing(pairs):
    model = adapted(make_tiny_model(0))
    teacher = Teacher(model, "base")
    together = distillation_loss(model, teacher, collate(rows(pairs), 0), PLAIN).loss
    alone = [distillation_loss(model, teacher, collate([row], 0), PLAIN).loss for row in rows(pairs)]
    torch.testing.assert_close(together, torch.cat(alone), rtol=1e-4, atol=1e-6)


def test_the_kept_tokens_are_those_that_the_policy_sampled(pairs):
    batch = collate(rows(pairs), 0)
    for view in ("student", "teacher"):
        ids, kept = batch[f"{view}_ids"], batch[f"{view}_kept"]
        assert ids[:, 1:][kept[:, :-1]].tolist() == batch["tokens"].tolist()


# Weights of an update


@pytest.mark.parametrize("aggregation", ["token_mean", "seq_mean_token_mean"])
def test_the_weights_of_an_update_sum_to_one(pairs, aggregation):
    settings = DistillSettings(batch=2, epochs=2, aggregation=aggregation)
    order = schedule_rows(pairs, settings, 3)
    assert len(order) == 10
    for start in range(0, 10, 2):
        update = order[start : start + 2]
        assert sum(r.weight * r.views.tokens for r in update) == pytest.approx(1)
        if aggregation == "seq_mean_token_mean":
            assert [r.weight * r.views.tokens for r in update] == pytest.approx([0.5, 0.5])


def test_every_epoch_has_every_pair_in_an_order_of_its_own(pairs):
    order = [r.views.ids for r in schedule_rows(pairs, DistillSettings(epochs=2), 1)]
    assert sorted(order[:5]) == sorted(order[5:]) == sorted(v.ids for v in pairs)
    assert order[:5] != order[5:]
    assert [r.views.ids for r in schedule_rows(pairs, DistillSettings(epochs=2), 1)] == order


# Whole stages


def weights(model):
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def stage(pairs, folder, *settings):
    return run_stage(recipe(*settings), make_tiny_model(0), make_tiny_tokenizer(), pairs, folder, seed=5)


def test_a_stage_moves_the_policy_towards_its_teacher(pairs, tmp_path):
    stage(
        pairs, tmp_path / "a", "search_e1.distill.clip=null", "search_e1.distill.epochs=8", "search_e1.distill.lr=5e-3"
    )
    records = RunFolder(tmp_path / "a").read_metrics()
    assert [r["step"] for r in records] == list(range(1, 21))
    first, last = (sum(r["distill/kl"] for r in part) for part in (records[:3], records[-3:]))
    assert last < first / 2
    assert {"distill/loss", "distill/clipped", "distill/gain", "distill/tokens", "distill/grad_norm"} <= records[
        0
    ].keys()


@pytest.mark.parametrize("lora", ["4", "null"])
def test_a_broken_stage_goes_on_to_the_same_weights(pairs, tmp_path, lora):
    settings = (f"search_e1.distill.lora={lora}", "search_e1.distill.save_every=1", "search_e1.distill.epochs=2")
    whole = weights(stage(pairs, tmp_path / "whole", *settings))

    class Killed(Exception):
        pass

    def kill(record):
        if record["step"] == 3:
            raise Killed

    with pytest.raises(Killed):
        run_stage(
            recipe(*settings), make_tiny_model(0), make_tiny_tokenizer(), pairs, tmp_path / "b", seed=5, progress=kill
        )
    assert RunFolder(tmp_path / "b").checkpoint_steps() == [2]
    broken = weights(stage(pairs, tmp_path / "b", *settings))
    assert broken.keys() == whole.keys()
    for name, value in broken.items():
        torch.testing.assert_close(value, whole[name], rtol=1e-5, atol=1e-7)
    records = [RunFolder(tmp_path / folder).read_metrics() for folder in ("whole", "b")]
    for one, other in zip(*records, strict=True):
        assert one["step"] == other["step"]
        assert one["distill/loss"] == pytest.approx(other["distill/loss"], rel=1e-4)


def test_a_finished_stage_gives_its_weights_again(pairs, tmp_path):
    once = weights(stage(pairs, tmp_path / "a"))
    again = weights(stage(pairs, tmp_path / "a"))
    for name, value in once.items():
        assert torch.equal(value, again[name])


def test_passes_of_another_size_change_nothing(pairs, tmp_path):
    one = weights(stage(pairs, tmp_path / "a", "search_e1.distill.micro_batch=1"))
    two = weights(stage(pairs, tmp_path / "b", "search_e1.distill.micro_batch=2"))
    for name, value in one.items():
        torch.testing.assert_close(value, two[name], rtol=1e-3, atol=2e-5)


def test_a_loss_that_is_no_number_ends_the_stage(pairs, tmp_path, monkeypatch):
    real = distill.distil
    monkeypatch.setattr(distill, "distil", lambda *a, **k: replace(real(*a, **k), loss=real(*a, **k).loss * torch.nan))
    with pytest.raises(RunFailed, match="update 1"):
        stage(pairs, tmp_path / "a")


def test_a_model_folder_replaces_what_a_killed_process_left(tmp_path):
    model, tokenizer = make_tiny_model(0), make_tiny_tokenizer()
    for _ in range(2):
        save_model(model, tokenizer, tmp_path / "model")
    assert (tmp_path / "model" / "model.safetensors").is_file()
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


# Both halves of a model


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(("config", "model"), [(LlamaConfig, LlamaForCausalLM), (Qwen2Config, Qwen2ForCausalLM)])
def test_the_halves_give_the_models_own_logits(config, model, tied):
    torch.manual_seed(0)
    whole = model(
        config(
            vocab_size=50, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=1, tie_word_embeddings=tied,
        )
    ).eval()  # fmt: skip
    ids, attention = torch.randint(50, (2, 7)), torch.ones(2, 7, dtype=torch.long)
    states = hidden_states(whole, ids, attention)
    logits = whole(input_ids=ids, attention_mask=attention).logits
    torch.testing.assert_close(head_of(whole)(states), logits)
    torch.testing.assert_close(frozen_head_of(whole)(states), logits)


def test_scales_and_soft_caps_of_a_kind_of_model_are_kept():
    from transformers import (
        CohereConfig,
        CohereForCausalLM,
        Gemma2Config,
        Gemma2ForCausalLM,
        GraniteConfig,
        GraniteForCausalLM,
    )

    shape = {"vocab_size": 50, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "pad_token_id": 0}
    for config, model, own in (
        (Gemma2Config, Gemma2ForCausalLM, {"final_logit_softcapping": 0.5, "head_dim": 8}),
        (CohereConfig, CohereForCausalLM, {"logit_scale": 0.3}),
        (GraniteConfig, GraniteForCausalLM, {"logits_scaling": 4.0}),
    ):
        torch.manual_seed(0)
        whole = model(config(**shape, **heads, **own)).eval()
        ids, attention = torch.randint(50, (1, 5)), torch.ones(1, 5, dtype=torch.long)
        states = hidden_states(whole, ids, attention)
        torch.testing.assert_close(head_of(whole)(states), whole(input_ids=ids, attention_mask=attention).logits)


def test_the_frozen_head_keeps_the_weights_of_its_day():
    model = make_tiny_model(0)
    teacher = Teacher(model, "copy", every=0)
    teacher.before_batch(1)
    h = torch.randn(2, 64)
    with teacher.scoring():
        head = frozen_head_of(model)
    before = head(h)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(1.0)
    assert torch.equal(head(h), before)
    assert not torch.equal(head_of(model)(h), before)
