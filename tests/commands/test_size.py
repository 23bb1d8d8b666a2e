"""`sleuth plan` through the command line."""

import json

import pytest

from sleuth.cli import run
from sleuth.rollouts import write_rollouts
from sleuth.types import Span, SpanKind, Trajectory

ONE_GPU = [["--gpus", "1"], ["--gpus", "1", "--whole"]]


@pytest.fixture
def plan(capsys):
    """(exit code, stdout, stderr) of ``sleuth plan`` with these arguments, for a small batch."""

    def command(*arguments):
        code = run(["plan", *arguments, "trainer.prompts=32", "trainer.updates_per_batch=2"])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return command


def test_every_assumption_is_printed_before_the_tables(plan):
    code, out, _ = plan("qwen2.5-3b", "--gpus", "8,16")
    assert code == 0
    for said in ("3,085,938,688", "its maker's figures", "geometric", "retriever: 0.15 s", "FSDP", "32 prompts × 5"):
        assert said in out
    assert out.index("assumed") < out.index("AdamW") < out.index("rollout  ")


def test_as_json_it_is_the_same_model(plan):
    found = json.loads(plan("qwen2.5-7b", "--gpus", "8-32", "--gpu", "h200", "--json")[1])
    assert [row["gpus"] for row in found["rows"]] == [8, 16, 32]
    held = [row["bytes"]["weights"] for row in found["rows"]]
    assert held[0] == 2 * held[1] == 4 * held[2] == 4 * found["parameters"] / 8
    for row in found["rows"]:
        seconds = row["seconds"]
        parts = sum(seconds[name] for name in ("rollout", "score", "update", "sync"))
        assert seconds["step"] == pytest.approx(parts)
        assert row["hours"] == pytest.approx(parts * found["steps"] / 3600)


def test_what_does_not_fit_is_said(plan):
    code, out, _ = plan("llama-3.1-70b", "--gpus", "1", "--whole")
    assert code == 0
    assert "it fits nowhere here" in out
    fits = json.loads(plan("llama-3.1-70b", "--gpus", "64", "--gpu", "h200", "--json")[1])["rows"][0]["fits"]
    assert fits


def test_the_advice_names_no_option_that_is_in_force(plan):
    sharded, whole = (plan("llama-3.1-70b", "--gpus", "1", *more)[1] for more in ((), ("--whole",)))
    assert "it fits nowhere here: more GPUs, a smaller trainer.micro_batch" in sharded
    assert "it fits nowhere here: more GPUs without --whole, a smaller trainer.micro_batch" in whole


def test_one_gpu_shares_nothing_and_what_does_not_fit_has_no_times(plan):
    one = plan("qwen2.5-0.5b", "--gpus", "1")[1]
    assert "whole on the one GPU" in one
    assert "FSDP" not in one
    rows = [json.loads(plan("qwen2.5-0.5b", "--sampler", "trainer", *how, "--json")[1])["rows"][0] for how in ONE_GPU]
    assert rows[0]["bytes"] == rows[1]["bytes"]
    assert rows[0]["seconds"] == rows[1]["seconds"]
    mixed = plan("llama-3.1-70b", "--gpus", "1,64", "--gpu", "h200")[1].partition("Seconds of a step")[2]
    small, large = (line.split() for line in mixed.splitlines()[2:4])
    assert small[:3] == ["1", "(doesn't", "fit)"]
    assert set(small[3:]) == {"–"}
    assert "–" not in large


def test_lengths_may_be_those_of_a_run(plan, tmp_path):
    spans = [Span(SpanKind.PROMPT, [1] * 7), Span(SpanKind.POLICY, [2] * 11), Span(SpanKind.OBSERVATION, [3] * 13)]
    spans.append(Span(SpanKind.POLICY, [2] * 5))
    file = tmp_path / "rollouts.jsonl"
    write_rollouts(file, [Trajectory("a", "g", "q", [], spans)])
    code, out, error = plan("qwen2.5-0.5b", "--rollouts", str(file))
    assert code == 0, error
    assert "drawn from the 1 rollouts" in out
    assert "36 a rollout on average" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["qwen2.5-4b"], "did you mean"),
        (["qwen2.5-3b", "--gpu", "abacus"], "h100"),
        (["qwen2.5-3b", "--gpus", "many"], "8-1024"),
        (["qwen2.5-3b", "--gpus", "0"], "8-1024"),
        (["qwen2.5-3b", "--gpus", ""], "--gpus is empty; write a number"),
        (["qwen2.5-3b", "--gpus", "8,"], "8-1024"),
        (["qwen2.5-3b", "--gpus", "5-9"], "a range doubles, and doubling 5 doesn't lead to 9"),
        (["qwen2.5-3b", "--gpus", "16-8"], "doubling 16 doesn't lead to 8"),
        (["qwen2.5-3b", "--gpus", "8", "--parallel", "3"], "doesn't divide"),
        (["qwen2.5-3b", "--sampler", "dice"], "vllm or trainer"),
        (["qwen2.5-3b", "--recipe", "none-such"], "none-such"),
        (["qwen2.5-3b", "trainer.lrr=1"], "trainer.lrr"),
        (["qwen2.5-3b", "--rollouts", "nowhere.jsonl"], "nowhere.jsonl"),
    ],
)
def test_what_is_wrong_is_one_line(plan, arguments, said):
    code, out, error = plan(*arguments)
    assert (code, out) == (2, "")
    assert said in error
    assert error.count("\n") == 1
