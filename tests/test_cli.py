import errno
import json
import subprocess
import sys
from pathlib import Path

import pytest

from sleuth.cli import run
from sleuth.errors import RunFailed, RunStopped

SMALL = [
    "model=tiny-untrained",
    "world={train: {worlds: 3, questions: 30}, dev: {worlds: 2, questions: 8}, test: {worlds: 2, questions: 6}}",
]


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def sleuth(capsys):
    """Runs a command line: (exit code, stdout, stderr)."""

    def command(*arguments: str) -> tuple[int, str, str]:
        code = run(list(arguments))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return command


def write_rows(path, *rows):
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return str(path)


def one_line(error: str) -> str:
    assert error.startswith("sleuth: ")
    assert error.count("\n") == 1
    return error


# A user's mistakes ----------------------------------------------------------------------------------------------------


def test_a_wrong_key_is_one_line_with_the_nearest_key(sleuth):
    code, out, error = sleuth("train", "laptop", "trainer.lrr=1")
    assert (code, out) == (2, "")
    assert "'trainer.lrr'; did you mean 'trainer.lr'?" in one_line(error)


def test_required_settings_are_named_all_at_once(sleuth):
    code, _, error = sleuth("train", "wiki-smollm2")
    assert code == 2
    assert "needs retriever.corpus, data.train, data.test, model" in one_line(error)


@pytest.mark.parametrize(
    ("command", "start", "end"),
    [
        (["train"], "sleuth train qwen-3b corpus=", "=test.jsonl"),
        (["train", "--dry-run"], "sleuth train qwen-3b corpus=", " --dry-run"),
        (["warmstart"], "sleuth warmstart qwen-3b corpus=", "=test.jsonl"),
    ],
)
def test_the_example_for_required_settings_is_the_command_that_was_given(sleuth, command, start, end):
    code, _, error = sleuth(*command, "qwen-3b")
    example = one_line(error).rstrip().partition("for example: ")[2]
    assert code == 2
    assert example.startswith(start)
    assert example.endswith(end)


@pytest.mark.parametrize("verb", [["train"], ["train", "--dry-run"], ["warmstart"]])
def test_a_missing_file_is_one_line(sleuth, verb, tmp_path):
    paths = ["corpus=nowhere.jsonl", "data.train=gone.jsonl", "data.test=gone.jsonl", "model=tiny-untrained"]
    code, _, error = sleuth(*verb, "wiki-smollm2", *paths)
    assert code == 2
    assert "no such file" in one_line(error)
    assert not list(tmp_path.glob("runs/*/recipe.yaml"))


def test_a_broken_row_is_named_by_file_and_line(sleuth, tmp_path):
    corpus = write_rows(tmp_path / "corpus.jsonl", {"id": "1", "title": "a", "text": "b"})
    rows = write_rows(tmp_path / "rows.jsonl", {"id": "1", "question": "q", "golden_answers": ["a"]}, '{"id": 2,')
    own = ["world=null", f"corpus={corpus}", f"data.train={rows}", "model=tiny-untrained"]
    code, _, error = sleuth("train", "laptop", *own)
    assert code == 2
    assert "rows.jsonl, line 2" in one_line(error)


def test_an_empty_corpus_is_refused(sleuth, tmp_path):
    corpus = write_rows(tmp_path / "corpus.jsonl")
    code, _, error = sleuth("train", "laptop", *SMALL, f"corpus={corpus}")
    assert code == 2
    assert "corpus.jsonl: no passages" in one_line(error)


def test_an_unknown_model_is_refused(sleuth):
    code, _, error = sleuth("train", "laptop", *SMALL[1:], "model=./no-such-model")
    assert code == 2
    assert "no-such-model: no such model folder" in one_line(error)


def test_an_unknown_objective_is_refused(sleuth):
    code, _, error = sleuth("train", "laptop", "--dry-run", *SMALL, "objective=grpoo")
    assert code == 2
    assert "grpo" in one_line(error)


def test_a_run_folder_is_never_written_over(sleuth, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").write_text("mine")
    code, _, error = sleuth("train", "laptop", *SMALL, "-o", "run")
    assert code == 2
    assert "run is not empty" in one_line(error)


UNUSABLE = ["/proc/nosuch", "file.jsonl", "file.jsonl/inside", "x" * 300, "dangling"]


@pytest.mark.parametrize("target", UNUSABLE)
@pytest.mark.parametrize(
    "command",
    [["train", "laptop"], ["train", "laptop", "--dry-run"], ["warmstart", "laptop"], ["eval", "tiny-untrained"]],
)
def test_an_output_folder_that_cannot_be_is_refused_before_any_work(sleuth, tmp_path, monkeypatch, command, target):
    def works(*arguments, **settings):
        raise AssertionError("work was begun")

    monkeypatch.setattr("sleuth.question_sets.load_questions", works)
    monkeypatch.setattr("sleuth.commands.plan.plan", works)
    monkeypatch.setattr("sleuth.assembly.build_model", works)
    write_rows(tmp_path / "file.jsonl", {"id": "1"})
    (tmp_path / "dangling").symlink_to("nowhere")
    code, out, error = sleuth(*command, *([] if command[0] == "eval" else SMALL), "-o", target)
    assert (code, out) == (2, "")
    assert target in one_line(error)
    assert "can't be written" in error
    assert {path.name for path in tmp_path.iterdir()} == {"file.jsonl", "dangling"}


@pytest.mark.parametrize("command", [["warmstart", "laptop"], ["eval", "tiny-untrained"], ["train", "laptop"]])
def test_output_never_joins_other_files(sleuth, tmp_path, command):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    code, _, error = sleuth(*command, "-o", "out")
    assert code == 2
    assert "out is not empty" in one_line(error)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["notes.txt"]


def test_a_start_that_was_refused_can_be_repeated_in_its_folder(sleuth, tmp_path):
    assert sleuth("train", "laptop", *SMALL[1:], "model=./no-such-model", "-o", "run")[0] == 2
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["world"]
    code, _, error = sleuth("train", "laptop", *SMALL[1:], "model=./no-such-model", "-o", "run")
    assert code == 2
    assert "no-such-model: no such model folder" in one_line(error)


def test_there_must_be_something_to_resume(sleuth):
    code, _, error = sleuth("train", "laptop", "--resume")
    assert code == 2
    assert "no run of 'laptop'" in one_line(error)


@pytest.mark.parametrize("arguments", [["trian"], ["train"], ["train", "laptop", "--fast"], ["data"]])
def test_a_wrong_command_line_is_one_line_that_names_the_help(sleuth, arguments):
    code, _, error = sleuth(*arguments)
    assert code == 2
    assert "--help`)" in one_line(error)


# Exit codes of what happens in a run ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (RunFailed("step 3: all rollouts failed"), 1, "step 3"),
        (RunStopped("stopped after step 3"), 130, "stopped after step 3"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (OSError(errno.ENOSPC, "No space left on device", "runs/x/metrics.jsonl"), 1, "the disk is full"),
    ],
)
def test_a_run_that_ends_early_is_one_line_and_an_exit_code(sleuth, monkeypatch, error, code, message):
    def fails(*arguments):
        raise error

    monkeypatch.setattr("sleuth.commands.lists.list_recipes", fails)
    got, _, said = sleuth("recipes")
    assert got == code
    assert message in one_line(said)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ENOENT])
def test_a_path_that_cannot_be_used_is_one_line_with_its_name(sleuth, monkeypatch, number):
    def fails():
        raise OSError(number, "Not For You", "runs/x/metrics.jsonl")

    monkeypatch.setattr("sleuth.commands.lists.list_recipes", fails)
    code, _, error = sleuth("recipes")
    assert code == 2
    assert "runs/x/metrics.jsonl: not for you" in one_line(error)


def test_a_fault_of_our_own_is_not_hidden(monkeypatch):
    def fails():
        raise ZeroDivisionError

    monkeypatch.setattr("sleuth.commands.lists.list_recipes", fails)
    with pytest.raises(ZeroDivisionError):
        run(["recipes"])


# Start-up -------------------------------------------------------------------------------------------------------------


def test_help_loads_nothing_heavy():
    heavy = "{'torch', 'transformers', 'trl', 'datasets', 'pyarrow', 'bm25s', 'numpy', 'pydantic'}"
    code = (
        f"import sys; from sleuth.cli import run; run(['--help']); print('loaded', sorted({heavy} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "train" in done.stdout
    assert done.stdout.splitlines()[-1] == "loaded []"


def test_the_real_command_exits_with_two_and_without_a_traceback():
    done = subprocess.run([sys.executable, "-m", "sleuth.cli", "train", "laptp"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert one_line(done.stderr) == (
        "sleuth: no recipe is called 'laptp'; did you mean 'laptop'? (a file of your own: laptp.yaml)\n"
    )


# Lists and plans ------------------------------------------------------------------------------------------------------


def test_recipes_are_listed_with_what_they_take(sleuth):
    code, out, _ = sleuth("recipes")
    assert code == 0
    lines = {line.split()[0]: line for line in out.splitlines()}
    assert "HopWorld" in lines["laptop"]
    assert "about 1 minute" in lines["laptop"]
    assert {"wiki-smollm2", "qwen-3b"} <= set(lines)


def test_objectives_are_listed_and_shown(sleuth):
    assert "grpo" in sleuth("objectives")[1]
    assert "grpo.clip_low" in sleuth("objectives", "grpo")[1]
    code, _, error = sleuth("objectives", "gprpo")
    assert code == 2
    assert "did you mean grpo?" in one_line(error)


def test_every_objective_is_listed_and_explained(sleuth):
    listed = {line.split()[0] for line in sleuth("objectives")[1].splitlines() if line.strip()}
    for name in ("grpo", "signbalance", "calibadv", "gspo", "soft_sapo", "search_sapo", "llds", "entropy"):
        assert name in listed
        code, out, _ = sleuth("objectives", name)
        assert code == 0
        assert f"{name}." in out
    assert "implies aggregation=sum_over_max_length" in sleuth("objectives", "dr_grpo")[1]
    code, out, _ = sleuth("objectives", "search_e1")
    assert (code, "schedule=search_e1" in out) == (0, True)
    assert "search_e1" in listed
    code, _, error = sleuth("objectives", "sapo")
    assert code == 2
    assert "search_sapo" in one_line(error)


def test_a_term_on_drift_is_refused_on_policy(sleuth):
    code, _, error = sleuth("train", "laptop", "--dry-run", "objective=search_sapo", "trainer.updates_per_batch=1")
    assert code == 2
    assert "trainer.updates_per_batch=1" in one_line(error)


def test_a_dry_run_says_what_the_run_would_take_and_leaves_nothing(sleuth, tmp_path):
    code, out, error = sleuth("train", "laptop", "--dry-run", *SMALL)
    assert (code, error) == (0, "")
    assert "16 prompts × 8 rollouts = 128 rollouts a step" in out
    assert "8 a step, each of 16 rollouts" in out
    assert "train 30, dev 8, test 6" in out
    assert "142,720 parameters" in out
    assert "weights 1 MiB" in out
    assert not list(tmp_path.iterdir())


@pytest.fixture
def killed_run(tmp_path):
    """The folder of a run that was killed in its fourth step of six, one step after a checkpoint."""
    from sleuth.recipes.loader import load_recipe, write_recipe

    run = tmp_path / "runs" / "laptop"
    settings = ["trainer.prompts=2", "trainer.group=4", "trainer.updates_per_batch=2", "trainer.steps=6"]
    for step in (1, 2):
        (run / "checkpoints" / f"step-{step}").mkdir(parents=True)
        for name in ("trainer_state.json", "optimizer.pt"):
            (run / "checkpoints" / f"step-{step}" / name).write_text("{}")
    write_recipe(load_recipe("laptop", [*SMALL, *settings]), run / "recipe.yaml")
    write_rows(run / "metrics.jsonl", *({"step": step} for step in (1, 2, 3)))
    return run


def test_a_dry_run_of_a_resumed_run_says_where_it_goes_on_and_what_is_left(sleuth, killed_run, tmp_path):
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    code, out, error = sleuth("train", "laptop", "--resume", "--dry-run")
    assert (code, error) == (0, "")
    assert "goes on from its checkpoint of step 2: 4 of 6 steps are left, 8 updates, 32 rollouts; " in out
    assert "; steps made a second time: 1" in out
    assert "2 prompts × 4 rollouts = 8 rollouts a step" in out  # the run's recipe, not laptop's
    assert "8 of 10 steps are left" in sleuth("train", "laptop", "--resume", "--dry-run", "trainer.steps=10")[1]
    (killed_run / "checkpoints" / "step-2" / "files.json").write_text('{"model.safetensors": {"bytes": 1}}')
    out = sleuth("train", str(killed_run), "--resume", "--dry-run")[1]
    assert "checkpoint of step 2 is damaged (model.safetensors is missing)" in out
    assert "goes on from its checkpoint of step 1: 5 of 6 steps are left" in out
    (killed_run / "checkpoints" / "step-2" / "files.json").unlink()
    assert before.keys() == set(tmp_path.rglob("*"))
    assert all(path.stat().st_mtime_ns == before[path] for path in before if path.is_file())


def test_a_dry_run_refuses_to_resume_what_train_refuses(sleuth, killed_run, tmp_path):
    for arguments, message in [
        (["trainer.lr=1"], "--resume: trainer.lr is 1.0"),
        (["trainer.steps=1"], "has made 2 steps"),
        (["-o", "elsewhere"], "elsewhere: no run to resume"),
    ]:
        code, out, error = sleuth("train", "laptop", "--resume", "--dry-run", *arguments)
        assert (code, out) == (2, "")
        assert message in one_line(error)
    (killed_run / "checkpoints" / "step-2" / "optimizer.pt").unlink()
    code, _, error = sleuth("train", "laptop", "--resume", "--dry-run")
    assert code == 2
    assert "step-2 was kept without its optimiser" in one_line(error)


def test_a_dry_run_of_a_finished_run_says_that_it_is_finished(sleuth, killed_run):
    (killed_run / "summary.json").write_text("{}")
    code, out, _ = sleuth("train", "laptop", "--resume", "--dry-run", "trainer.steps=2")
    assert code == 0
    assert "is finished, all 2 steps; raise trainer.steps to train on" in out


def test_a_dry_run_reads_the_questions_and_says_what_was_shared(sleuth, tmp_path):
    rows = [{"id": str(i), "question": f"q{i}", "golden_answers": ["a"]} for i in range(9)]
    corpus = write_rows(tmp_path / "corpus.jsonl", {"id": "1", "title": "a", "text": "b"})
    train, test = write_rows(tmp_path / "train.jsonl", *rows[:7]), write_rows(tmp_path / "test.jsonl", *rows[5:])
    where = ["data.dev_size=2", f"corpus={corpus}", f"data.train={train}", f"data.test={test}"]
    code, out, _ = sleuth("train", "qwen-3b", "--dry-run", "model=tiny-untrained", *where)
    assert code == 0
    assert "train 3, dev 2, test 4" in out
    assert "2 training questions are in the test set too" in out
    assert "512 prompts × 5 rollouts = 2,560 rollouts a step" in out
    assert "5,000 updates" in out
    assert "reference" in out


@pytest.fixture
def no_hub(monkeypatch):
    def no_network(self, *arguments, **settings):
        raise OSError("no network")

    monkeypatch.setattr("huggingface_hub.HfApi.model_info", no_network)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("protocol.kind=foo", "protocol.kind='foo' is not known"),
        ("protocol.settings.nosuch=1", "unknown setting 'protocol.settings.nosuch'"),
        ("protocol.tools.x=nosuch:thing", "nosuch:thing: no module nosuch"),
        ("retriever.kind=foo", "retriever.kind='foo' is not known"),
        ("retriever.kind=nosuch:thing", "nosuch:thing: no module nosuch"),
        ("retriever.settings.k3=1", "unknown setting 'retriever.settings.k3'"),
        ("corpus=empty.jsonl", "empty.jsonl: no passages"),
        ("corpus=twice.jsonl", 'twice.jsonl, line 2: id "1" was used on line 1'),
        ("corpus=whole.jsonl", "of the corpus, and no passage has that"),
        ("sampling.temperature=0", "sampling.temperature=0 should be greater than 0"),
        ("world=null", "no passages to search"),
        ("world=null retriever.corpus=whole.jsonl", "no training questions"),
    ],
)
def test_a_dry_run_refuses_what_train_refuses(sleuth, tmp_path, setting, message):
    passage = {"id": "1", "title": "a", "text": "b"}
    write_rows(tmp_path / "empty.jsonl")
    write_rows(tmp_path / "twice.jsonl", passage, passage)
    write_rows(tmp_path / "whole.jsonl", passage)
    errors = []
    for verb in (["train", "--dry-run"], ["train"]):
        code, out, error = sleuth(*verb, "laptop", *SMALL, *setting.split())
        assert (code, out) == (2, "")
        errors.append(one_line(error))
    assert message in errors[0]
    assert errors[0] == errors[1]


def test_a_dry_run_checks_the_protocols_kind_where_the_tokenizer_is_elsewhere(sleuth, no_hub):
    command = ["train", "laptop", "--dry-run", SMALL[1], "model=nobody-anywhere/Model-3B"]
    assert sleuth(*command)[0] == 0
    for kind, message in (("foo", "'foo' is not known"), ("nosuch:thing", "no module nosuch")):
        code, _, error = sleuth(*command, f"protocol.kind={kind}")
        assert code == 2
        assert message in one_line(error)


def test_scoring_at_temperature_0_may_be_planned(sleuth):
    assert sleuth("train", "laptop", "--dry-run", *SMALL, "evaluation.temperature=0")[0] == 0


def test_a_dry_run_says_when_the_dev_set_comes_out_smaller_than_asked_for(sleuth, tmp_path):
    rows = [{"id": str(i), "question": f"q{i}", "golden_answers": ["a"]} for i in range(9)]
    corpus = write_rows(tmp_path / "corpus.jsonl", {"id": "1", "title": "a", "text": "b"})
    own = ["world=null", f"corpus={corpus}", f"data.train={write_rows(tmp_path / 'train.jsonl', *rows)}"]
    command = ["train", "laptop", "--dry-run", SMALL[0], *own]
    code, out, _ = sleuth(*command, "data.dev_size=5")
    assert code == 0
    assert "data.dev_size=5 is more than half of the training questions; dev gets 4 of them, train keeps 5" in out
    assert "more than half" not in sleuth(*command, "data.dev_size=4")[1]


def test_a_dry_run_without_the_hub_estimates_by_the_models_name(sleuth, no_hub):
    code, out, _ = sleuth("train", "laptop", "--dry-run", SMALL[1], "model=nobody-anywhere/Model-3B-Instruct")
    assert code == 0
    assert "3,000,000,000 parameters (by its name, since its config is not cached and the hub can't be reached)" in out
    code, out, _ = sleuth("train", "laptop", "--dry-run", SMALL[1], "model=nobody-anywhere/some-model")
    assert code == 0
    assert "memory can't be estimated" in out


# Files ----------------------------------------------------------------------------------------------------------------

PREDICTIONS = [
    {"id": "1", "prediction": "Paris", "golden_answers": "paris"},
    {"id": "2", "prediction": None, "golden_answers": ["Rome"]},
]


def test_predictions_are_graded_by_both_graders(sleuth, tmp_path):
    code, out, _ = sleuth("grade", write_rows(tmp_path / "p.jsonl", *PREDICTIONS))
    assert code == 0
    assert "2 rows: 1 answered, 1 unanswered, 0 truncated, 0 failed" in out
    assert [line.split()[:2] for line in out.splitlines()[-2:]] == [["squad", "0.5000"], ["robust", "0.5000"]]


def test_graded_rows_as_json_are_alone_on_stdout(sleuth, tmp_path):
    code, out, error = sleuth("grade", write_rows(tmp_path / "p.jsonl", *PREDICTIONS), "--json")
    assert code == 0
    rows = [json.loads(line) for line in out.splitlines()]
    assert rows[0] == PREDICTIONS[0] | {key: {"em": 1.0, "f1": 1.0, "cover_em": 1.0} for key in ("squad", "robust")}
    assert "0.5000" in error


def test_a_row_without_a_prediction_field_is_named(sleuth, tmp_path):
    code, _, error = sleuth("grade", write_rows(tmp_path / "p.jsonl", PREDICTIONS[0], {"id": "2"}))
    assert code == 2
    assert "p.jsonl, line 2" in one_line(error)


def test_no_graded_row_is_printed_before_every_row_is_known_to_be_sound(sleuth, tmp_path):
    code, out, error = sleuth("grade", write_rows(tmp_path / "p.jsonl", PREDICTIONS[0], {"id": "2"}), "--json")
    assert (code, out) == (2, "")
    assert "p.jsonl, line 2" in one_line(error)


QUESTIONS = [
    {"id": "1", "question": "Who?", "golden_answers": ["me"], "data_source": "nq", "fold": 1},
    {"id": "2", "question": "Where?", "golden_answers": ["here"], "data_source": "nq", "fold": 2},
]


def test_a_sound_question_set_passes_the_check(sleuth, tmp_path):
    code, out, _ = sleuth("data", "check", write_rows(tmp_path / "q.jsonl", *QUESTIONS))
    assert code == 0
    assert "2 rows, 0 errors, 0 warnings: ok" in out


def test_a_broken_question_set_fails_the_check_and_shows_every_error(sleuth, tmp_path):
    file = write_rows(tmp_path / "q.jsonl", {"id": "1", "question": " "}, QUESTIONS[1], QUESTIONS[1])
    code, out, error = sleuth("data", "check", file)
    assert code == 2
    assert "q.jsonl, line 1" in error
    assert "q.jsonl, line 3" in error
    assert "3 rows, 2 errors" in out
    code, out, _ = sleuth("data", "check", file, "--json")
    assert code == 2
    assert len(json.loads(out)["errors"]) == 2


@pytest.mark.parametrize(
    ("name", "to"),
    [("out.jsonl", "jsonl"), ("out.parquet", "parquet"), ("out.parquet", "verl"), ("out.jsonl", "flashrag")],
)
def test_a_question_set_survives_conversion(sleuth, tmp_path, name, to):
    pytest.importorskip("pyarrow")
    from sleuth.data.questions import load_questions

    source = write_rows(tmp_path / "q.jsonl", *QUESTIONS)
    code, out, _ = sleuth("data", "convert", source, name, "--to", to, "--where", "fold=[2, 3]")
    assert code == 0
    assert "1 questions" in out
    (question,) = load_questions(name)
    assert (question.id, question.golden_answers, question.extra["fold"]) == ("2", ["here"], 2)


def test_paragraphs_of_the_rows_become_a_corpus(sleuth, tmp_path):
    from sleuth.retrieval.corpus import read_corpus

    row = {
        "_id": "5",
        "question": "Who?",
        "answer": "me",
        "context": [["A", ["One.", " Two."]], ["B", ["Three."]]],
        "supporting_facts": [["A", 0]],
    }
    (tmp_path / "hotpot.json").write_text(json.dumps([row]))
    code, out, _ = sleuth("data", "convert", "hotpot.json", "q.jsonl", "--corpus", "c.jsonl")
    assert code == 0
    assert "2 passages" in out
    assert [d.title for d in read_corpus("c.jsonl").documents] == ["A", "B"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["q.jsonl", "out.jsonl", "--to", "csv"], "jsonl, parquet, flashrag, verl"),
        (["q.jsonl", "q.jsonl"], "is the source itself"),
        (["q.jsonl", "out.jsonl", "--where", "fold"], "write field=value"),
        (["q.jsonl", "out.jsonl", "--where", "fold=7"], "fold"),
        (["gone.jsonl", "out.jsonl"], "no such file"),
    ],
)
def test_a_conversion_that_cannot_be_is_refused(sleuth, tmp_path, arguments, message):
    write_rows(tmp_path / "q.jsonl", *QUESTIONS)
    code, _, error = sleuth("data", "convert", *arguments)
    assert code == 2
    assert message in one_line(error)
    assert not (tmp_path / "out.jsonl").exists()


def test_a_conversion_writes_over_nothing_unless_forced(sleuth, tmp_path):
    row = QUESTIONS[0] | {"context": [["A", ["One."]]]}
    source = write_rows(tmp_path / "q.jsonl", row)
    out, corpus = tmp_path / "out.jsonl", tmp_path / "c.jsonl"
    command = ["data", "convert", source, "out.jsonl", "--corpus", "c.jsonl"]
    for there, other in ((out, corpus), (corpus, out)):
        there.write_text("mine\n")
        code, _, error = sleuth(*command)
        assert code == 2
        assert f"{there.name} is there already" in one_line(error)
        assert there.read_text() == "mine\n"
        assert not other.exists()
        there.unlink()
    out.write_text("mine\n")
    corpus.write_text("mine\n")
    assert sleuth(*command, "--force")[0] == 0
    assert json.loads(out.read_text())["id"] == "1"
    assert "One." in corpus.read_text()
    for own in ([source, "q.jsonl"], [source, "out.jsonl", "--corpus", "q.jsonl"]):
        code, _, error = sleuth("data", "convert", *own, "--force")
        assert code == 2
        assert "is the source itself" in one_line(error)
    assert json.loads((tmp_path / "q.jsonl").read_text()) == row


@pytest.mark.parametrize("target", ["/proc/nosuch/out.jsonl", "q.jsonl/out.jsonl", "folder.jsonl"])
def test_a_conversion_to_where_no_file_can_be_is_refused(sleuth, tmp_path, target):
    source = write_rows(tmp_path / "q.jsonl", *QUESTIONS)
    (tmp_path / "folder.jsonl").mkdir()
    for place in ([target], ["out.jsonl", "--corpus", target]):
        code, _, error = sleuth("data", "convert", source, *place)
        assert code == 2
        assert ("can't be written" in one_line(error)) or "is a folder" in error
        assert not (tmp_path / "out.jsonl").exists()


def test_an_unknown_packaged_model_gets_the_nearest_name(sleuth):
    code, _, error = sleuth("model", "get", "smollm2-135")
    assert code == 2
    assert "smollm2-135m" in one_line(error)


# A policy: eval and ask -----------------------------------------------------------------------------------------------


@pytest.fixture
def model(tmp_path):
    """A model folder with a recipe of its own, as `sleuth warmstart` leaves it, and the world that it belongs to."""
    from sleuth.question_sets import world_files
    from sleuth.recipes.loader import load_recipe, write_recipe
    from sleuth.world.tiny import make_tiny_model, save_tiny

    recipe = load_recipe("laptop", [*SMALL, "evaluation.batch=4"])
    save_tiny(make_tiny_model(0), tmp_path / "model")
    write_recipe(recipe, tmp_path / "model" / "recipe.yaml")
    world_files(recipe, tmp_path / "model")
    return "model"


def test_eval_scores_a_models_own_test_set_and_writes_everything(sleuth, model, tmp_path):
    code, out, _ = sleuth("eval", model)
    assert code == 0
    assert "hopworld" in out
    assert "sampled at T = 1" in out
    assert "greedy" in out
    folder = tmp_path / "model" / "evaluation" / "test"
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["systems"]["agent-sampled"]["sets"]["hopworld"]["n"] == 6
    rows = [json.loads(line) for line in (folder / "scores-agent-sampled.jsonl").read_text().splitlines()]
    assert len(rows) == len({row["id"] for row in rows}) == 6
    assert "| hopworld | 6 |" in (folder / "table.md").read_text()


def test_eval_of_a_question_file_ignores_the_recipes_filters(sleuth, model, tmp_path):
    files = (tmp_path / "model" / "world" / "dev.jsonl", tmp_path / "model" / "recipe.yaml")
    recipe = files[1].read_text().replace("test_where: {}", "test_where: {fold: 3}")
    assert "fold" in recipe
    files[1].write_text(recipe)
    code, _, error = sleuth("eval", model, str(files[0]), "evaluation.greedy=false", "-o", "scores")
    assert code == 0
    assert error.startswith("retriever: ")
    assert error.count("\n") == 1
    systems = json.loads((tmp_path / "scores" / "summary.json").read_text())["systems"]
    assert systems["agent-sampled"]["sets"]["hopworld"]["n"] == 8


def test_eval_says_how_many_questions_were_trained_on(sleuth, model, tmp_path):
    world = tmp_path / "model" / "world"
    code, _, error = sleuth("eval", model, str(world / "train.jsonl"), "evaluation.greedy=false", "-o", "scores")
    assert code == 0
    assert "30 of 30 questions may have been trained on" in error


@pytest.mark.parametrize("command", [["eval", "nosuch", "q.jsonl"], ["ask", "nosuch", "who ?"]])
def test_a_policy_that_is_not_there_is_said_first(sleuth, no_hub, tmp_path, command):
    write_rows(tmp_path / "q.jsonl", *QUESTIONS)
    code, _, error = sleuth(*command)
    assert code == 2
    assert "nosuch: no run, model folder or reachable hub model has this name" in one_line(error)


def test_eval_of_an_unknown_question_file_is_refused(sleuth, model):
    code, _, error = sleuth("eval", model, "gone.jsonl")
    assert code == 2
    assert "gone.jsonl: no such file" in one_line(error)


def test_ask_shows_turns_passages_and_the_answer(sleuth, model):
    code, out, _ = sleuth("ask", model)
    assert code == 0
    assert out.startswith("question  ")
    assert "turn 1" in out
    assert "golden    " in out


def test_ask_needs_to_know_which_part_of_the_corpus(sleuth, model):
    code, _, error = sleuth("ask", model, "who is rival of anna ?")
    assert code == 2
    assert "--part w0000" in one_line(error)
    assert sleuth("ask", model, "who is rival of anna ?", "--part", "w0001")[0] == 0


def test_a_question_without_quotes_is_refused(sleuth, model):
    code, _, error = sleuth("ask", model, "who", "is", "it")
    assert code == 2
    assert "in quotes" in one_line(error)


@pytest.mark.parametrize("command", [["ask", "run", "who ?"], ["eval", "run"], ["export", "run"]])
@pytest.mark.parametrize(
    ("begun", "further"), [(True, "sleuth train run --resume"), (False, "sleuth train run/recipe.yaml")]
)
def test_a_run_without_a_checkpoint_says_how_to_get_one(sleuth, tmp_path, command, begun, further):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "recipe.yaml").write_text("extends: laptop\n")
    if begun:
        (tmp_path / "run" / "checkpoints").mkdir()
    code, _, error = sleuth(*command)
    assert code == 2
    assert "run: this run has no checkpoint yet; " in one_line(error)
    assert error.rstrip().endswith(further)


def test_an_evaluation_taken_for_a_run_says_how_to_see_it(sleuth, tmp_path):
    (tmp_path / "scores").mkdir()
    (tmp_path / "scores" / "recipe.yaml").write_text("extends: laptop\n")
    (tmp_path / "scores" / "evaluation.json").write_text("{}")
    code, _, error = sleuth("ask", "scores", "who ?")
    assert code == 2
    assert "scores is an evaluation, no run or model; see its tables: sleuth eval scores --table" in one_line(error)


@pytest.mark.parametrize(("summary", "expected"), [(None, "step-20"), ({"checkpoint": "checkpoints/step-5"}, "step-5")])
def test_a_run_is_its_kept_checkpoint_or_its_latest(tmp_path, summary, expected):
    from sleuth.commands.policy import find_policy

    for step in (5, 9, 20):
        (tmp_path / "run" / "checkpoints" / f"step-{step}").mkdir(parents=True)
    (tmp_path / "run" / "recipe.yaml").write_text("extends: laptop\n")
    if summary is not None:
        (tmp_path / "run" / "summary.json").write_text(json.dumps(summary))
    policy = find_policy(str(tmp_path / "run"))
    assert policy.recipe.model == str(tmp_path / "run" / "checkpoints" / expected)
    checkpoint = find_policy(str(tmp_path / "run" / "checkpoints" / "step-9"))
    assert (checkpoint.recipe.world is not None, checkpoint.folder) == (True, tmp_path / "run")


# Replay ---------------------------------------------------------------------------------------------------------------

REPLAY = str(Path(__file__).parents[1] / "examples" / "replay" / "rollouts.jsonl")


def test_replay_gives_one_object_a_comparison_or_a_line_that_names_the_row(sleuth, tmp_path):
    code, out, error = sleuth("replay", REPLAY, "--objective", "search_sapo", "--set", "search_sapo.gamma=0", "--json")
    assert (code, error) == (0, "")
    one = json.loads(out)
    assert list(one) == ["objective", "loss", "stats", "rollouts"]
    assert list(one["rollouts"][0]["spans"][0]) == ["span", "advantages", "loss", "grad"]

    several = ["--objective", "grpo,search_sapo", "--objective", "dr_grpo"]
    settings = ["--set", "search_sapo.gamma=0", "--set", "aggregation.max_length=64"]
    code, out, _ = sleuth("replay", REPLAY, *several, *settings, "--json")
    both = json.loads(out)
    assert [r["objective"] for r in both["objectives"]] == ["grpo", "search_sapo", "dr_grpo"]
    assert both["objectives"][1] == one
    first = both["differences"][0]
    assert (first["a"], first["b"], first["sign_differs"]) == ("grpo", "search_sapo", 0.0)
    assert first["cosine"] == pytest.approx(1.0)
    assert "sign differs" in sleuth("replay", REPLAY, *several, *settings)[1]
    twice = sleuth("replay", REPLAY, "--objective", "grpo,grpo")
    assert (twice[0], "objective grpo is named twice" in twice[2]) == (2, True)

    rows = [json.loads(line) for line in Path(REPLAY).read_text().splitlines()]
    for row in rows:
        for span in row["spans"]:
            span.pop("old_logprobs", None)
    code, _, error = sleuth("replay", write_rows(tmp_path / "r.jsonl", *rows), "--objective", "grpo", "--json")
    assert code == 0
    assert error.startswith("warning: ")
    rows[2]["reward"] = float("nan")
    code, out, error = sleuth(
        "replay", write_rows(tmp_path / "r.jsonl", *rows[:2], "", *rows[2:]), "--objective", "grpo"
    )
    assert (code, out) == (2, "")
    assert "r.jsonl, line 4: reward: nan" in one_line(error)
    for arguments, message in [
        (["--objective", "grpo", "--set", "llds.weight=1"], "no --objective names llds"),
        (["--objective", "grpo", "--set", "weight=1"], "write NAME.param=value"),
        (["--objective", "grppo"], "did you mean grpo"),
    ]:
        code, _, error = sleuth("replay", REPLAY, *arguments)
        assert code == 2
        assert message in one_line(error)


# Training through the command line ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_train_makes_a_run_that_eval_ask_and_resume_understand(sleuth, tmp_path):
    pytest.importorskip("trl")
    steps = [
        "trainer.steps=1",
        "trainer.prompts=2",
        "trainer.group=4",
        "trainer.updates_per_batch=2",
        "trainer.eval_every=0",
    ]
    code, out, _ = sleuth("train", "laptop", *SMALL, *steps)
    assert code == 0
    assert "EM before" in out
    assert (tmp_path / "runs" / "laptop" / "summary.json").is_file()
    assert sleuth("ask", "runs/laptop")[0] == 0
    code, out, _ = sleuth("train", "laptop", "--resume", "trainer.steps=2")
    assert code == 0
    assert "2 steps" in out
