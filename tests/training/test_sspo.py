"""``objective=sspo`` through the real trainer: the teacher's pass, its cost, its checkpoint, and when it is GRPO."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from sleuth.anchors.rows import SCHEMA
from sleuth.cli import run as cli
from sleuth.diagnostics.names import is_known
from sleuth.diagnostics.replay import replay
from sleuth.errors import UserError
from sleuth.objectives import resolve
from sleuth.rollouts import read_rollouts
from sleuth.training.run import train
from sleuth.training.run_folder import RunFolder

NUMBERS = ("reward", "loss", "entropy", "grad_norm", "sspo/weight", "sspo/steps", "ratio/mean")


def _some_wrong(trainer):
    """Rewards that leave every group mixed, whatever the rollouts were."""
    trainer._reward = lambda rollouts: [setattr(t, "reward", float(i % 4 == 0)) for i, t in enumerate(rollouts)]


def _all_wrong(trainer):
    """Nobody is right; forms differ, so that advantages do."""
    trainer._reward = lambda rollouts: [setattr(t, "reward", 0.2 * (i % 2)) for i, t in enumerate(rollouts)]


def _trained(built, *settings, reward=_some_wrong):
    """Records, weights and rollouts of a few steps with these rewards."""
    trainer, parts = built("trainer.steps=2", "trainer.eval_every=0", "trainer.lr=0.003", *settings)
    reward(trainer)
    batches = []
    on_batch = trainer.on_batch
    trainer.on_batch = lambda step, rollouts: (batches.append(list(rollouts)), on_batch(step, rollouts))
    records = []
    trainer.callback_handler.callbacks[-1].run.log = records.append
    trainer.train()
    weights = torch.cat([p.detach().flatten().clone() for p in parts.model.parameters()])
    return records, weights, batches


SAME_PROMPT = 'teacher.prompt={prompt: "{question}{anchors}", attempt: "", anchor: "", separator: ""}'
"""A teacher that is shown nothing: the policy's own prompt."""


@pytest.mark.parametrize("granularity", ["step", "token"])
@pytest.mark.parametrize("updates", [1, 2])
def test_the_same_prompt_and_weights_are_grpo_bit_for_bit(built, updates, granularity):
    """A row a pass: in larger ones the teacher's rows keep other company, and rounding differs."""
    shared = (f"trainer.updates_per_batch={updates}", "trainer.micro_batch=1")
    plain, grpo, _ = _trained(built, *shared)
    own = (SAME_PROMPT, "teacher.weights=policy", f"sspo.granularity={granularity}")
    told, sspo, batches = _trained(built, *shared, "objective=sspo", *own)
    assert torch.equal(grpo, sspo)
    assert [r["loss"] for r in plain] == [r["loss"] for r in told]
    assert all(r["teacher/scored"] == 9 and r["sspo/weight"] == 1 for r in told)
    assert all(r["sspo/gain/q05"] == r["sspo/gain/q95"] == 0 for r in told)
    wrong = [t for t in batches[0] if t.reward == 0]
    assert all(s.teacher_logprobs for t in wrong for s in t.policy_spans)


def test_in_passes_of_many_rows_the_same_prompt_differs_by_rounding_alone(built):
    told, _, _ = _trained(built, SAME_PROMPT, "objective=sspo", "teacher.weights=policy")
    assert all(abs(r[f"sspo/gain/q{q}"]) < 1e-4 for r in told for q in ("05", "95"))
    assert all(abs(r["sspo/weight"] - 1) < 1e-4 for r in told)


def test_where_the_teacher_reads_everything_its_passes_are_the_policys(built):
    """All rollouts are wrong, so that both passes have the same rows: bit for bit in passes of any size."""
    _, grpo, _ = _trained(built, reward=_all_wrong)
    told, sspo, _ = _trained(built, SAME_PROMPT, "objective=sspo", "teacher.weights=policy", reward=_all_wrong)
    assert torch.equal(grpo, sspo)
    assert told[0]["teacher/scored"] == 12


def test_evidence_moves_the_weights_and_is_told(built):
    _, grpo, _ = _trained(built)
    records, sspo, batches = _trained(built, "objective=sspo")
    assert not torch.equal(grpo, sspo)
    first = records[0]
    assert first["teacher/scored"] == 9  # of 12, three are right
    assert first["teacher/renewed"] == 1
    assert records[1]["teacher/renewed"] == 0
    assert 0 < first["sspo/weight"] <= 1.2
    assert sum(v for n, v in first.items() if n.startswith("sspo/gains/")) == pytest.approx(1)
    assert first["seconds/teacher"] > 0
    assert [name for name in first if not is_known(name)] == []
    for t in batches[0]:
        assert ("anchors" in t.extra) == (t.reward == 0)
        for span in t.policy_spans:
            assert (span.teacher_logprobs is not None) == (t.reward == 0)


def test_the_teachers_log_probs_are_those_of_a_plain_forward_behind_its_prompt(built):
    trainer, parts = built("objective=sspo")
    _some_wrong(trainer)
    seen = []
    on_batch = trainer.on_batch
    trainer.on_batch = lambda step, rollouts: (seen.extend(rollouts), on_batch(step, rollouts))
    trainer.model.train()
    trainer._generate_and_score_completions([trainer.train_dataset[i] for i in range(3) for _ in range(4)])
    asked = {q.question: q for q in parts.train}
    read = [t for t in seen if t.reward == 0]
    for t in read:
        prompts = trainer._teacher.prompts
        question = asked[t.question]
        prompt = prompts.ids(t, question, prompts.anchors(question))
        ids = torch.tensor([prompt + t.completion_ids])
        with torch.no_grad():
            logits = parts.model(input_ids=ids).logits.float().log_softmax(-1)
        plain = logits[0, len(prompt) - 1 : -1].gather(-1, ids[0, len(prompt) :, None])[:, 0]
        mask = torch.tensor(t.completion_mask).bool()
        scored = torch.tensor([x for s in t.policy_spans for x in s.teacher_logprobs])
        torch.testing.assert_close(scored, plain[mask], rtol=0, atol=1e-4)


def test_weights_are_frozen_before_the_first_update(built, tmp_path):
    """What replay makes of the saved log-probs is what training weighed with, though three updates came between."""
    trainer, _ = built("objective=sspo", "trainer.steps=1", "trainer.eval_every=0", "trainer.updates_per_batch=3")
    _some_wrong(trainer)
    trainer.train()
    record = RunFolder(tmp_path / "run").read_metrics()[0]
    saved = list(read_rollouts(tmp_path / "run" / "rollouts" / "step-000001.jsonl.zst"))
    stats = replay(saved, resolve("sspo")).stats
    for name in ("weight", "capped", "exempt", "steps", "gain/q05", "gain/q50"):
        assert stats[f"sspo/{name}"] == pytest.approx(record[f"sspo/{name}"], rel=1e-4, abs=1e-6)


def test_one_update_a_batch_scores_the_policy_where_it_must(built):
    records, _, _ = _trained(built, "objective=sspo", "trainer.updates_per_batch=1")
    assert records[0]["sspo/steps"] > 0
    assert records[0]["loss"] != 0


def test_what_does_not_fit_the_teacher_keeps_its_weight_and_is_counted(built):
    _, grpo, _ = _trained(built)
    records, sspo, _ = _trained(built, "objective=sspo", "teacher.max_context=8")
    assert torch.equal(grpo, sspo)
    assert records[0]["teacher/too_long"] == records[0]["sspo/unscored"] == 9
    assert records[0]["teacher/scored"] == 0


def test_questions_without_anchors_are_grpo_and_counted(built, tmp_path):
    _, parts = built("objective=sspo")
    file = tmp_path / "anchors.jsonl"
    only = parts.train[0]
    row = {"schema": SCHEMA, "id": only.id, "question": only.question}
    file.write_text(json.dumps(row | {"anchors": [{"title": "anna", "explanation": "anna rival is otto"}]}) + "\n")
    records, _, _ = _trained(built, "objective=sspo", f"teacher.anchors={file}")
    assert records[0]["teacher/without_anchors"] + records[0]["teacher/scored"] == 9
    assert records[0]["teacher/without_anchors"] >= 6
    other = row | {"question": "who is somebody else ?", "anchors": []}
    file.write_text(json.dumps(other) + "\n")
    with pytest.raises(UserError, match="no anchors for any training question"):
        built("objective=sspo", f"teacher.anchors={file}")


def test_groups_without_an_advantage_cost_no_pass(built):
    def same(trainer):
        trainer._reward = lambda rollouts: [setattr(t, "reward", 0.0) for t in rollouts]

    records, _, _ = _trained(built, "objective=sspo", reward=same)
    assert records[0]["teacher/scored"] == 0
    assert records[0]["sspo/unscored"] == 0


def test_zero_variance_groups_make_room_for_copies(built):
    def one_mixed(trainer):
        trainer._reward = lambda rollouts: [setattr(t, "reward", float(i == 0)) for i, t in enumerate(rollouts)]

    records, _, _ = _trained(built, "objective=sspo", "sspo.zero_variance=copy", reward=one_mixed)
    assert records[0]["replaced_rollouts"] == 8
    assert records[0]["teacher/scored"] == 3  # copies are not read again


def test_without_any_mixed_group_the_update_is_skipped(built):
    """Neither the momentum of the step before nor weight decay moves the policy, and no teacher reads."""
    trainer, parts = built(
        "objective=sspo", "sspo.zero_variance=copy", "trainer.steps=2", "trainer.eval_every=0", "trainer.lr=0.003",
        "trainer.weight_decay=0.1",
    )  # fmt: skip
    weights, records = [], []

    def rewarded(rollouts):
        weights.append([p.detach().clone() for p in parts.model.parameters()])
        first = len(weights) == 1
        for i, t in enumerate(rollouts):
            t.reward = float(i % 4 == 0) if first else 0.0

    trainer._reward = rewarded
    trainer.callback_handler.callbacks[-1].run.log = records.append
    trainer.train()
    begun, between = weights
    assert any(not torch.equal(a, b) for a, b in zip(begun, between, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(between, parts.model.parameters(), strict=True))
    assert [r["teacher/scored"] for r in records] == [9, 0]


def test_the_gain_itself_as_the_advantage(built):
    records, _, _ = _trained(built, "objective=sspo", "sspo.gain_as=advantage")
    assert "sspo/weight" not in records[0]
    assert records[0]["sspo/steps"] > 9
    assert records[0]["loss"] != 0


@pytest.mark.parametrize("weights", ["copy", "base", "ema", "policy"])
def test_with_lora_the_teacher_holds_adapters_at_most(built, weights):
    trainer, _ = built(
        "objective=sspo", "model_settings.lora=4", f"teacher.weights={weights}", "trainer.steps=2", "trainer.lr=0.01"
    )
    _some_wrong(trainer)
    trainer.train()
    adapters = sum(p.numel() * 4 for n, p in trainer.model.named_parameters() if "lora_" in n)
    assert trainer._teacher.teacher.bytes == (adapters if weights in ("copy", "ema") else 0)


def test_base_without_lora_is_refused(built):
    with pytest.raises(UserError, match=r"teacher\.every=0"):
        built("objective=sspo", "teacher.weights=base")


def test_a_run_without_evidence_is_refused(small, tmp_path):
    file = tmp_path / "questions.jsonl"
    file.write_text(
        "".join(
            json.dumps({"id": str(i), "question": f"who is it {i} ?", "answers": ["anna"]}) + "\n" for i in range(9)
        )
    )
    recipe = small("objective=sspo", f"data.train={file}")
    with pytest.raises(UserError, match="sleuth anchors build"):
        train(recipe, tmp_path / "run", quiet=True)


@pytest.mark.parametrize("weights", ["copy", "ema"])
def test_a_resumed_run_is_the_unbroken_run(small, tmp_path, weights):
    settings = (
        "objective=sspo", f"teacher.weights={weights}", "teacher.every=3", "trainer.save_every=2", "trainer.lr=0.003",
        "evaluation.enabled=false", "trainer.keep=last", "trainer.eval_every=0",
    )  # fmt: skip
    train(small(*settings), tmp_path / "whole", quiet=True)
    train(small(*settings, "trainer.steps=2"), tmp_path / "parts", quiet=True)
    train(small(*settings), tmp_path / "parts", quiet=True, resume=True)
    whole, parts = (
        [{k: r.get(k) for k in NUMBERS} for r in RunFolder(tmp_path / n).read_metrics()] for n in ("whole", "parts")
    )
    assert len(whole) == 4
    assert parts == whole


def test_other_anchors_are_other_data_for_a_resumed_run(small, tmp_path, built):
    _, parts = built()
    file = tmp_path / "anchors.jsonl"

    def write(explanation):
        rows = [
            {
                "schema": SCHEMA,
                "id": q.id,
                "question": q.question,
                "anchors": [{"title": "t", "explanation": explanation}],
            }
            for q in parts.train
        ]
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))

    write("anna rival is otto")
    settings = ("objective=sspo", f"teacher.anchors={file}", "evaluation.enabled=false", "trainer.eval_every=0")
    train(small(*settings, "trainer.steps=1", "trainer.keep=last"), tmp_path / "other", quiet=True)
    write("anna rival is anna")
    with pytest.raises(UserError, match=r"--resume: anchors_hash is .*, but .* was started with"):
        train(small(*settings, "trainer.steps=2", "trainer.keep=last"), tmp_path / "other", quiet=True, resume=True)
    assert len(RunFolder(tmp_path / "other").read_metrics()) == 1
    write("anna rival is otto")
    train(small(*settings, "trainer.steps=2", "trainer.keep=last"), tmp_path / "other", quiet=True, resume=True)
    assert len(RunFolder(tmp_path / "other").read_metrics()) == 2


def test_a_finished_run_needs_no_teacher(small, tmp_path):
    """Its checkpoints lose optimiser and teacher, and are still scored and used."""
    settings = ("objective=sspo", "trainer.steps=1", "trainer.keep=last", "trainer.eval_every=0")
    done = train(small(*settings), tmp_path / "done", quiet=True)
    run = RunFolder(tmp_path / "done")
    assert (run.checkpoint(1) / "teacher.safetensors").is_file()
    run.drop_optimizers()
    assert not (run.checkpoint(1) / "teacher.safetensors").exists()
    run.summary.unlink()
    again = train(small(*settings), run.path, quiet=True, resume=True)
    assert again["sampled"] == done["sampled"]
    with pytest.raises(UserError, match="without its optimiser"):
        train(small(*settings, "trainer.steps=2"), run.path, quiet=True, resume=True)


@pytest.mark.slow
def test_the_teacher_reads_for_two_processes_what_it_reads_for_one(tmp_path):
    """Evidence, copies and a teacher without adapters; no process has all of the rollouts that are read."""
    names = ["grpo", "sspo", "sspo, copies", "sspo, adapters off"]
    ranks = Path(__file__).with_name("ranks.py")
    launcher = [
        "-m",
        "torch.distributed.run",
        "--rdzv-backend=c10d",
        "--rdzv-endpoint=localhost:0",
        "--nproc-per-node=2",
    ]
    for command in ([], launcher):
        run = [sys.executable, *command, str(ranks), str(tmp_path), *names]
        done = subprocess.run(run, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
    one, two = (torch.load(tmp_path / f"{n}.pt", weights_only=False) for n in (1, 2))
    for name in names[1:]:
        first, second = one[name], two[name]
        for a, b in zip(first["gradients"], second["gradients"], strict=True):
            assert a.norm() > 1e-3
            torch.testing.assert_close(a, b, rtol=0, atol=1e-6, msg=lambda m, name=name: f"{name}: {m}")
        told = {k: v for k, v in first["record"].items() if not k.startswith("seconds/")}
        assert told["teacher/scored"] > 2
        assert told["sspo/gain/q05"] < -0.01  # what is read is another prompt
        assert {k: second["record"][k] for k in told} == {
            k: pytest.approx(v, rel=1e-4, abs=1e-5) for k, v in told.items()
        }
    plain, weighed = (one[name]["gradients"][0] for name in ("grpo", "sspo"))
    assert (plain - weighed).norm() > 1e-3


def test_a_user_trains_replays_and_sees_the_gains(small, tmp_path, capsys):
    from .conftest import SMALL

    out = tmp_path / "run"
    settings = ["trainer.steps=1", "evaluation.enabled=false", "trainer.eval_every=0"]
    assert cli(["train", "laptop", "objective=sspo", *SMALL, *settings, "-o", str(out)]) == 0
    capsys.readouterr()
    assert cli(["replay", str(out / "rollouts" / "step-000001.jsonl.zst"), "--objective", "sspo", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["stats"]["sspo/steps"] > 0
