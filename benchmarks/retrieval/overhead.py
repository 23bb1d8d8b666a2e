"""What each way of serving adds to a search: both applications in one process, called in turn, over hits known before.

CPU seconds of the process, so that other work on the machine counts little. HTTP itself, the same on both sides, is
left out. What remains is reading the request, making the answer, and whatever lies between.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.retrieval.plain_server import application

from sleuth.retrieval.engine import Hits
from sleuth.retrieval.index import open_index
from sleuth.retrieval.server.app import RetrievalApp, ServerSettings


class Known:
    """An engine that looks its hits up."""

    def __init__(self, queries: Sequence[str], hits: Sequence[Hits]) -> None:
        self._hits = dict(zip(queries, hits, strict=True))

    def search(self, queries: Sequence[str], k: int) -> list[Hits]:
        return [self._hits[query] for query in queries]


def beyond_the_engine(folder: Path, queries: Sequence[str], rounds: int = 7) -> dict[str, dict[str, float]]:
    """Milliseconds of CPU for a call with 512 queries and for one with a single query, the best of the rounds."""
    index = open_index(folder)
    queries = list(dict.fromkeys(queries))[:512]
    index.engine = Known(queries, index.rows(queries, 3))
    # An answer of ours has title and text beside contents; with --dialect search-r1 both sides send the same.
    ours = RetrievalApp(ServerSettings(folder, threads=1))
    same = RetrievalApp(ServerSettings(folder, threads=1, dialect="search-r1"))
    ours._index = same._index = index
    found: dict[str, dict[str, float]] = {}
    calls = {"batch": (queries, 1), "single": (queries[:1], 200)}
    apps = {"ours": ours, "ours_same_answer": same, "plain": application(index)}

    async def measure() -> None:
        for name, (asked, times) in calls.items():
            best = dict.fromkeys(apps, float("inf"))
            for _ in range(rounds):
                for side, app in apps.items():
                    requests = [_request(asked) for _ in range(times)]
                    started = time.process_time()
                    for request in requests:
                        await _post(app, *request)
                    best[side] = min(best[side], 1000 * (time.process_time() - started) / times)
            ratios = {f"{side}_to_plain": best[side] / best["plain"] for side in ("ours", "ours_same_answer")}
            found[name] = {**best, **ratios}

    asyncio.run(measure())
    return found


def _request(queries: Sequence[str]) -> tuple[dict[str, Any], bytes]:
    """What an ASGI server hands to the application, and the body; what it costs the client to make it isn't counted."""
    body = json.dumps({"queries": list(queries), "topk": 3, "return_scores": True}).encode()
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "path": "/retrieve",
        "raw_path": b"/retrieve", "query_string": b"", "root_path": "", "scheme": "http",
        "server": ("127.0.0.1", 80), "client": ("127.0.0.1", 1),
        "headers": [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())],
    }  # fmt: skip
    return scope, body


async def _post(app: Any, scope: dict[str, Any], body: bytes) -> None:
    """One call; the answer is looked at and let go, as a socket would take it."""
    given = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> dict[str, Any]:
        if given:
            return given.pop()
        await asyncio.sleep(3600)
        return {}

    sent = 0

    async def send(message: dict[str, Any]) -> None:
        nonlocal sent
        if message["type"] == "http.response.start" and message["status"] != 200:
            raise RuntimeError(message)
        sent += len(message.get("body", b""))

    await app(scope, receive, send)
    if not sent:
        raise RuntimeError("an empty answer")
