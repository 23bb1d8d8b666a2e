import json
import threading

import pytest
from endpoint import Endpoint, completion

from sleuth.errors import UserError
from sleuth.samplers import openai_compatible
from sleuth.samplers.openai_compatible import EndpointSettings, OpenAIWriter
from sleuth.samplers.writer import AsyncWriter, Message, Writer, WriteRequest
from sleuth.types import SamplingParams

GREEDY = SamplingParams(temperature=0)


def ask(text, **settings):
    return WriteRequest((Message("system", "Be brief."), Message("user", text)), 8, **settings)


def writer(endpoint, **settings):
    return OpenAIWriter(EndpointSettings(url=endpoint.url, model="m", **settings))


@pytest.fixture(autouse=True)
def no_waits(monkeypatch):
    monkeypatch.setattr(openai_compatible, "_wait", lambda state: 0.0)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def scripted(*replies):
    """One reply a call, the last one for all further calls."""
    left = list(replies)
    return lambda body: left.pop(0) if len(left) > 1 else left[0]


def test_a_message_and_its_tokens_come_back_and_the_request_is_the_apis():
    with Endpoint(lambda body: "Paris it is") as endpoint:
        (written,) = writer(endpoint).write([ask("Capital?", stop=("\n",), seed=2**40 + 5)], SamplingParams(0.7, 0.9))
    assert (written.text, written.cut, written.error) == ("Paris it is", False, None)
    assert (written.tokens_in, written.tokens_out, written.ids) == (3, 3, None)
    (sent,) = endpoint.requests
    assert sent["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Capital?"}]
    assert (sent["model"], sent["max_tokens"], sent["stop"]) == ("m", 8, ["\n"])
    assert (sent["temperature"], sent["top_p"], sent["seed"]) == (0.7, 0.9, 5)
    assert "top_k" not in sent
    assert isinstance(writer(endpoint), Writer)
    assert isinstance(writer(endpoint), AsyncWriter)


def test_a_message_that_was_cut_says_so():
    with Endpoint(lambda body: " ".join(["word"] * 20)) as endpoint:
        (written,) = writer(endpoint).write([ask("q")], GREEDY)
    assert (written.cut, written.tokens_out) == (True, 8)


def test_the_key_comes_from_the_environment_and_goes_nowhere_else(monkeypatch):
    monkeypatch.setenv("MY_KEY", "sk-secret")
    with Endpoint(lambda body: "x") as endpoint:
        writer(endpoint, key_variable="MY_KEY").write([ask("q")], GREEDY)
        writer(endpoint).write([ask("q")], GREEDY)
        assert endpoint.keys == ["Bearer sk-secret", None]
        endpoint.reply = lambda body: 401
        with pytest.raises(UserError, match="the key in MY_KEY") as refused:
            writer(endpoint, key_variable="MY_KEY").write([ask("q")], GREEDY)
    assert "sk-secret" not in str(refused.value)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_refusal_for_now_is_tried_again_and_counted(status):
    with Endpoint(scripted(status, status, "Paris")) as endpoint:
        asking = writer(endpoint)
        (written,) = asking.write([ask("q")], GREEDY)
    assert (written.text, written.calls) == ("Paris", 3)
    assert (asking.tally.messages, asking.tally.retries, asking.tally.failed) == (1, 2, 0)


def test_what_never_succeeds_is_an_outcome_with_a_reason():
    with Endpoint(lambda body: 500 if "bad" in body["messages"][-1]["content"] else "fine") as endpoint:
        good, bad = writer(endpoint, attempts=3).write([ask("good"), ask("bad")], GREEDY)
    assert good.text == "fine"
    assert (bad.failed, bad.calls) == (True, 3)
    assert "status 500 (scripted 500)" in bad.error


def test_a_request_that_can_never_succeed_is_not_repeated():
    with Endpoint(lambda body: 400) as endpoint:
        (written,) = writer(endpoint).write([ask("q")], GREEDY)
    assert (written.failed, written.calls, len(endpoint.requests)) == (True, 1, 1)


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_wrong_set_up_stops_everything_with_one_line(status):
    with Endpoint(lambda body: status) as endpoint, pytest.raises(UserError, match=f"status {status}"):
        writer(endpoint).write([ask("a"), ask("b")], GREEDY)


@pytest.mark.parametrize(
    "content",
    [b"<html>busy</html>", b"{}", b'{"choices": []}', b'{"choices": [{"message": {"content": 5}}]}', b"[" * 9999],
)
def test_an_answer_that_is_none_is_tried_again(content):
    with Endpoint(scripted((200, {}, content), "Paris")) as endpoint:
        (written,) = writer(endpoint).write([ask("q")], GREEDY)
    assert (written.text, written.calls) == ("Paris", 2)


def test_a_message_without_text_is_an_empty_one():
    def refuses(body):
        return 200, {}, json.dumps(completion(body, None, "content_filter")).encode()

    with Endpoint(refuses) as endpoint:
        (written,) = writer(endpoint).write([ask("q")], GREEDY)
    assert (written.text, written.failed) == ("", False)


def test_a_server_that_never_answers_is_given_up():
    held = threading.Event()
    with Endpoint(lambda body: held.wait(30) and "late") as endpoint:
        (written,) = writer(endpoint, timeout=0.2, attempts=2).write([ask("q")], GREEDY)
        held.set()
    assert "no answer in 0.2 s" in written.error


def test_nobody_is_there():
    asking = OpenAIWriter(EndpointSettings(url="http://127.0.0.1:9/v1", model="m", attempts=2))
    (written,) = asking.write([ask("q")], GREEDY)
    assert "ConnectError" in written.error


def test_no_more_calls_at_a_time_than_allowed_and_answers_stay_in_order():
    gate = threading.Barrier(4)

    def reply(body):
        gate.wait(30)  # opens only when four calls are there together
        return body["messages"][-1]["content"]

    with Endpoint(reply) as endpoint:
        written = writer(endpoint, concurrency=4).write([ask(str(n)) for n in range(12)], GREEDY)
    assert [w.text for w in written] == [str(n) for n in range(12)]
    assert endpoint.most_at_once == 4


def test_calls_keep_to_the_rate_and_to_the_pause_that_the_server_asks_for(monkeypatch):
    slept = []

    async def sleep(seconds):
        slept.append(seconds)

    monkeypatch.setattr(openai_compatible.time, "monotonic", lambda: 100.0)
    with Endpoint(scripted("a", "b", (429, {"retry-after": "7"}, b"{}"), "c")) as endpoint:
        asking = writer(endpoint, requests_per_minute=60, concurrency=1)
        monkeypatch.setattr(openai_compatible, "asyncio", _Asyncio(sleep))
        asking.write([ask("1"), ask("2"), ask("3")], GREEDY)
    assert slept == [1.0, 2.0, 7.0]


class _Asyncio:
    """The module, with another sleep for our own waits alone."""

    def __init__(self, sleep):
        self.sleep = sleep

    def __getattr__(self, name):
        import asyncio

        return getattr(asyncio, name)


def test_prices_make_a_cost():
    free = EndpointSettings(url="http://h/v1")
    paid = EndpointSettings(url="http://h/v1", price_in=2.0, price_out=8.0)
    assert free.cost(1_000_000, 1_000_000) is None
    assert paid.cost(500_000, 250_000) == 3.0


def test_a_url_that_is_none_and_a_missing_model_are_refused():
    with pytest.raises(ValueError, match="address of an endpoint"):
        EndpointSettings(url="localhost:8000")
    with pytest.raises(UserError, match=r"endpoint\.model"):
        OpenAIWriter(EndpointSettings(url="http://h/v1"))
