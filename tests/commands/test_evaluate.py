"""`sleuth eval` end to end: the tiny policy in HopWorld, and methods on a stand-in endpoint."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest
from endpoint import Endpoint

from sleuth.cli import run
from sleuth.evaluation.journal import Journal
from sleuth.samplers import openai_compatible

WORLD = [
    "world.train.worlds=2",
    "world.train.questions=4",
    "world.dev.worlds=2",
    "world.dev.questions=4",
    "world.test.worlds=3",
    "world.test.questions=9",
]


@pytest.fixture
def sleuth(tmp_path, monkeypatch, capsys):
    """Runs a command line in a folder of its own: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        code = run(list(arguments))
        out = capsys.readouterr()
        return code, out.out, out.err

    return call


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A HopWorld's questions and corpus."""
    folder = tmp_path_factory.mktemp("world")
    from sleuth.question_sets import world_files
    from sleuth.recipes.loader import load_recipe

    return world_files(load_recipe("laptop", WORLD), folder)


def own(world, questions=None):
    """The tiny policy on a question file."""
    return [
        "eval",
        "tiny",
        str(questions or world.test),
        "--recipe",
        "laptop",
        "world=null",
        "evaluation.answer_tokens=4",
        "--corpus",
        str(world.corpus),
    ]


def figures(folder):
    """All that must not depend on how it was run: every answer and every figure but the times."""
    summary = json.loads((folder / "summary.json").read_text())
    for system in summary["systems"].values():
        for line in system["sets"].values():
            line.pop("seconds")
    answers = {}
    for file in sorted(folder.glob("scores-*.jsonl")):
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        assert len({row["id"] for row in rows}) == len(rows)
        answers[file.name] = {row.pop("id"): {**row, "seconds": None} for row in rows}
    return summary["systems"], answers


@pytest.mark.parametrize(
    ("folder", "said"), [("empty", "no evaluation was begun in it"), ("missing", "missing: no such folder")]
)
def test_the_table_of_nothing_is_refused_without_advice_for_a_new_evaluation(sleuth, tmp_path, folder, said):
    (tmp_path / "empty").mkdir()
    code, out, error = sleuth("eval", folder, "--table")
    assert (code, out) == (2, "")
    assert said in error
    assert "-o" not in error
    assert list((tmp_path / "empty").iterdir()) == []


def test_batch_order_and_kills_change_no_figure(sleuth, world, tmp_path, monkeypatch):
    methods = ["--methods", "agent,direct", "evaluation.samples=2", "evaluation.greedy=false"]
    assert sleuth(*own(world), *methods, "evaluation.batch=64", "-o", "whole")[0] == 0
    expected = figures(tmp_path / "whole")
    assert {name.removesuffix(".jsonl") for name in expected[1]} == {
        "scores-agent-sampled",
        "scores-direct-sampled",
    }
    assert len(expected[1]["scores-agent-sampled.jsonl"]) == 18

    for batch in (1, 7):
        assert sleuth(*own(world), *methods, f"evaluation.batch={batch}", "-o", f"b{batch}")[0] == 0
        assert figures(tmp_path / f"b{batch}") == expected

    lines = world.test.read_text().splitlines(keepends=True)
    random.Random(3).shuffle(lines)
    (tmp_path / "test.jsonl").write_text("".join(lines))
    assert sleuth(*own(world, "test.jsonl"), *methods, "evaluation.batch=7", "-o", "shuffled")[0] == 0
    assert figures(tmp_path / "shuffled") == expected

    command = [*own(world), *methods, "evaluation.batch=3", "-o", "killed"]
    append = Journal.append
    for kill in range(3):
        left = [1 + 2 * kill]

        def dies(self, trajectories, left=left):
            append(self, trajectories)
            left[0] -= 1
            if left[0] == 0:
                self._file.write(b'{"id": "cut o')  # as a kill in the middle of a write leaves it
                self._file.flush()
                raise KeyboardInterrupt

        monkeypatch.setattr(Journal, "append", dies)
        code, _, error = sleuth(*command)
        assert code == 130
        assert "the same command goes on" in error
    monkeypatch.setattr(Journal, "append", append)
    assert sleuth(*command)[0] == 0
    assert figures(tmp_path / "killed") == expected


@pytest.mark.slow
def test_three_real_kills_change_no_figure(sleuth, world, tmp_path):
    methods = ["--methods", "agent,direct", "evaluation.batch=2"]
    assert sleuth(*own(world), *methods, "-o", "whole")[0] == 0
    command = [sys.executable, "-m", "sleuth.cli", *own(world), *methods, "-o", "killed"]
    folder = tmp_path / "killed"
    for lines in (2, 6, 12):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and _answers(folder) < lines:
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGKILL) if process.poll() is None else None
        process.wait()
    assert subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode == 0
    assert figures(folder) == figures(tmp_path / "whole")


def _answers(folder):
    from sleuth.jsonl import read_jsonl

    packed = sum(1 for file in folder.glob("rollouts-*.zst") for _ in read_jsonl(file))
    return packed + sum(file.read_bytes().count(b"\n") for file in folder.glob("rollouts-*.jsonl"))


def test_a_finished_evaluation_is_not_run_again_and_another_setting_is_refused(sleuth, world, tmp_path, monkeypatch):
    command = [*own(world), "evaluation.temperature=0", "-o", "e"]
    assert sleuth(*command)[0] == 0
    before = figures(tmp_path / "e")
    monkeypatch.setattr(Journal, "append", lambda self, trajectories: pytest.fail("answered again"))
    assert sleuth(*command)[0] == 0
    assert sleuth(*command, "evaluation.batch=1")[0] == 0
    assert figures(tmp_path / "e") == before
    code, _, error = sleuth(*command)
    assert "agent-greedy: 9 of 9 answers were there\n" in error
    # All that is another is said at once, and before the model is loaded.
    monkeypatch.setattr("sleuth.commands.evaluation_plan.assemble", lambda *a, **k: pytest.fail("loaded"))
    code, out, error = sleuth(*command, "limits.k=2", "limits.max_turns=3", "evaluation.seed=4", "--grader", "robust")
    assert (code, out, error.count("\n")) == (2, "", 1)
    for part in ("k was 3, now it is 2", "limits.max_turns was", 'grader was "squad"', "agent-greedy.seed was 0"):
        assert part in error
    assert "limits.max_context" not in error


def test_tables_viewer_and_limits_for_ci(sleuth, world, tmp_path):
    command = [*own(world), "--methods", "agent,direct", "evaluation.temperature=0", "-o", "e"]
    code, out, _ = sleuth(*command, "--fail-below", "agent-greedy:hopworld:em=0.2")
    assert code == 0
    assert "agent-greedy: greedy; grader squad" in out
    code, _, error = sleuth(*command, "--fail-below", "em=0.2")
    assert (code, error.splitlines()[-1]) == (1, "sleuth: direct-greedy, hopworld: em 0.000 is below 0.2")
    folder = tmp_path / "e"
    assert "| direct-greedy | 0.000 [0.000, 0.000] |" in (folder / "table.md").read_text()
    assert r"\begin{tabular}" in (folder / "table.tex").read_text()
    assert 'href="rollouts-agent-greedy.html"' in (folder / "table.html").read_text()
    assert "<html" in (folder / "rollouts-agent-greedy.html").read_text()[:500].lower()
    text = (folder / "table.md").read_text()
    for name in ("table.md", "table.tex", "table.html", "summary.json", "scores-agent-greedy.jsonl"):
        (folder / name).unlink()
    assert sleuth("eval", "e", "--table")[0] == 0
    assert (folder / "table.md").read_text() == text
    code, out, _ = sleuth("eval", "--compare", "e:direct-greedy", "e:agent-greedy")
    assert code == 0
    assert "B is better (0.05, corrected)" in out
    assert "McNemar" in out
    for wrong, said in (("em", "write em=0.30"), ("x=1", "write em=0.30"), ("nosuch:em=0.1", "nothing here is called")):
        code, _, error = sleuth("eval", "e", "--table", "--fail-below", wrong)
        assert (code, said in error) == (2, True)


def test_several_folders_make_one_table_and_what_was_not_run_says_so(sleuth, world, tmp_path):
    for name, batch in (("one", 3), ("two", 4)):
        assert sleuth(*own(world), "evaluation.temperature=0", f"evaluation.batch={batch}", "-o", f"all/{name}")[0] == 0
    file = tmp_path / "all" / "two" / "evaluation.json"
    settings = json.loads(file.read_text())
    settings["systems"]["rag-greedy"] = settings["systems"]["agent-greedy"]
    file.write_text(json.dumps(settings))
    assert sleuth("eval", "all", "--table")[0] == 0
    rows = (tmp_path / "all" / "table.md").read_text()
    assert "| one agent-greedy |" in rows
    assert "| two rag-greedy | n = 0 |" in rows


def test_a_dry_run_says_what_it_would_take_and_leaves_nothing(sleuth, world, tmp_path):
    code, out, _ = sleuth(*own(world), "--methods", "agent,ircot", "--dry-run", "-o", "e")
    assert code == 0
    assert "ircot: 9 questions × 2 answers, at most" in out
    assert "tokens a second here" in out
    assert not (tmp_path / "e" / "evaluation.json").exists()


def test_a_limit_takes_the_same_questions_whatever_their_order(sleuth, world, tmp_path):
    lines = world.test.read_text().splitlines(keepends=True)
    (tmp_path / "reversed.jsonl").write_text("".join(lines[::-1]))
    for name, file in (("a", world.test), ("b", "reversed.jsonl")):
        chosen = ["evaluation.temperature=0", "evaluation.limit={hopworld: 5}", "-o", name]
        assert sleuth(*own(world, file), *chosen)[0] == 0
    assert figures(tmp_path / "a") == figures(tmp_path / "b")
    assert figures(tmp_path / "a")[0]["agent-greedy"]["sets"]["hopworld"]["n"] == 5


def test_an_unknown_method_is_refused_with_the_nearest(sleuth, world):
    code, _, error = sleuth(*own(world), "--methods", "iircot", "-o", "e")
    assert (code, "did you mean ircot?" in error) == (2, True)


QUESTIONS = [
    {"id": "1", "question": "capital of France?", "golden_answers": ["Paris"], "data_source": "a", "hops": 1},
    {"id": "2", "question": "capital of Italy?", "golden_answers": ["Rome"], "data_source": "b", "hops": 2},
]
PASSAGES = [
    {"id": "p1", "contents": '"France"\nThe capital of France is Paris.'},
    {"id": "p2", "contents": '"Italy"\nThe capital of Italy is Rome.'},
]


@pytest.fixture
def capitals(tmp_path):
    for name, rows in (("q.jsonl", QUESTIONS), ("c.jsonl", PASSAGES)):
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return ["q.jsonl", "--corpus", "c.jsonl", "evaluation.temperature=0", "-o", "e"]


def test_an_endpoint_from_the_command_line(sleuth, capitals, tmp_path, monkeypatch):
    monkeypatch.setattr(openai_compatible, "_wait", lambda state: 0.0)
    lost = ["Italy"]

    def reply(body):
        asked = body["messages"][-1]["content"].rpartition("Question:")[2] or body["messages"][-1]["content"]
        if any(word in asked for word in lost):
            return 500
        return "Answer: Paris" if "France" in asked else "Answer: Rome"

    prices = ["evaluation.endpoint.price_in=1", "evaluation.endpoint.price_out=2", "trainer.max_failed_share=1"]
    with Endpoint(reply) as endpoint:
        command = ["eval", "gpt", *capitals, "--endpoint", endpoint.url, "--methods", "direct,rag", *prices]
        code, out, _ = sleuth(*command)
        assert code == 0
        assert "by your prices" in out
        assert "2 answers failed and are not in the scores; the same command tries them again" in out
        systems = json.loads((tmp_path / "e" / "summary.json").read_text())["systems"]
        assert (systems["rag-greedy"]["sets"]["b"]["n"], systems["rag-greedy"]["sets"]["b"]["failed"]) == (0, 1)
        asked = len(endpoint.requests)
        lost.clear()
        code, out, _ = sleuth(*command)
        assert code == 0
        assert "failed and are not" not in out
        assert len(endpoint.requests) == asked + 2  # the failed ones, and no other
    systems, answers = figures(tmp_path / "e")
    assert systems["rag-greedy"]["sets"]["average"]["em"]["mean"] == 1.0
    assert systems["rag-greedy"]["sets"]["a"]["recall"] == {"answer": 1.0}
    assert answers["scores-rag-greedy.jsonl"]["1"]["queries"] == ["capital of France?"]
    table = (tmp_path / "e" / "table.md").read_text()
    assert "| a | 1 | rag-greedy | 1 | 1.000" in table


def test_the_same_answers_by_other_graders(sleuth, world, tmp_path):
    """An unanswered rollout is right by the old rule where its prompt's example is the golden answer."""
    rows = [
        {"id": "1", "question": "What lies here?", "golden_answers": ["Lake Victoria"], "data_source": "s"},
        {"id": "2", "question": "What lies there?", "golden_answers": ["Rome"], "data_source": "s"},
    ]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(row) + "\n" for row in PASSAGES))
    asked = ["evaluation.temperature=0", "-o", "e", "--corpus", "c.jsonl", "--methods", "agent,direct"]
    with Endpoint(lambda body: "I have no idea.") as endpoint:
        assert sleuth("eval", "m", "q.jsonl", *asked, "--endpoint", endpoint.url)[0] == 0
        asked_of = len(endpoint.requests)
        scores = (tmp_path / "e" / "scores-agent-over-chat-greedy.jsonl").read_text()
        code, out, _ = sleuth("eval", "e", "--table", "--grader", "search-r1-compat")
        assert len(endpoint.requests) == asked_of
    assert code == 0
    assert "grader search-r1-compat (for comparison with old tables only)" in out
    summary = json.loads((tmp_path / "e" / "summary.json").read_text())["systems"]
    agent = summary["agent-over-chat-greedy"]
    assert (agent["grader"], agent["sets"]["s"]["em"]["mean"], agent["sets"]["s"]["no_answer"]) == (
        "search-r1-compat",
        0.5,
        2,
    )
    assert {name: scores["em"]["mean"] for name, scores in agent["by_grader"].items()} == {
        "search-r1-compat": 0.5,
        "squad": 0.0,
        "robust": 0.0,
    }
    assert summary["direct-greedy"]["sets"]["s"]["em"]["mean"] == 0.0  # its prompt knows no answer element
    table = (tmp_path / "e" / "table.md").read_text()
    assert "| agent-over-chat-greedy | search-r1-compat (for comparison with old tables only) | 2 | 0.500" in table
    assert (tmp_path / "e" / "scores-agent-over-chat-greedy.jsonl").read_text() == scores  # the folder's own grader's
    code, _, error = sleuth("eval", "e", "--table", "--grader", "em")
    assert (code, 'no grader "em"; there are squad, robust, search-r1-compat' in error) == (2, True)
    code, out, _ = sleuth(
        "eval", "--compare", "e:direct-greedy", "e:agent-over-chat-greedy", "--grader", "search-r1-compat"
    )
    assert (code, "grader: search-r1-compat (for comparison" in out) == (0, True)


def test_published_figures_stand_below_with_how_they_differ(sleuth, capitals, tmp_path):
    rows = [{**row, "data_source": "nq"} for row in QUESTIONS]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with Endpoint(lambda body: "Answer: Paris") as endpoint:
        command = ["eval", "m", *capitals, "--endpoint", endpoint.url, "--methods", "direct"]
        code, out, _ = sleuth(*command, "--published")
    assert code == 0
    assert "EM as published beside own scores" in out
    assert "nq: 2 of 3,610 questions" in out
    table = (tmp_path / "e" / "table.md").read_text()
    assert "| m, direct-greedy | here | 0.500" in table
    assert "retriever E5-base-v2, here bm25" in table
    assert sleuth("eval", "e", "--table")[0] == 0
    assert "as published" not in (tmp_path / "e" / "table.md").read_text()
    rows = [{**row, "data_source": "mine"} for row in QUESTIONS]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with Endpoint(lambda body: "Answer: Paris") as endpoint:
        command = ["eval", "m", *capitals[:-1], "own", "--endpoint", endpoint.url, "--methods", "direct"]
        code, _, error = sleuth(*command, "--published")
    assert (code, "no scores on a benchmark" in error) == (2, True)


def test_a_judges_scores_stand_beside_em_with_their_agreement(sleuth, capitals, tmp_path):
    judged = []

    def reply(body):
        if body["model"] != "judge":
            return "Answer: the city of Paris" if "France" in body["messages"][-1]["content"] else "Answer: Rome"
        asked = json.loads(body["messages"][1]["content"])
        judged.append(asked["response"])
        if len(judged) == 1:
            return "perhaps"
        return "CORRECT" if asked["response"] in ("the city of Paris", "Rome") else "INCORRECT"

    with Endpoint(reply) as endpoint:
        command = ["eval", "m", *capitals, "--endpoint", endpoint.url, "--methods", "direct"]
        judge = ["--judge", "judge", "--judge-endpoint", endpoint.url, "--judge-set", "concurrency=1"]
        code, out, error = sleuth(*command, *judge, "--judge-set", "price_in=1000")
        assert code == 0
        assert "no verdict on 1 answers (neither CORRECT nor INCORRECT alone); the same command asks again" in error
        (file,) = (tmp_path / "e").glob("judge-judge-*.jsonl")
        with file.open("ab") as cut:
            cut.write(b'{"system": "direct-gr')  # a kill
        code, out, error = sleuth("eval", "e", "--table", *judge)
        assert (code, "no verdict on" in error) == (0, False)
        assert len(judged) == 3  # the one without a verdict, and no other
        sleuth("eval", "e", "--table", *judge)
        assert len(judged) == 3
    assert "Judged by judge at http://127.0.0.1" in out
    table = (tmp_path / "e" / "table.md").read_text()
    assert "| direct-greedy | a | 1 | 1.000 [1.000, 1.000] | 0.000 | 0.000 [0.000, 0.000] | 0.00 | 1 | 0 | 0 |" in table
    assert "| direct-greedy | b | 1 | 1.000 [1.000, 1.000] | 1.000 | 1.000 [1.000, 1.000] |" in table
    assert "3 messages" in table
    first = json.loads(file.read_text().splitlines()[0])
    assert (first["model"], first["temperature"]) == ("judge", 0.0)
    assert first["prompt"].startswith("Decide whether")
    assert sleuth("eval", "e", "--table")[0] == 0
    assert "Judged by judge" in (tmp_path / "e" / "table.md").read_text()
    code, _, error = sleuth("eval", "e", "--table", "--judge", "x")
    assert (code, "--judge MODEL and --judge-endpoint URL go together" in error) == (2, True)


def test_the_agents_tags_on_an_endpoint_have_a_name_of_their_own(sleuth, capitals, tmp_path):
    def reply(body):
        text = body["messages"][-1]["content"]
        found = "<information>" in text and "Paris" in text
        return (
            "<think> x </think> <answer> Paris </answer>"
            if found
            else "<think> x </think> <search> capital France </search>"
        )

    with Endpoint(reply) as endpoint:
        code, _, _ = sleuth("eval", "m", *capitals, "--endpoint", endpoint.url)
    assert code == 0
    (name,) = json.loads((tmp_path / "e" / "summary.json").read_text())["systems"]
    assert name == "agent-over-chat-greedy"


def test_a_dead_endpoint_stops_the_run_before_all_is_paid_for(sleuth, tmp_path, capitals, monkeypatch):
    monkeypatch.setattr(openai_compatible, "_wait", lambda state: 0.0)
    rows = [{**QUESTIONS[0], "id": str(n), "question": f"capital {n}?"} for n in range(200)]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = ["evaluation.endpoint.attempts=1", "evaluation.endpoint.concurrency=2", "--methods", "direct"]
    with Endpoint(lambda body: 500) as endpoint:
        code, _, error = sleuth("eval", "m", *capitals, "--endpoint", endpoint.url, *settings)
        assert code == 1
        assert "answers failed" in error
        assert len(endpoint.requests) < 40
