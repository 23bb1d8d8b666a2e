"""`sleuth diagnose` as a person and a CI job meet it."""

import json
from pathlib import Path

import pytest
from streams import after, stream

from sleuth.cli import run
from sleuth.recipes.loader import dump_recipe, load_recipe
from sleuth.rollouts import write_rollouts
from sleuth.types import EndReason, Part, PartKind, Span, SpanKind, Status, Trajectory

SICK = {"ratio__pos__q01": after(20, 0.05), "reward": after(40, 0.0)}


@pytest.fixture
def sleuth(capsys):
    """Runs a command line: (exit code, stdout, stderr)."""

    def command(*arguments):
        code = run([str(a) for a in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return command


def write(path: Path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def rollout(name, reward, new, step=1, old=-0.1):
    """One thought and one query, whose query tokens got ``new`` as their log-prob."""
    span = Span(
        SpanKind.POLICY, [5] * 40, "x", logprobs=[old] * 40, old_logprobs=[old] * 40,
        new_logprobs=[old] * 20 + [new] * 20, parts=[Part(PartKind.THINK, 0, 20), Part(PartKind.QUERY, 20, 40)],
    )  # fmt: skip
    return Trajectory(
        name, "g", "q ?", ["a"], [Span(SpanKind.PROMPT, [1], "q"), span], step=step, reward=reward,
        status=Status.ANSWERED, end=EndReason.ANSWER, format_valid=True, answer="a",
    )  # fmt: skip


def test_a_run_folder_is_judged_by_its_own_limits_and_settings(sleuth, tmp_path):
    write(tmp_path / "run" / "metrics.jsonl", stream(60, **SICK))
    settings = ["trainer.lr=3e-6", "diagnosis.rules.low_tail.on=false"]
    (tmp_path / "run" / "recipe.yaml").write_text(dump_recipe(load_recipe("laptop", settings)))
    code, out, _ = sleuth("diagnose", tmp_path / "run")
    assert code == 0
    assert "Sleuth, 60 steps, 1 to 60\ncollapsed, since step" in out
    assert "ratio/pos/q01" not in out
    assert "trainer.lr=1.0e-06 (now 3.0e-06)" in out
    assert "What can't be told" not in out


def test_json_holds_all_of_it(sleuth, tmp_path):
    path = write(tmp_path / "metrics.jsonl", stream(60, **SICK))
    code, out, _ = sleuth("diagnose", path, "--json")
    verdict = json.loads(out)
    assert code == 0
    assert (verdict["engine"], verdict["level"], verdict["since"]) == ("sleuth", "dead", 20)
    assert verdict["alarms"][0]["rule"] == "low_tail"
    assert verdict["alarms"][0]["active"] is True


@pytest.mark.parametrize(
    ("changes", "level", "code"),
    [({}, "early", 0), (SICK, "early", 1), (SICK, "dead", 1), ({"ratio__pos__q01": after(20, 0.05)}, "late", 0)],
)
def test_the_exit_code_is_for_ci(sleuth, tmp_path, changes, level, code):
    path = write(tmp_path / "metrics.jsonl", stream(60, **changes))
    assert sleuth("diagnose", path, "--fail-on", level)[0] == code
    assert sleuth("diagnose", path)[0] == 0


def test_limits_can_be_set_for_a_look(sleuth, tmp_path):
    path = write(tmp_path / "metrics.jsonl", stream(60))
    assert "no alarm" in sleuth("diagnose", path)[1]
    assert "early alarm" in sleuth("diagnose", path, "--set", "low_tail.limit=0.95")[1]


def test_rollouts_with_log_probs_show_kind_sign_and_the_worst(sleuth, tmp_path):
    batch = [rollout("good", 1.0, -6.0), rollout("fine", 1.0, -0.2), rollout("bad", 0.0, -0.1)]
    write_rollouts(tmp_path / "rollouts.jsonl.zst", batch)
    code, out, _ = sleuth("diagnose", tmp_path / "rollouts.jsonl.zst")
    assert code == 0
    assert "saved rollouts, step 1" in out
    assert "query tokens, turn 1, positive advantage" in out
    assert "rollouts: good fine" in out
    assert "one batch has no history" in out


def test_rollouts_of_many_steps_are_judged_by_step(sleuth, tmp_path):
    batch = [
        rollout(f"{name}-{step}", reward, new if step > 10 else -0.1, step)
        for step in range(1, 21)
        for name, reward, new in (("good", 1.0, -6.0), ("bad", 0.0, -0.1))
    ]
    write_rollouts(tmp_path / "rollouts.jsonl", batch)
    verdict = json.loads(sleuth("diagnose", tmp_path / "rollouts.jsonl", "--json")[1])
    alarm = next(a for a in verdict["alarms"] if a["rule"] == "low_tail")
    assert (alarm["since"], alarm["step"], alarm["rollouts"]) == (11, 12, ["good-12"])


def test_rollouts_without_log_probs_say_that_there_are_no_ratios(sleuth, tmp_path):
    batch = [rollout("a", 1.0, -0.1), rollout("b", 0.0, -0.1)]
    for t in batch:
        t.spans[1].old_logprobs = t.spans[1].new_logprobs = None
    write_rollouts(tmp_path / "rollouts.jsonl", batch)
    out = sleuth("diagnose", tmp_path / "rollouts.jsonl")[1]
    assert "save old_logprobs and new_logprobs" in out
    assert "2 of 2 policy spans have no old_logprobs or no new_logprobs" in out


def test_another_trainers_run_says_what_is_missing(sleuth, tmp_path):
    rows = [
        {"step": s, "data": {"actor/ppo_kl": 0.001 if s < 20 else 0.3, "critic/score/mean": 0.4}} for s in range(1, 31)
    ]
    out = sleuth("diagnose", write(tmp_path / "verl.jsonl", rows))[1]
    assert "verl, 30 steps" in out
    assert "late alarm in step 21: the policy has drifted as a whole" in out
    assert "actor_rollout_ref.actor.optim.lr" in out
    assert "no per-token ratios" in out


def test_a_rollback_is_told(sleuth, tmp_path):
    write(tmp_path / "run" / "metrics.jsonl", stream(60))
    settings = {"trainer.lr": 1e-6, "objective": "grpo", "parameters": {}}
    done = {"number": 1, "from_step": 30, "to_step": 20, "alarm": {}, "settings": settings, "before": settings}
    write(tmp_path / "run" / "rollbacks" / "1" / "rollback.json", [done])
    assert "rollback 1 gave up steps 21 to 30" in sleuth("diagnose", tmp_path / "run")[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.jsonl"], "no such file"),
        (["{tmp}"], "is a folder without"),
        (["{file}", "--fail-on", "soon"], "write one of early, late, dead"),
        (["{file}", "--set", "low_tale.limit=1"], "did you mean 'low_tail'"),
        (["{file}", "--set", "low_tail"], "RULE.limit=VALUE"),
        (["{file}", "--set", "low_tail.hits=9"], "window of 5"),
    ],
)
def test_a_mistake_is_one_line(sleuth, tmp_path, arguments, message):
    file = write(tmp_path / "metrics.jsonl", stream(3))
    code, out, error = sleuth("diagnose", *(a.format(tmp=tmp_path / "..", file=file) for a in arguments))
    assert (code, out) == (2, "")
    assert message in error
    assert error.count("\n") == 1
