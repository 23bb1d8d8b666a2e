import json

import pytest

from sleuth.cli import run
from sleuth.data.benchmarks.sealed import encrypt


@pytest.fixture
def sleuth(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("SLEUTH_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)

    def command(*arguments):
        code = run(["data", *arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return command


@pytest.fixture
def folder(tmp_path):
    def write(name, split, rows):
        place = tmp_path / "sets" / name
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    write("nq", "test", [{"id": "test_0", "question": "who made x", "golden_answers": ["Ann"]}])
    steps = [{"question": "Who made X?", "answer": "Ann", "title": "X"}]
    row = {"id": "m", "question": "whole?", "golden_answers": ["Ann"], "decomposition": steps}
    write("musique", "dev", [row, {**row, "id": "t", "split": "train"}])
    return tmp_path / "sets"


def test_list_names_all_and_says_what_is_cached(sleuth, folder):
    sleuth("get", "nq", "--from", str(folder))
    code, out, _ = sleuth("list")
    assert code == 0
    assert "Natural Questions" in out
    assert "1 of them" in out
    rows = json.loads(sleuth("list", "--json")[1])
    assert [row["name"] for row in rows][-1] == "gaia"
    assert {row["name"]: row["cached"] is not None for row in rows}["nq"]


def test_get_fetches_once_and_says_what_it_is(sleuth, folder):
    code, out, _ = sleuth("get", "nq", "musique", "--from", str(folder))
    assert code == 0
    assert "nq: 1 of 3,610 questions (test), CC BY-SA 3.0, SHA-256" in out
    assert "left out: 1 rows of the training split" in out
    assert "not the whole benchmark" in out
    code, out, _ = sleuth("get", "nq")
    assert (code, out.startswith("cached: nq: 1 of 3,610")) == (0, True)


def test_what_is_cached_is_replaced_only_when_told(sleuth, folder):
    sleuth("get", "nq", "--from", str(folder))
    code, _, error = sleuth("get", "nq", "--from", str(folder))
    assert code == 2
    assert "nq is cached already; --force" in error
    code, _, error = sleuth("get", "nq", "--from", "nowhere")
    assert (code, "--from nowhere: no such file or folder" in error) == (2, True)
    assert sleuth("get", "nq", "--from", str(folder), "--force")[0] == 0
    path = folder / "nq" / "test.jsonl"
    path.write_text(path.read_text().replace("Ann", "Bo"))
    code, _, error = sleuth("get", "nq", "--from", str(folder), "--force")
    assert code == 2
    assert "gave other questions than the first time" in error
    assert sleuth("get", "nq", "--from", str(folder), "--accept-change")[0] == 0


def test_mistakes_are_one_line_with_exit_code_2(sleuth, folder):
    for arguments, part in [
        (["get", "nqq"], "did you mean nq"),
        (["get", "popqa", "--from", str(folder)], "holds no popqa"),
        (["get", "nq", "--from", str(folder), "--sha256", "00"], "you asked for 00"),
        (["get", "nq", "--from", "nowhere"], "no such file or folder"),
    ]:
        code, out, error = sleuth(*arguments)
        assert (code, out) == (2, "")
        assert part in error
        assert error.count("\n") == 1


def test_an_unreachable_hub_is_one_line(sleuth, monkeypatch):
    def unreachable(*args, **kwargs):
        raise OSError("no route")

    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", unreachable)
    code, out, error = sleuth("get", "nq")
    assert (code, out) == (2, "")
    assert error.count("\n") == 1
    assert "--from FOLDER" in error


def test_overlap_finds_steps(sleuth, folder):
    code, out, _ = sleuth("overlap", "musique", "nq", "--from", str(folder))
    assert code == 0
    assert "1 of 1 questions with steps have a step that is a question of nq; for 1 it is the last step" in out
    assert "musique_m, step 1 = nq_test_0: Who made X?" in out
    report = json.loads(sleuth("overlap", "musique", "nq", "--from", str(folder), "--json")[1])
    assert report["leaking"] == ["musique_m"]


def test_overlap_of_a_sealed_benchmark_quotes_no_question(sleuth, folder):
    row = {"problem": encrypt("Who made X?", "key"), "answer": encrypt("Ann", "key"), "canary": "key"}
    (folder / "browsecomp").mkdir()
    (folder / "browsecomp" / "test.jsonl").write_text(json.dumps(row))
    code, out, _ = sleuth("overlap", "browsecomp", "nq", "--from", str(folder))
    assert code == 0
    assert "browsecomp: 1 of 1 questions are in nq too" in out
    assert "made" not in out
    code, out, _ = sleuth("overlap", "browsecomp", "nq", "--from", str(folder), "--json")
    assert json.loads(out)["leaking"] == ["browsecomp_0"]
    assert "made" not in out
