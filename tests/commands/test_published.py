import json

import pytest

from sleuth.cli import run
from sleuth.evaluation.folder import SCHEMA, EvaluationFolder
from sleuth.types import EndReason, Span, SpanKind, Status, Trajectory


@pytest.fixture
def sleuth(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def command(*arguments):
        code = run(["published", *arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return command


@pytest.fixture
def evaluation(tmp_path):
    """Two questions of NQ, one of them right."""
    folder = EvaluationFolder(tmp_path / "evaluation")
    folder.path.mkdir()
    way = {"method": "agent", "temperature": 0.0, "top_p": 1.0, "top_k": 0, "seed": 0, "samples": 1, "prompt": "x"}
    folder.begin(
        {
            "schema": SCHEMA,
            "model": "mine",
            "sets": {"nq": 2},
            "k": 5,
            "retriever": {"kind": "bm25", "settings": {}},
            "corpus": "0123456789abcdef",
            "grader": "squad",
            "systems": {"agent-greedy": way},
        }
    )
    journal = folder.journal("agent-greedy")
    journal.open()
    spans = [Span(SpanKind.PROMPT, [1], "q"), Span(SpanKind.POLICY, [2], "a", logprobs=[0.0])]
    for identity, answer in (("a", "Paris"), ("b", "Rome")):
        journal.append(
            [
                Trajectory(
                    id=identity,
                    group=identity,
                    question="capital?",
                    golden_answers=["Paris"],
                    spans=spans,
                    data_source="nq",
                    answer=answer,
                    status=Status.ANSWERED,
                    end=EndReason.ANSWER,
                )
            ]
        )
    journal.close(whole=True)
    return str(folder.path)


def test_tables_by_words_and_sets(sleuth):
    code, out, _ = sleuth("7b", "search-r1", "--set", "NQ", "--form", "markdown")
    assert code == 0
    assert "| Qwen2.5-7B, Search-R1 PPO | [1] | 0.480 | 0.431 (avg) |" in out
    assert "3B" not in out.split("[1] Search-R1")[0]
    assert "arXiv 2503.09516" in out


def test_json_has_sources_and_flags(sleuth):
    rows = json.loads(sleuth("--flags", "--form", "json")[1])
    assert len(rows) == 15
    assert all(row["flags"] and row["where"] for row in rows)


def test_own_scores_stand_beside_with_the_differences(sleuth, evaluation):
    code, out, _ = sleuth("--beside", evaluation, "--source", "search-r1", "--form", "markdown")
    assert code == 0
    assert "| mine, agent-greedy | here | 0.500 [0.000, 1.000] |" in out
    assert "passages a search 3, here 5" in out
    assert "retriever E5-base-v2, here bm25" in out
    assert "corpus wiki-18, here SHA-256 0123456789ab…" in out
    assert "nq: 2 of 3,610 questions" in out


@pytest.mark.parametrize("form", ["text", "latex", "html"])
def test_other_forms(sleuth, form):
    code, out, _ = sleuth("--source", "sspo", "--form", form)
    assert code == 0
    assert "browsecomp" in out


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--set", "nqq"], "did you mean nq"),
        (["--source", "x"], 'no source "x"; there are search-r1'),
        (["--metric", "bleu"], "write em, f1, accuracy"),
        (["nobody"], "no published figure is like that"),
        (["--form", "pdf"], "--form pdf is not known"),
        (["--beside", "nowhere"], "no such folder"),
    ],
)
def test_mistakes_are_one_line(sleuth, arguments, part):
    code, out, error = sleuth(*arguments)
    assert (code, out) == (2, "")
    assert part in error
    assert error.count("\n") == 1
