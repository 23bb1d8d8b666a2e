"""The vLLM sampler against a server that speaks vLLM's /v1/completions."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from sleuth.errors import RunFailed, UserError
from sleuth.samplers.vllm import VLLMSampler, VLLMSettings
from sleuth.types import Sampler, SampleRequest, SamplingParams, StopReason, StopRule

CLOSE, END, THINK = 7, 2, 5
TEXT = {CLOSE: "</search>", END: "<eos>", THINK: "<think>"}
LEFT_THOUGHT = 6


class StandIn(BaseHTTPRequestHandler):
    """A model that goes on with its script after the prompt; stops on texts and ids as vLLM does."""

    script: ClassVar[list] = []
    bodies: ClassVar[list] = []
    failures: ClassVar[list] = []
    overshoot = 0
    old = False

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.bodies.append(body)
        if self.failures:
            self.send_error(self.failures.pop(0))
            return
        at = len(body["prompt"]) - 1  # the tests' contexts are one token long
        ids, text, why = [], "", "length"
        for token in self.script[at : at + body["max_tokens"]]:
            ids.append(token)
            text += TEXT.get(token, "x")
            if token in body["stop_token_ids"] or any(s in text for s in body["stop"]):
                why = "stop"
                ids += self.script[at + len(ids) : at + len(ids) + self.overshoot]  # as speculative decoding may
                break
        choice = {"index": 0, "text": text, "finish_reason": why, "token_ids": ids}
        choice["logprobs"] = {"token_logprobs": [-0.1 * t for t in ids], "tokens": [f"token_id:{t}" for t in ids]}
        if self.old:
            del choice["token_ids"]
        answer = json.dumps({"object": "text_completion", "choices": [choice]}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    handler = type("Handler", (StandIn,), {"bodies": [], "failures": [], "script": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        handler.url = f"http://127.0.0.1:{http.server_port}"
        yield handler
        http.shutdown()


def _rule():
    # A closing tag closes an action only after the thought has been left.
    return StopRule(lambda ids: LEFT_THOUGHT in ids, frozenset({CLOSE}), frozenset({END}), ("</search>",))


def _sample(server, max_new_tokens=20, params=SamplingParams(), **settings):
    sampler = VLLMSampler(VLLMSettings(url=server.url, model="m", **settings))
    assert isinstance(sampler, Sampler)
    return sampler.sample([SampleRequest("a", [1], max_new_tokens, _rule(), seed=5)], params)[0]


def test_ids_and_log_probs_are_the_servers_and_nothing_is_text(server):
    server.script = [THINK, 9, LEFT_THOUGHT, 10, CLOSE, 11]
    completion = _sample(server)
    assert completion.ids == [THINK, 9, LEFT_THOUGHT, 10, CLOSE]
    assert completion.logprobs == pytest.approx([-0.5, -0.9, -0.6, -1.0, -0.7])
    assert completion.stop is StopReason.ACTION
    body = server.bodies[0]
    assert body["prompt"] == [1]
    assert body["return_token_ids"]
    assert body["include_stop_str_in_output"]
    assert body["stop_token_ids"] == [END]


def test_a_closing_tag_inside_a_thought_stops_nothing(server):
    server.script = [THINK, CLOSE, 9, LEFT_THOUGHT, CLOSE, 11]
    completion = _sample(server)
    assert completion.ids == [THINK, CLOSE, 9, LEFT_THOUGHT, CLOSE]
    assert [body["prompt"] for body in server.bodies] == [[1], [1, THINK, CLOSE]]
    assert server.bodies[1]["max_tokens"] == 18
    assert server.bodies[0]["seed"] != server.bodies[1]["seed"]


def test_what_the_server_adds_behind_the_stop_is_cut(server):
    server.script, server.overshoot = [LEFT_THOUGHT, CLOSE, 11, 12], 2
    assert _sample(server).ids == [LEFT_THOUGHT, CLOSE]


def test_end_of_turn_belongs_to_it_and_the_limit_is_kept(server):
    server.script = [9, END, 9]
    assert _sample(server).stop is StopReason.END_OF_TURN
    server.script = [THINK, CLOSE, 9, 9, 9]
    completion = _sample(server, max_new_tokens=4)
    assert (completion.ids, completion.stop) == ([THINK, CLOSE, 9, 9], StopReason.LENGTH)


def test_a_busy_server_is_asked_again_and_a_dead_one_ends_the_run(server):
    server.script, server.failures = [END], [503]
    assert _sample(server).ids == [END]
    server.failures = [503, 503]
    with pytest.raises(RunFailed, match="gave no answer in 2 calls"):
        _sample(server, attempts=2)
    server.failures = [404]
    with pytest.raises(UserError, match="refuses"):
        _sample(server)


def test_log_probs_that_training_can_not_use_are_refused(server):
    with pytest.raises(UserError, match="processed_logprobs"):
        _sample(server, params=SamplingParams(temperature=0.7))
    with pytest.raises(UserError, match="top_p=1"):
        _sample(server, params=SamplingParams(top_p=0.9), logprobs_mode="processed")
    server.script, server.old = [END], True
    with pytest.raises(UserError, match=r"0\.10\.2"):
        _sample(server)
