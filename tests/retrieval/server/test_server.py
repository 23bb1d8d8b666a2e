import concurrent.futures
import gzip
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest
from processes import serving

from sleuth.jsonl import write_jsonl
from sleuth.retrieval.build import IndexSettings, build_index
from sleuth.retrieval.changes import change_index

pytest.importorskip("uvicorn")
pytest.importorskip("prometheus_client")


def send(url, body=None, method=None, **headers):
    """(status, answer, headers)."""
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(url, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            status, content, sent = response.status, response.read(), response.headers
    except urllib.error.HTTPError as error:
        status, content, sent = error.code, error.read(), error.headers
    is_json = sent.get("content-type") == "application/json"
    return status, json.loads(content) if is_json else content.decode(), sent


def ids(answer):
    return [[item["document"]["id"] for item in found] for found in answer["result"]]


@pytest.fixture(scope="module")
def numbers(tmp_path_factory):
    """An index of 300 passages, each found by its own word."""
    folder = tmp_path_factory.mktemp("numbers")
    write_jsonl(folder / "c.jsonl", [{"id": str(n), "title": f"T{n}", "text": f"word{n} common"} for n in range(300)])
    build_index(str(folder / "c.jsonl"), folder / "index", IndexSettings())
    return folder / "index"


@pytest.fixture(scope="module")
def server(numbers):
    with serving(numbers) as running:
        yield running


def test_it_is_healthy_when_it_answers_and_says_what_it_is(server):
    for path in ("/health", "/healthz"):
        status, said, _ = send(server.url + path)
        assert (status, said["status"], said["passages"], said["kind"]) == (200, "ok", 300, "bm25")
        assert len(said["corpus_hash"]) == 64


def test_each_query_gets_its_own_passages_in_order(server):
    body = {"queries": ["word7", "word8", "word7", "nothing"], "topk": 2, "return_scores": True}
    status, answer, _ = send(server.url + "/retrieve", body)
    assert (status, ids(answer)) == (200, [["7"], ["8"], ["7"], []])


def test_concurrent_clients_get_their_own_passages(server):
    def one(n):
        _, answer, _ = send(server.url + "/retrieve", {"queries": [f"word{n}"], "topk": 1, "return_scores": True})
        return ids(answer)

    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        assert list(pool.map(one, range(200))) == [[[str(n)]] for n in range(200)]


def test_surrogates_and_nul_are_answered(server):
    body = b'{"queries": ["word1 \\ud800", "\\u0000 word2"], "topk": 1, "return_scores": true}'
    status, answer, _ = send(server.url + "/retrieve", body)
    assert (status, ids(answer)) == (200, [["1"], ["2"]])


def test_pages(server):
    status, answer, _ = send(server.url + "/access", {"urls": ["3", "T4", "none"]})
    assert status == 200
    assert [page and page["page"] for page in answer["result"]] == ["word3 common", "word4 common", None]


@pytest.mark.parametrize(
    ("path", "method", "body", "status"),
    [
        ("/retrieve", "GET", None, 405),
        ("/health", "POST", b"{}", 405),
        ("/metrics", "DELETE", None, 405),
        ("/nowhere", "POST", b"{}", 404),
        ("/retrieve", "POST", b"{", 400),
        ("/retrieve", "POST", b'{"queries": 1}', 422),
        ("/access", "POST", b'{"urls": [1]}', 422),
        ("/retrieve", "POST", b'{"query": "' + b"x" * (17 << 20) + b'"}', 413),
    ],
)
def test_a_bad_request_is_told_what_is_wrong(server, path, method, body, status):
    try:
        found, answer, _ = send(server.url + path, body, method)
    except (ConnectionError, urllib.error.URLError):
        assert status == 413  # it may hang up on a body that it won't read
        return
    assert found == status
    assert answer["error"]
    assert send(server.url + "/health")[0] == 200


def test_a_refusal_says_in_its_headers_what_is_right(server, numbers):
    assert send(server.url + "/retrieve")[2]["allow"] == "POST"
    assert send(server.url + "/metrics", b"{}")[2]["allow"] == "GET, HEAD"
    with serving(numbers, SLEUTH_RETRIEVER_TOKEN="sesame") as running:
        assert send(running.url + "/metrics")[2]["www-authenticate"] == "Bearer"


def test_a_packed_body_is_refused_as_such(server):
    status, answer, _ = send(
        server.url + "/retrieve", gzip.compress(b'{"queries": ["word1"]}'), **{"content-encoding": "gzip"}
    )
    assert status == 415
    assert "packed as gzip" in answer["error"]


def test_a_call_as_large_as_may_be_is_answered_whole(server):
    queries = [f"word{n % 300} common" for n in range(1024)]
    status, answer, _ = send(server.url + "/retrieve", {"queries": queries, "topk": 20, "return_scores": True})
    assert status == 200
    assert [found[0] for found in ids(answer)] == [str(n % 300) for n in range(1024)]
    assert {len(found) for found in ids(answer)} == {20}


def test_equal_queries_of_a_large_call_are_searched_once(server):
    def searched():
        text = urllib.request.urlopen(server.url + "/metrics").read().decode()
        return float(re.search(r"^sleuth_batch_queries_sum (\S+)", text, re.M)[1])

    before = searched()
    body = {"queries": [f"word{n % 3}" for n in range(500)], "topk": 1, "return_scores": True}
    assert ids(send(server.url + "/retrieve", body)[1]) == [[str(n % 3)] for n in range(500)]
    assert searched() - before == 3


def test_what_happened_is_counted(server):
    def value(text, name):
        return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(name))

    _, before, _ = send(server.url + "/metrics")
    send(server.url + "/retrieve", {"queries": ["word1", "nothing"]})
    _, after, headers = send(server.url + "/metrics")
    assert headers["content-type"].startswith("text/plain")
    for name, more in [
        ("sleuth_queries_total", 2),
        ("sleuth_empty_results_total", 1),
        ('sleuth_requests_total{path="/retrieve",status="200"}', 1),
        ('sleuth_request_seconds_count{path="/retrieve"}', 1),
    ]:
        assert value(after, name) - value(before, name) == more


def test_a_token_is_asked_for_but_for_health(numbers):
    with serving(numbers, SLEUTH_RETRIEVER_TOKEN="sesame") as running:
        body = {"queries": ["word1"]}
        assert send(running.url + "/health")[0] == 200
        assert send(running.url + "/retrieve", body)[0] == 401
        assert send(running.url + "/metrics")[0] == 401
        assert send(running.url + "/retrieve", body, Authorization="Bearer wrong")[0] == 401
        assert send(running.url + "/retrieve", body, Authorization="Bearer sesame")[0] == 200


def test_more_than_may_wait_is_sent_away_and_told_when_to_come_back(tmp_path, numbers, monkeypatch):
    (tmp_path / "slow.py").write_text(
        "import time\n\ndef make():\n    return lambda pairs: time.sleep(1.0) or [0.0] * len(pairs)\n"
    )
    source = f"""
import sys; sys.path.insert(0, {str(tmp_path)!r})
from pathlib import Path
from sleuth.retrieval.server.app import ServerSettings
from sleuth.retrieval.server.run import serve
settings = ServerSettings(Path({str(numbers)!r}), {{"reranker": "slow:make"}}, threads=1, largest=1, waiting=2)
serve(settings, host="127.0.0.1", port=0, workers=1, ready=lambda url: print("at", url, file=sys.stderr, flush=True))
"""
    from processes import started

    with started(sys.executable, "-c", source) as running, concurrent.futures.ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(send, running.url + "/retrieve", {"queries": [f"word{n}"]}) for n in range(8)]
        answers = [future.result() for future in asked]
    refused = [headers for status, _, headers in answers if status == 503]
    assert 4 <= len(refused) <= 6
    assert all(headers["retry-after"] == "1" for headers in refused)
    assert all(status in (200, 503) for status, _, _ in answers)


def batches(url):
    """That the engine was given."""
    text = urllib.request.urlopen(url + "/metrics").read().decode()
    return float(re.search(r"^sleuth_batch_queries_count (\S+)", text, re.M)[1])


def test_a_stopping_server_answers_what_it_has_begun(tmp_path, numbers):
    (tmp_path / "slow.py").write_text(
        "import time\n\ndef make():\n    return lambda pairs: time.sleep(0.7) or [0.0] * len(pairs)\n"
    )
    with (
        serving(
            numbers,
            "--reranker",
            "slow:make",
            PYTHONPATH=os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]),
        ) as running,
        concurrent.futures.ThreadPoolExecutor(1) as pool,
    ):
        before = batches(running.url)
        asked = pool.submit(send, running.url + "/retrieve", {"queries": ["word1"]})
        while batches(running.url) == before:
            time.sleep(0.02)
        running.process.send_signal(signal.SIGTERM)
        assert asked.result()[0] == 200
        assert running.process.wait(20) in (0, -signal.SIGTERM)
        with pytest.raises(urllib.error.URLError):
            send(running.url + "/health")


def test_several_workers_share_one_port_and_one_count(numbers):
    with serving(numbers, "--workers", "2") as running:
        for _ in range(100):
            try:
                if send(running.url + "/health")[0] == 200:
                    break
            except urllib.error.URLError:
                time.sleep(0.2)
        for n in range(20):
            _, answer, _ = send(running.url + "/retrieve", {"queries": [f"word{n}"], "return_scores": True})
            assert ids(answer) == [[str(n)]]
        _, text, _ = send(running.url + "/metrics")
        assert "sleuth_queries_total 20.0" in text
        assert running.stop() in (0, -signal.SIGTERM)


def test_what_is_added_to_the_index_is_found_without_a_restart(tmp_path, corpus):
    pytest.importorskip("tantivy")
    build_index(str(corpus), tmp_path / "index", IndexSettings(kind="tantivy"))
    write_jsonl(tmp_path / "more.jsonl", [{"id": "oslo", "title": "Oslo", "text": "fjord"}])
    with serving(tmp_path / "index") as running:
        body = {"queries": ["fjord"], "return_scores": True}
        assert ids(send(running.url + "/retrieve", body)[1]) == [[]]
        before = send(running.url + "/health")[1]["corpus_hash"]
        change_index(tmp_path / "index", add=str(tmp_path / "more.jsonl"))
        deadline = time.monotonic() + 20
        while ids(send(running.url + "/retrieve", body)[1]) == [[]] and time.monotonic() < deadline:
            time.sleep(0.1)
        assert ids(send(running.url + "/retrieve", body)[1]) == [["oslo"]]
        assert send(running.url + "/health")[1]["corpus_hash"] != before


def test_what_cannot_be_served_is_one_line(tmp_path, numbers):
    def refused(*arguments):
        command = [sys.executable, "-m", "sleuth.cli", "serve", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
        return done.stderr

    assert "no such folder" in refused(tmp_path / "none")
    assert "--dialect x is not known" in refused(numbers, "--dialect", "x")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert "choose another --port" in refused(numbers, "--port", taken.getsockname()[1])
