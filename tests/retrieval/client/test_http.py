import asyncio
import json
import socket
import sys
import threading
import time
import urllib.request
from pathlib import Path

import misbehaving
import pytest
from processes import serving, started
from pydantic import ValidationError

from sleuth.errors import UserError
from sleuth.retrieval.build import IndexSettings, build_index
from sleuth.retrieval.client.circuit import CircuitBreaker
from sleuth.retrieval.client.http import HTTPRetriever, HTTPSettings
from sleuth.types import Document, Retriever, SearchRequest

for module in ("httpx", "tenacity", "diskcache"):
    pytest.importorskip(module)

PATIENT = {"timeout": 60.0, "budget": 120.0, "attempts": 2, "circuit_failures": 1000}
"""A busy machine is no reason to fail."""

QUICK = {"timeout": 0.4, "budget": 2.0, "attempts": 2}


@pytest.fixture(scope="module")
def bad_server():
    with started(sys.executable, str(Path(misbehaving.__file__))) as server:
        yield server.url


@pytest.fixture
def retriever(bad_server):
    made = []

    def make(mode, **settings):
        made.append(HTTPRetriever(HTTPSettings(url=f"{bad_server}/{mode}", **{**PATIENT, **settings})))
        return made[-1]

    yield make
    for one in made:
        one.close()


def search(retriever, *queries, k=2):
    return retriever.search([SearchRequest(q) for q in queries], k)


def calls(bad_server, mode):
    with urllib.request.urlopen(f"{bad_server}/calls") as answer:
        return json.load(answer).get(mode, 0)


FAULTS = [
    "hang", "drip", "500", "502", "404", "429", "empty", "html", "truncated", "cut", "reset", "endless",
    *(f"shape-{name}" for name in misbehaving.WRONG_SHAPES),
]  # fmt: skip


@pytest.mark.parametrize("mode", FAULTS)
def test_every_fault_ends_in_time_as_a_failure_whose_text_is_ours(retriever, mode):
    started_at = time.monotonic()
    results = search(retriever(mode, max_megabytes=4, **QUICK), "a", "b")
    assert time.monotonic() - started_at < 30
    assert all(r.failed and not r.documents for r in results)
    assert not any(misbehaving.SECRET in r.error or "<" in r.error or "\n" in r.error for r in results)


def test_nobody_listening_is_a_failure():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (result,) = search(HTTPRetriever(HTTPSettings(url=f"http://127.0.0.1:{port}", **QUICK)), "a")
    assert result.failed


def test_a_used_up_quota_and_nothing_found_are_two_things(retriever):
    (quota,) = search(retriever("429"), "a")
    (nothing,) = search(retriever("ok"), "nothing")
    assert quota.error == "quota used up (HTTP 429) from the server"
    assert (nothing.failed, nothing.documents) == (False, [])


def test_passages_come_as_they_were_sent(retriever):
    first, second = search(retriever("ok"), "Beyoncé — São Paulo", "b")
    assert first.documents[0] == Document(
        "Beyoncé — São Paulo/0", "T Beyoncé — São Paulo", "text of Beyoncé — São Paulo 0", 1.0
    )
    assert [d.id for d in second.documents] == ["b/0", "b/1"]


def test_each_query_gets_its_own_passages_over_many_calls(retriever):
    queries = [f"q{n % 40}" for n in range(100)]
    results = search(retriever("ok", queries_per_call=3, connections=4), *queries, k=1)
    assert [[d.id for d in r.documents] for r in results] == [[f"{q}/0"] for q in queries]


def test_threads_may_search_at_once(retriever):
    shared = retriever("ok")
    found = {}

    def work(n):
        found[n] = [d.id for r in search(shared, f"t{n}", k=1) for d in r.documents]

    threads = [threading.Thread(target=work, args=(n,)) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {n: [f"t{n}/0"] for n in range(20)}


def test_a_caller_with_its_own_loop_may_await(bad_server):
    one = HTTPRetriever(HTTPSettings(url=f"{bad_server}/ok", **PATIENT))
    (result,) = asyncio.run(one.search_async([SearchRequest("a")], 1))
    assert [d.id for d in result.documents] == ["a/0"]


def test_surrogates_and_nul_are_sent_as_replacement_characters(retriever):
    first, second = search(retriever("ok"), "a\ud800\0", "b", k=1)
    assert first.documents[0].id == "a\ufffd\ufffd/0"
    assert second.documents[0].id == "b/0"


def test_a_failure_that_passes_is_tried_again(retriever, bad_server):
    (result,) = search(retriever("flaky-a-2", attempts=3), "a")
    assert not result.failed
    assert calls(bad_server, "flaky-a-2") == 3
    (result,) = search(retriever("flaky-b-9", attempts=3), "a")
    assert (result.error, calls(bad_server, "flaky-b-9")) == ("HTTP 503 from the server", 3)


def test_the_server_may_say_how_long_to_wait(retriever):
    started_at = time.monotonic()
    search(retriever("503"), "a")
    assert time.monotonic() - started_at >= 1.0


def test_a_mistake_of_ours_is_not_sent_again_and_spoils_only_its_own_query(retriever, bad_server):
    results = search(retriever("picky"), "a", "bad", "c")
    assert [r.error for r in results] == [None, "HTTP 422 from the server", None]
    assert calls(bad_server, "picky") == 4
    search(retriever("404"), "a")


def test_after_failures_in_a_row_the_server_is_left_alone_for_a_while(retriever, bad_server):
    now = 0.0
    one = retriever("flaky-circuit-4")
    one._circuit = CircuitBreaker(2, 30.0, lambda: now)
    assert [search(one, "a")[0].failed for _ in range(2)] == [True, True]
    for _ in range(5):
        (refused,) = search(one, "a")
        assert refused.error.startswith("not asked: the server failed 2 calls in a row (last: HTTP 503")
    assert calls(bad_server, "flaky-circuit-4") == 4
    now = 31.0
    assert not search(one, "a")[0].failed
    assert not search(one, "b")[0].failed


def test_a_part_of_the_corpus_cannot_be_asked_for(retriever):
    (result,) = retriever("ok").search([SearchRequest("a", "world 1")], 1)
    assert result.failed


# The cache ------------------------------------------------------------------------------------------------------------


def test_what_was_found_is_not_asked_again_and_a_failure_is(retriever, bad_server, tmp_path):
    settings = {"cache": str(tmp_path / "cache"), "cache_key": "mine"}
    for _ in range(2):
        found = search(retriever("ok-cached", **settings), "Beyoncé", "nothing", k=1)
        assert [[d.title for d in r.documents] for r in found] == [["T Beyoncé"], []]
        assert found[0].documents[0].score == 1.0
    assert calls(bad_server, "ok-cached") == 1
    search(retriever("ok-cached", **settings), "Beyoncé", k=2)
    assert calls(bad_server, "ok-cached") == 2
    for _ in range(2):
        assert search(retriever("500-cached", attempts=1, **settings), "c")[0].failed
    assert calls(bad_server, "500-cached") == 2


def test_another_corpus_has_its_own_results(retriever, bad_server, tmp_path):
    for mode in ("corpus-a", "corpus-b", "corpus-a"):
        search(retriever(mode, cache=str(tmp_path)), "q")
    assert (calls(bad_server, "corpus-a"), calls(bad_server, "corpus-b")) == (
        3,
        2,
    )  # two of a's are looks at its health


def test_without_a_corpus_hash_nothing_is_kept(retriever, bad_server, tmp_path):
    for _ in range(2):
        search(retriever("ok-unnamed", cache=str(tmp_path)), "q")
    assert calls(bad_server, "ok-unnamed") == 4


def test_a_broken_cache_is_done_without(retriever, tmp_path):
    one = retriever("ok", cache=str(tmp_path), cache_key="x")
    search(one, "a")
    one._cache._cache.close()
    for file in tmp_path.iterdir():
        file.write_bytes(b"no database")
    with pytest.warns(UserWarning, match="not used any more"):
        (result,) = search(one, "b")
    assert not result.failed
    with pytest.raises(UserError, match="can't be used"):
        retriever("ok", cache=str(tmp_path))


# Settings -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["ftp://x", "localhost:8000", "http://", ""])
def test_an_address_that_is_none_is_refused(url):
    with pytest.raises(ValidationError, match="address of a server"):
        HTTPSettings(url=url)


def test_the_check_says_what_to_do(retriever):
    retriever("ok").check()
    for mode in ("500", "hang", "reset"):
        with pytest.raises(UserError, match=r"no search engine answers there .* sleuth serve DIR"):
            retriever(mode, **QUICK).check()
    for mode in ("html", "shape-flat"):
        with pytest.raises(UserError, match=r"doesn't speak Search-R1's /retrieve .* without --dialect"):
            retriever(mode, **QUICK).check()


# With our own server --------------------------------------------------------------------------------------------------


def test_our_server_and_our_client_fit_together(tmp_path, corpus, monkeypatch):
    pytest.importorskip("uvicorn")
    built = build_index(str(corpus), tmp_path / "index", IndexSettings())
    with serving(tmp_path / "index", SLEUTH_RETRIEVER_TOKEN="sesame") as server:
        one = HTTPRetriever(HTTPSettings(url=f"{server.url}/retrieve", cache=str(tmp_path / "cache")))
        with pytest.raises(UserError, match=r"wants a token \(HTTP 401 .* set the environment variable SLEUTH_RETRIEV"):
            one.check()
        monkeypatch.setenv("SLEUTH_RETRIEVER_TOKEN", "wrong")
        with pytest.raises(UserError, match=r"refuses the token in the environment variable SLEUTH_RETRIEVER_TOKEN"):
            one.check()
        monkeypatch.setenv("SLEUTH_RETRIEVER_TOKEN", "sesame")
        one.check()
        assert isinstance(one, Retriever)
        assert one.corpus_hash == built.manifest.corpus_hash
        queries = ["Beyoncé", "museum", "Beyoncé", "北京", "", "\ud800 Seine"]
        assert [[d.id for d in r.documents] for r in search(one, *queries, k=1)] == [
            ["sao"], ["paris-2"], ["sao"], [], [], ["paris"],
        ]  # fmt: skip
        assert [(d.title, d.text.count("\n\n")) for d in one.page("paris-2")] == [("Paris", 1)]
        assert one.page("no such page") == []
        found = search(one, "Beyoncé")[0].documents[0]
        assert found.text == 'A city in Brazil.\nBeyoncé — "Queen B" — sang there in 2010.'
        server.stop()
        assert not search(one, "museum", k=1)[0].failed  # it was kept


def test_calls_that_were_given_up_at_any_moment_leave_their_connections_to_others(retriever):
    """A pool that loses one with each time-out is a retriever that is dead after some hours."""
    slow = retriever("sleepy-pool-300", timeout=0.03, attempts=1, connections=4, queries_per_call=1)
    search(slow, *(f"q{n}" for n in range(300)))
    slow.settings = slow.settings.model_copy(update={"timeout": 60.0, "attempts": 2})
    results = search(slow, *(f"r{n}" for n in range(40)), k=1)
    assert [[d.id for d in r.documents] for r in results] == [[f"r{n}/0"] for n in range(40)]


@pytest.mark.parametrize(("dialect", "says"), [("search-r1", None), ("zerosearch", "without --dialect zerosearch")])
def test_the_dialects_of_our_server_that_our_client_reads(tmp_path, corpus, dialect, says):
    pytest.importorskip("uvicorn")
    build_index(str(corpus), tmp_path / "index", IndexSettings())
    with serving(tmp_path / "index", "--dialect", dialect) as server:
        one = HTTPRetriever(HTTPSettings(url=server.url))
        if says is not None:
            with pytest.raises(UserError, match=says):
                one.check()
            return
        one.check()
        found = search(one, "Beyoncé", "xyzzy", k=2)
        assert [[(d.id, d.title, d.text) for d in result.documents] for result in found] == [
            [("sao", "São Paulo", 'A city in Brazil.\nBeyoncé — "Queen B" — sang there in 2010.')], [],
        ]  # fmt: skip
        assert found[0].documents[0].score > 0
