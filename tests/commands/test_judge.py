"""`sleuth grade --judge` against an endpoint of its own."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from sleuth.cli import run

pytest.importorskip("httpx")

ROWS = [
    {"id": "1", "question": "capital?", "prediction": "Paris", "golden_answers": ["Paris"]},
    {"id": "2", "question": "capital?", "prediction": "the city of Paris", "golden_answers": ["Paris"]},
    {"id": "3", "question": "capital?", "prediction": None, "golden_answers": ["Paris"]},
    {"id": "4", "question": "capital?", "prediction": "Rome", "golden_answers": ["Paris"]},
    {"id": "5", "question": "capital?", "prediction": None, "golden_answers": ["Paris"], "status": "failed"},
]


class _Endpoint(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.bodies.append(body)
        asked = json.loads(body["messages"][1]["content"])
        said = "CORRECT" if "Paris" in asked["response"] else "INCORRECT"
        usage = {"prompt_tokens": 100, "completion_tokens": 2}
        answer = json.dumps({"choices": [{"message": {"content": said}}], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *args):
        pass


@pytest.fixture
def endpoint():
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Endpoint)
    server.bodies = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def sleuth(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))

    def command(*arguments):
        code = run(["grade", "rows.jsonl", *arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return command


def test_verdicts_stand_beside_exact_match_with_model_and_prompt(sleuth, endpoint, tmp_path):
    url = f"http://127.0.0.1:{endpoint.server_port}/v1"
    prices = ["--judge-set", "price_in=1.0", "--judge-set", "price_out=10"]
    code, out, _ = sleuth("--judge", "m", "--endpoint", url, "-o", "graded.jsonl", *prices)
    assert code == 0
    assert "5 rows: 3 answered, 1 unanswered, 0 truncated, 1 failed, which are left out" in out
    assert "judge m at http://127.0.0.1" in out
    assert "correct: 0.500" in out
    assert "agrees with EM by squad on 0.750" in out
    assert "right by both 1, by neither 2, by the judge alone 1, by EM alone 0" in out
    assert "3 messages, 300 tokens read, 6 written, cost 0.0004" in out
    rows = [json.loads(line) for line in (tmp_path / "graded.jsonl").read_text().splitlines()]
    assert [row.get("judge", {}).get("correct") for row in rows] == [True, True, False, False, None]
    record = json.loads((tmp_path / "graded.jsonl.judge.json").read_text())
    assert record["model"] == "m"
    assert record["prompt"].startswith("Decide whether")
    assert record["agreement"]["squad"]["judge_only"] == 1
    assert {body["temperature"] for body in endpoint.bodies} == {0.0}


def test_another_instruction_is_used_and_recorded(sleuth, endpoint, tmp_path):
    (tmp_path / "prompt.txt").write_text("Say CORRECT or INCORRECT.\n")
    url = f"http://127.0.0.1:{endpoint.server_port}/v1"
    code, _, _ = sleuth("--judge", "m", "--endpoint", url, "--judge-prompt", "prompt.txt", "-o", "g.jsonl")
    assert code == 0
    assert endpoint.bodies[0]["messages"][0]["content"] == "Say CORRECT or INCORRECT."
    assert json.loads((tmp_path / "g.jsonl.judge.json").read_text())["prompt"] == "Say CORRECT or INCORRECT."


def test_old_tables_grading_is_opt_in_and_labelled(sleuth):
    _, out, _ = sleuth()
    assert "search-r1-compat" not in out
    _, out, _ = sleuth("--compat")
    assert "search-r1-compat (for comparison with old tables only)" in out


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--judge", "m"], "--judge MODEL and --endpoint URL go together"),
        (["--judge", "m", "--endpoint", "nowhere"], "url: "),
        (["--judge", "m", "--endpoint", "http://x/v1", "--judge-set", "tiemout=3"], "tiemout"),
        (["--judge", "m", "--endpoint", "http://x/v1", "--judge-set", "timeout"], "write field=value"),
        (["--judge", "m", "--endpoint", "http://x/v1", "--judge-prompt", "no.txt"], "no.txt"),
    ],
)
def test_mistakes_are_one_line(sleuth, arguments, part):
    code, out, error = sleuth(*arguments)
    assert (code, out) == (2, "")
    assert part in error
    assert error.count("\n") == 1
