"""A stand-in for an OpenAI-compatible endpoint: the real wire, with scripted messages.

Bodies have the form of the published API (chat completion objects, error objects, Retry-After), recorded once from its
reference and from vLLM's server.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Endpoint:
    """Answers ``POST /v1/chat/completions`` with what ``reply`` gives for the request's body.

    A string is a message; a number is a refusal with that status; (status, headers, bytes) are sent as they are.

    Attributes:
        requests: bodies, as they came. ``keys``: their Authorization headers.
        most_at_once: calls that were open at the same time.
    """

    def __init__(self, reply: Callable[[dict[str, Any]], Any]):
        self.reply = reply
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.most_at_once = 0
        self._open = 0
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                outer._serve(self)

            def log_message(self, *arguments: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True

    def __enter__(self) -> Endpoint:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        body = json.loads(handler.rfile.read(int(handler.headers["content-length"])))
        assert handler.path == "/v1/chat/completions"
        assert body["messages"]
        assert all(set(m) == {"role", "content"} for m in body["messages"])
        with self._lock:
            self.requests.append(body)
            self.keys.append(handler.headers.get("authorization"))
            self._open += 1
            self.most_at_once = max(self.most_at_once, self._open)
        try:
            status, headers, content = self._answer(body, self.reply(body))
        finally:
            with self._lock:
                self._open -= 1
        try:
            handler.send_response(status)
            for name, value in {"content-type": "application/json", **headers}.items():
                handler.send_header(name, value)
            handler.send_header("content-length", str(len(content)))
            handler.end_headers()
            handler.wfile.write(content)
        except OSError:  # the client has given up
            pass

    def _answer(self, body: dict[str, Any], reply: Any) -> tuple[int, dict[str, str], bytes]:
        if isinstance(reply, tuple):
            return reply
        if isinstance(reply, int):
            error = {"message": f"scripted {reply}", "type": "error", "param": None, "code": None}
            return reply, {}, json.dumps({"error": error}).encode()
        return 200, {}, json.dumps(completion(body, reply)).encode()


def completion(body: dict[str, Any], text: str | None, finish: str = "stop") -> dict[str, Any]:
    """A chat completion object; words count as tokens. Text is cut before a stop string, as servers do."""
    if text is not None:
        for stop in body.get("stop", []):
            text = text.partition(stop)[0]
        words = text.split(" ")
        if len(words) > body["max_tokens"]:
            text, finish = " ".join(words[: body["max_tokens"]]), "length"
    read = sum(len(m["content"].split()) for m in body["messages"])
    written = len((text or "").split())
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1764500000,
        "model": body["model"],
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": text}, "logprobs": None, "finish_reason": finish}
        ],
        "usage": {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written},
    }
