import json
import re

import pytest

from sleuth.anchors.rows import SCHEMA
from sleuth.errors import UserError
from sleuth.recipes.loader import dump_recipe
from sleuth.training.resuming import CHANGEABLE, check_same_inputs, check_same_recipe, data_hash, evidence_hash
from sleuth.training.run_folder import RunFolder
from sleuth.types import Question

FACTS = {
    "seed": 0, "corpus_hash": "c", "prompt_hash": "p", "data_hash": "d", "dev_hash": "e", "test_hash": "t",
    "anchors_hash": "a",
}  # fmt: skip


@pytest.fixture
def run(small, tmp_path):
    run = RunFolder(tmp_path / "run")
    run.start(dump_recipe(small()), FACTS)
    return run


@pytest.mark.parametrize(
    "setting",
    [
        "trainer.lr=1e-9",
        "trainer.updates_per_batch=1",
        "trainer.group=2",
        "reward={f1: 1.0}",
        "grpo.clip_low=0.1",
        "seed=3",
        "limits.k=2",
        "model=elsewhere",
    ],
)
def test_a_setting_that_decides_what_is_learned_may_not_change(run, small, setting):
    key = re.split("[={]", setting)[0].replace("grpo.", "parameters.grpo.")
    with pytest.raises(UserError, match=re.escape(key)):
        check_same_recipe(run, small(setting))


@pytest.mark.parametrize("setting", ["trainer.steps=9", "trainer.save_every=1", "trainer.micro_batch=2"])
def test_how_long_and_in_how_many_pieces_may_change(run, small, setting):
    check_same_recipe(run, small(setting))


def test_fewer_steps_than_were_made_are_refused(run, small):
    folder = run.checkpoint(3)
    folder.mkdir(parents=True)
    (folder / "trainer_state.json").write_text("{}")
    check_same_recipe(run, small("trainer.steps=3"))
    with pytest.raises(UserError, match=r"trainer\.steps is 2, but .* has made 3 steps"):
        check_same_recipe(run, small("trainer.steps=2"))


def test_every_changeable_setting_is_one_of_the_schema(small):
    for key in CHANGEABLE:
        value = small().model_dump()
        for part in key.split("."):
            assert part in value
            value = value[part]


@pytest.mark.parametrize("key", FACTS)
def test_other_inputs_are_refused_by_name(run, key):
    check_same_inputs(run, FACTS)
    with pytest.raises(UserError, match=key):
        check_same_inputs(run, {**FACTS, key: "other"})


def test_a_run_that_wrote_down_no_evidence_goes_on(run):
    run.environment.write_text(json.dumps({k: v for k, v in FACTS.items() if k != "anchors_hash"}))
    check_same_inputs(run, FACTS)


def test_evidence_is_known_by_what_the_teacher_is_shown_of_the_training_questions(small, tmp_path):
    questions = [Question("1", "who ?", ["y"], supporting_titles=["anna"]), Question("2", "where ?", ["z"])]
    file = tmp_path / "anchors.jsonl"

    def of_file(*rows):
        lines = [
            {"schema": SCHEMA, "id": i, "question": q, "anchors": [{"title": "anna", "explanation": e}]}
            for i, q, e in rows
        ]
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return evidence_hash(small("objective=sspo", f"teacher.anchors={file}"), questions)

    first = of_file(("1", "who ?", "she is"))
    assert of_file(("7", "of a test question ?", "he is"), ("1", "who ?", "she is")) == first
    assert of_file(("2", "of another set ?", "he is"), ("1", "who ?", "she is")) == first
    assert of_file(("1", "who ?", "she was")) != first
    assert of_file(("1", "who ?", "she is"), ("2", "where ?", "here")) != first

    named = evidence_hash(small("objective=sspo"), questions)
    questions[0].supporting_titles = ["otto"]
    assert evidence_hash(small("objective=sspo"), questions) != named
    assert evidence_hash(small(), questions) is None
    assert evidence_hash(small(f"teacher.anchors={tmp_path / 'gone'}"), questions) is None
    later = small("diagnosis={action: rollback, rollback: {objective: sspo}}")
    assert evidence_hash(later, questions) is not None


def test_a_damaged_environment_file_is_said(run):
    run.environment.write_text("{")
    with pytest.raises(UserError, match=r"environment\.json"):
        check_same_inputs(run, FACTS)


def test_a_question_set_is_known_by_rows_and_order():
    a, b = Question("1", "x", ["y"]), Question("2", "z", ["y"])
    assert data_hash([a, b]) == data_hash([Question("1", "x", ["y"]), b])
    assert len({data_hash(rows) for rows in ([a, b], [b, a], [a], [])}) == 4


def test_a_run_records_its_facts(run):
    assert json.loads(run.environment.read_text())["seed"] == 0
