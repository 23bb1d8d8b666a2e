"""The callback on a plain TRL trainer: what it logs, that it changes nothing, and what it does on an alarm."""

import json
import logging

import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from sleuth.assembly import ASSETS
from sleuth.diagnostics.alarm_limits import AlarmLimits
from sleuth.diagnostics.names import is_known
from sleuth.training.drift_callback import DriftCallback

QUESTIONS = ["who is parent of a ?", "who is rival of b ?", "who is founder of c ?", "who is parent of d ?"]


def _reward(completions, **columns):
    """Of nothing that means anything, but of the text alone."""
    return [float(sum(map(ord, text)) % 3 == 0) for text in completions]


@pytest.fixture
def plain(tmp_path):
    """``plain(**settings)``: a small GRPOTrainer that TRL would build for anyone."""

    def make(folder="out", **settings):
        defaults = {
            "output_dir": str(tmp_path / folder), "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2,
            "num_generations": 4, "max_completion_length": 8, "max_steps": 4, "logging_steps": 1, "num_iterations": 2,
            "learning_rate": 1e-3, "bf16": False, "gradient_checkpointing": False, "use_cpu": True, "report_to": [],
            "save_strategy": "no", "disable_tqdm": True, "seed": 3,
        }  # fmt: skip
        tokenizer = AutoTokenizer.from_pretrained(ASSETS / "tiny")
        return GRPOTrainer(
            model=AutoModelForCausalLM.from_pretrained(ASSETS / "tiny", dtype=torch.float32),
            reward_funcs=_reward,
            args=GRPOConfig(**(defaults | settings)),
            train_dataset=Dataset.from_dict({"prompt": QUESTIONS}),
            eval_dataset=Dataset.from_dict({"prompt": QUESTIONS}),
            processing_class=tokenizer,
        )

    return make


def _logs(trainer):
    return [row for row in trainer.state.log_history if "loss" in row]


def test_the_run_with_the_callback_is_the_run_without_it_bit_for_bit(plain):
    without = plain("a")
    without.train()
    watched = plain("b")  # after the other has run: building a trainer sets the seed
    watched.add_callback(DriftCallback(watched))
    watched.train()
    for a, b in zip(_logs(without), _logs(watched), strict=True):
        timed = {"step_time", "epoch"}
        assert {k: v for k, v in a.items() if k not in timed} == {k: b[k] for k in a if k not in timed}
    for p, q in zip(without.model.parameters(), watched.model.parameters(), strict=True):
        assert torch.equal(p, q)
    added = set(_logs(watched)[1]) - set(_logs(without)[1])
    assert {"ratio/pos/q01", "ratio/neg/max", "likelihood/pos"} <= added
    assert all(is_known(name) for name in added)
    assert not any("/turn" in name or "/other" in name for name in added)


def test_ratios_are_those_of_the_trainers_loss(plain):
    """Of the second update of each batch; the first finds no weight moved."""
    trainer = plain()
    callback = DriftCallback(trainer)
    trainer.add_callback(callback)
    seen = []
    take = callback._take

    def spy(inputs, logp, entropy):
        old, mask = inputs["old_per_token_logps"], inputs["completion_mask"].bool()
        positive = mask & (inputs["advantages"][:, None] > 0)
        seen.append((trainer.state.global_step, (logp - old)[positive].exp()))
        take(inputs, logp, entropy)

    callback._take = spy
    trainer.train()
    for row in _logs(trainer):
        ratios = torch.cat([r for step, r in seen if step == row["step"] - 1])
        assert len(ratios)
        if row["step"] % 2:
            assert "ratio/pos/min" not in row
            assert row["ratio/noise"] < 1e-3
        else:
            assert row["ratio/pos/min"] == pytest.approx(ratios.min().item(), rel=1e-5)
            assert row["ratio/pos/mean"] == pytest.approx(ratios.mean().item(), rel=1e-5)
            assert row["ratio/clipped"] == pytest.approx(row["clip_ratio/region_mean"], abs=1e-6)


def test_one_update_a_batch_has_no_ratios_and_the_rest_is_watched(plain):
    trainer = plain(num_iterations=1)
    trainer.add_callback(DriftCallback(trainer))
    trainer.train()
    names = {name for row in _logs(trainer) for name in row}
    assert not any(name.startswith("ratio/") for name in names)
    assert "likelihood/pos" in names


EAGER = AlarmLimits.model_validate(
    {"lost_tokens": {"limit": 1.0, "hits": 1, "window": 1}, "large_steps": {"on": False}, "settle": 0}
)
"""Raises an alarm with the first ratio."""


def test_an_alarm_warns_in_the_log_and_the_file(plain, tmp_path, caplog):
    trainer = plain()
    callback = DriftCallback(trainer, limits=EAGER)
    trainer.add_callback(callback)
    with caplog.at_level(logging.WARNING, logger="sleuth.drift"):
        trainer.train()
    (line,) = [json.loads(x) for x in (tmp_path / "out" / "alarms.jsonl").read_text().splitlines()]
    assert (line["rule"], line["step"], line["action"]) == ("lost_tokens", 2, "warn")
    assert "learning_rate=3.3e-04" in line["advice"]
    assert "early alarm in step 2" in caplog.text
    assert trainer.state.global_step == 4


def test_stop_saves_and_ends_training(plain, tmp_path):
    trainer = plain()
    trainer.add_callback(DriftCallback(trainer, action={"early": "stop"}, limits=EAGER))
    trainer.train()
    assert trainer.state.global_step == 2
    assert (tmp_path / "out" / "checkpoint-2").is_dir()


def test_a_resumed_run_raises_no_alarm_twice(plain, tmp_path):
    first = plain(max_steps=2)
    first.add_callback(DriftCallback(first, action={"early": "checkpoint"}, limits=EAGER))
    first.train()
    again = plain()
    callback = DriftCallback(again, limits=EAGER)
    again.add_callback(callback)
    again.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-2"))
    assert again.state.global_step == 4
    assert [a.rule for a in callback.alarms] == []


def test_evaluation_is_no_training(plain):
    trainer = plain(eval_strategy="steps", eval_steps=1, per_device_eval_batch_size=4)
    callback = DriftCallback(trainer)
    trainer.add_callback(callback)
    trainer.train()
    evaluated = [row for row in trainer.state.log_history if "eval_loss" in row]
    assert evaluated
    assert not any(name.startswith(("ratio/", "eval_ratio/")) for row in evaluated for name in row)
    assert callback._monitor.history.records == 4


@pytest.mark.parametrize(
    ("action", "message"), [("rollback", "can't take"), ("panic", "'panic'"), ({"soon": "stop"}, "soon")]
)
def test_an_action_that_it_does_not_know_is_refused(plain, action, message):
    with pytest.raises(ValueError, match=message):
        DriftCallback(plain(), action=action)


def test_a_trainer_without_such_a_loss_is_refused():
    with pytest.raises(TypeError, match="GRPOTrainer"):
        DriftCallback(object())
