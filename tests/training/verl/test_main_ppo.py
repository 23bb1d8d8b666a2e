"""verl's own ``main_ppo`` with Ray, TransferQueue, agent-loop workers, FSDP2 and weight sync, on a CPU."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("verl", reason="verl is not in this environment")

from sleuth.anchors.rows import Anchor, AnchorRow
from sleuth.data.questions import load_questions
from sleuth.jsonl import write_jsonl
from sleuth.objectives import resolve
from sleuth.objectives.aggregation import StepTotals
from sleuth.objectives.credit import assign_credit
from sleuth.objectives.tokens import Tokens
from sleuth.rollouts import read_rollouts

sys.path.insert(0, str(Path(__file__).parent))

from hopworld import CLUSTER, CPU, hopworld

LOSS = "actor_rollout_ref.actor.policy_loss"
SEARCH = "actor_rollout_ref.rollout.custom.search"
OURS = f"{LOSS}._target_=sleuth.training.verl.settings.SearchPolicyLossConfig"
SYNC = [
    "trainer.v1.trainer_mode=search_sync",
    "algorithm.adv_estimator=search_objective",
    f"{LOSS}.loss_mode=search_objective",
    OURS,
]
TEACHER = '{prompt: "{anchors} . {question}", attempt: "", anchor: "{explanation}", separator: " . "}'


def main_ppo(folder, *overrides, steps=2):
    """The metrics of each step, and the world."""
    world = hopworld(folder)
    questions = load_questions(world.questions)
    rows = (
        AnchorRow(q.id, q.question, tuple(Anchor(t, q.question) for t in q.supporting_titles[:1])) for q in questions
    )
    write_jsonl(folder / "anchors.jsonl", (row.as_json() for row in rows))
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "VERL_PLATFORM": "cpu",
        "VERL_ENGINE_DEVICE": "cuda",
        "VERL_USE_EXTERNAL_MODULES": "cpu_rollout",
        "PYTHONPATH": str(CPU),
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "RAY_worker_niceness": "0",  # 15 else, and a busy machine leaves the workers nothing
    }
    command = [
        *(sys.executable, "-m", "verl.trainer.main_ppo", *world.overrides, *CLUSTER),
        *(f"trainer.total_training_steps={steps}", *overrides),
    ]
    for _ in range(4):
        done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)
        # Ray gives its own processes 30 s to come up, whatever else the machine does.
        if "node timed out during startup" not in done.stdout + done.stderr:
            break
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return [dict(_metrics(line)) for line in done.stdout.splitlines() if re.search(r"\bstep:\d+ - ", line)]


def _metrics(line):
    for name, value in re.findall(r"([\w/@.-]+):(-?[\d.]+(?:e[-+]?\d+)?|nan)(?= - |$)", line):
        yield name, float(value)


@pytest.mark.slow
def test_names_of_the_registries_train_under_verls_own_trainer(tmp_path):
    steps = main_ppo(tmp_path, "algorithm.adv_estimator=search_signbalance", f"{LOSS}.loss_mode=search_sapo")
    assert len(steps) == 2
    assert all(step["actor/grad_norm"] > 0 for step in steps)


@pytest.mark.slow
def test_a_steps_loss_is_that_of_our_objective_on_the_same_rollouts(tmp_path):
    """One update a step, so that every ratio is 1 and old log-probs are new ones."""
    rollouts = f"+{SEARCH}.save_rollouts={tmp_path / 'rollouts'}"
    one_update = "actor_rollout_ref.actor.ppo_mini_batch_size=4"
    steps = main_ppo(tmp_path, *SYNC, f"+{LOSS}.objective=calibadv", one_update, rollouts)
    objective = resolve("calibadv")
    for number, metrics in enumerate(steps, 1):
        trajectories = list(read_rollouts(tmp_path / "rollouts" / f"step-{number:05d}.jsonl.zst"))
        assert len(trajectories) == 16
        width = max(len(t.completion_ids) for t in trajectories)
        mask = torch.tensor([t.completion_mask + [0] * (width - len(t.completion_mask)) for t in trajectories]).bool()
        groups = {t.group: n for n, t in enumerate(trajectories)}
        credit = assign_credit(
            objective,
            torch.tensor([t.reward or 0.0 for t in trajectories]),
            torch.tensor([groups[t.group] for t in trajectories]),
            torch.tensor([not t.failed for t in trajectories]),
            mask,
            trajectories,
        )
        zeros = torch.zeros(mask.shape)
        tokens = Tokens.build(zeros, zeros, credit.tokens, mask, rollout_advantages=credit.rollouts)
        wanted = objective.token_loss(tokens, StepTotals.of(mask, credit.rollouts)).loss.sum().item()
        assert metrics["actor/pg_loss"] == pytest.approx(wanted, abs=1e-5)


@pytest.mark.slow
def test_sspo_alone_trains_by_settings(tmp_path):
    teacher = [f"+{SEARCH}.teacher.anchors={tmp_path / 'anchors.jsonl'}", f"+{SEARCH}.teacher.prompt={TEACHER}"]
    steps = main_ppo(tmp_path, *SYNC, f"+{LOSS}.objective=sspo", *teacher)
    assert len(steps) == 2
    assert all(step["actor/grad_norm"] > 0 for step in steps)
    assert sum(step["search/teacher/scored"] for step in steps) > 0
    assert sum(step.get("search/sspo/steps", 0) for step in steps) > 0


@pytest.mark.slow
def test_calibadv_sspo_and_search_sapo_train_together(tmp_path):
    teacher = [f"+{SEARCH}.teacher.anchors={tmp_path / 'anchors.jsonl'}", f"+{SEARCH}.teacher.prompt={TEACHER}"]
    steps = main_ppo(tmp_path, *SYNC, f"+{LOSS}.objective=calibadv+sspo+search_sapo", *teacher)
    assert all(step["actor/grad_norm"] > 0 for step in steps)
    assert sum(step["search/teacher/scored"] for step in steps) > 0
    assert sum(step["actor/term/search_sapo"] for step in steps) > 0
