"""What a dry run says of a run that would go on: after a rollback, and in rounds. Plain ones: ``tests/test_cli.py``."""

import json

import pytest

from sleuth.recipes.loader import dump_recipe, load_recipe
from sleuth.training.outlook import outlook
from sleuth.training.run_folder import RunFolder, write_lines


@pytest.fixture
def begun(tmp_path):
    """The folder of a run, with whole checkpoints of these steps."""

    def begin(recipe, *steps, folder="run"):
        run = RunFolder(tmp_path / folder)
        for step in steps:
            run.checkpoint(step).mkdir(parents=True)
            for name in ("trainer_state.json", "optimizer.pt"):
                (run.checkpoint(step) / name).write_text("{}")
        run.path.mkdir(exist_ok=True)
        run.write_recipe(dump_recipe(recipe))
        return run

    return begin


def test_a_rollback_that_is_due_is_said_with_its_settings_and_not_made(begun):
    recipe = load_recipe("laptop", ["trainer.steps=9", "trainer.lr=1e-3"])
    run = begun(recipe, 2, 4, 6)
    write_lines(run.metrics, [{"step": step} for step in range(1, 7)])
    run.log_alarm({"level": "dead", "action": "stop", "step": 6, "since": 4})
    as_if_nothing, lines = outlook(recipe, run)
    assert as_if_nothing == recipe
    assert lines[-1].startswith(f"{run.path} goes on from its checkpoint of step 6: 3 of 9 steps are left")

    rolls_back = load_recipe(run.recipe, ["diagnosis.action=rollback", "diagnosis.rollback.lr_factor=0.5"])
    in_force, lines = outlook(rolls_back, run)
    assert in_force.trainer.lr == pytest.approx(5e-4)
    assert lines[0].startswith("rollback 1: back from step 6 to the checkpoint of step 2, with trainer.lr=0.0005")
    assert lines[-1].startswith(f"{run.path} goes on from its checkpoint of step 2: 7 of 9 steps are left")
    assert run.checkpoint_steps() == [2, 4, 6]
    assert not run.rollbacks.exists()


def test_a_schedule_of_rounds_is_told_by_round_and_stage(begun):
    recipe = load_recipe("laptop", ["schedule=search_e1", "search_e1.rounds=2", "trainer.steps=8"])
    run = begun(recipe)
    rl = begun(recipe, 3, folder="run/rounds/1/rl")

    def said():
        (line,) = outlook(recipe, run)[1]
        return line

    assert "round 1 of 2, reinforcement learning, after step 3 of 8; 1 rounds are left after it" in said()
    rl.summary.write_text('{"checkpoint": "checkpoints/step-3"}')
    assert "round 1 of 2, the pool for its distillation; 1 rounds" in said()
    distilled = run.path / "rounds" / "1" / "distill"
    distilled.mkdir()
    (distilled / "distill.json").write_text('{"updates": 5}')
    assert "round 2 of 2, reinforcement learning, after step 0 of 8; 0 rounds" in said()
    run.summary.write_text(json.dumps({"rounds": [1, 2]}))
    assert "is finished, all 2 rounds" in said()
