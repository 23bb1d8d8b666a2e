"""The engines' answers as their documentation shows them, from a local server."""

import sys

import pytest
from processes import started

from sleuth.assembly import build_retriever
from sleuth.errors import UserError
from sleuth.recipes.loader import resolve
from sleuth.types import SearchRequest

for module in ("httpx", "tenacity"):
    pytest.importorskip(module)

RECORDED = """
import http.server, json, sys
from urllib.parse import parse_qs, urlsplit
def reply(handler, asked, key):
    query, path = asked["q"], urlsplit(handler.path).path
    if path == "/serper":
        if key != "k": return 403, {"message": "Unauthorized."}
        if query == "broke": return 400, {"message": "Not enough credits"}
        if query == "none": return 200, {"searchParameters": {"q": query}, "credits": 1}
        return 200, {"searchParameters": asked, "organic": [
            {"title": "T " + query, "link": "https://a.example/", "snippet": "Beyonc\\u00e9 \\u2014", "position": 1},
            {"title": "again", "link": "https://a.example/", "snippet": "the same page"},
            {"title": "second", "link": "https://b.example/"}], "credits": 1}
    if path == "/brave":
        if key != "k": return 401, {"type": "ErrorResponse"}
        if query == "broke": return 429, {"type": "ErrorResponse"}
        if query == "none": return 200, {"type": "search", "query": {"original": query}}
        return 200, {"type": "search", "query": {"original": query}, "web": {"type": "search", "results": [
            {"title": "T " + query, "url": "https://a.example/", "description": "found"}]}}
    if query == "broke": return 200, {"query": query, "results": [], "unresponsive_engines": [["google", "timeout"]]}
    results = [] if query == "none" else [{"title": "T " + query, "url": "https://a.example/", "content": "found"}]
    return 200, {"query": query, "number_of_results": 0, "results": results, "unresponsive_engines": []}
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.answer(json.loads(self.rfile.read(int(self.headers["content-length"]))), self.headers["x-api-key"])
    def do_GET(self):
        asked = {k: v[0] for k, v in parse_qs(urlsplit(self.path).query).items()}
        self.answer(asked, self.headers["x-subscription-token"])
    def answer(self, asked, key):
        status, said = reply(self, asked, key)
        body = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(f"at http://127.0.0.1:{server.server_port}", file=sys.stderr, flush=True)
server.serve_forever()
"""


@pytest.fixture(scope="module")
def web():
    with started(sys.executable, "-c", RECORDED) as server:
        yield server.url


@pytest.fixture(params=["serper", "brave", "searxng"])
def engine(request, web, monkeypatch):
    monkeypatch.setenv("SERPER_API_KEY", "k")
    monkeypatch.setenv("BRAVE_API_KEY", "k")
    return build(request.param, web)


def build(kind, web, **settings):
    given = {"url": f"{web}/{kind}", "attempts": 1, **settings}
    return build_retriever(resolve({"retriever": {"kind": kind, "settings": given}}))[0]


def search(engine, *queries, k=2):
    return engine.search([SearchRequest(q) for q in queries], k)


def test_results_become_passages_with_their_address_as_id(engine):
    first, second = search(engine, "são paulo & co", "b")
    assert first.documents[0].title == "T são paulo & co"
    assert first.documents[0].id == "https://a.example/"
    assert second.documents[0].title == "T b"
    assert len({d.id for d in first.documents}) == len(first.documents)


def test_nothing_found_and_no_more_calls_are_two_things(engine):
    nothing, broke = search(engine, "none", "broke")
    assert (nothing.failed, nothing.documents) == (False, [])
    assert broke.failed
    assert "quota used up" in broke.error or "none of the engines behind it answered (1 failed)" in broke.error


def test_a_wrong_key_is_a_failure_and_none_is_refused_at_once(web, monkeypatch):
    monkeypatch.setenv("SERPER_API_KEY", "wrong")
    assert search(build("serper", web), "a")[0].error == "HTTP 403 from the server"
    monkeypatch.delenv("SERPER_API_KEY")
    with pytest.raises(UserError, match="set the environment variable SERPER_API_KEY"):
        build("serper", web)
    monkeypatch.setenv("MY_KEY", "k")
    assert not search(build("serper", web, key_variable="MY_KEY"), "a")[0].failed


def test_what_was_found_can_be_kept_under_a_name(web, tmp_path, monkeypatch):
    kept = {"cache": str(tmp_path), "cache_key": "november"}
    one = build("searxng", web, **kept)
    assert not search(one, "a")[0].failed
    gone = build("searxng", "http://127.0.0.1:9", **kept)
    assert [d.title for d in search(gone, "a")[0].documents] == ["T a"]
    assert search(gone, "b")[0].failed


def test_batches_are_refused(web):
    with pytest.raises(UserError, match="takes one query a call"):
        build("searxng", web, queries_per_call=8)
