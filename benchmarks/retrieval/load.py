"""Clients with connections of their own that send one request after the other, and check what they get."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import uvloop


@dataclass(frozen=True, slots=True)
class Load:
    """``requests`` answered in ``seconds``; milliseconds that half, and all but one in a hundred, took at most."""

    requests: int
    seconds: float
    p50: float
    p99: float
    wrong: int

    @property
    def per_second(self) -> float:
        return self.requests / self.seconds


def run_clients(
    host: str, port: int, queries: Sequence[str], expected: dict[str, str | None], *, clients: int, seconds: float
) -> Load:
    """Each client sends single queries, as most trainers do.

    Args:
        expected: id of the first passage for each query; None: no passages.
    """
    # What the clients cost is taken from the servers on a small machine, so that it has to be little.
    bodies = [(message([query]), _start(expected[query])) for query in queries]
    return uvloop.run(_run(host, port, bodies, clients, seconds))


def _start(first: str | None) -> bytes:
    """How an answer begins, on both sides."""
    return b'{"result":[[]' if first is None else b'{"result":[[{"document":{"id":%b,' % json.dumps(first).encode()


async def _run(host: str, port: int, bodies: list[tuple[bytes, bytes]], clients: int, seconds: float) -> Load:
    times: list[float] = []
    wrong = 0
    started = time.perf_counter()

    async def client(number: int) -> None:
        nonlocal wrong
        reader, writer = await asyncio.open_connection(host, port)
        at = number * 997
        while time.perf_counter() - started < seconds:
            body, start = bodies[at % len(bodies)]
            at += 1
            sent = time.perf_counter()
            answer = await request(reader, writer, body)
            times.append(time.perf_counter() - sent)
            wrong += not answer.startswith(start)
        writer.close()

    await asyncio.gather(*(client(n) for n in range(clients)))
    p50, p99 = (np.percentile(times, q) * 1000 for q in (50, 99))
    return Load(len(times), time.perf_counter() - started, float(p50), float(p99), wrong)


def message(queries: Sequence[str]) -> bytes:
    """A search as bytes on the wire."""
    body = json.dumps({"queries": list(queries), "topk": 3, "return_scores": True}).encode()
    head = (
        f"POST /retrieve HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: bytes) -> bytes:
    """The body of the answer to one :func:`message`."""
    writer.write(asked)
    await writer.drain()
    sent = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    if " 200 " not in sent.split("\r\n")[0]:
        raise RuntimeError(sent)
    length = next(int(line[15:]) for line in sent.split("\r\n") if line.startswith("content-length:"))
    return await reader.readexactly(length)


def send_batch(host: str, port: int, queries: Sequence[str]) -> float:
    """Seconds of one request with all these queries."""

    async def one() -> float:
        reader, writer = await asyncio.open_connection(host, port)
        started = time.perf_counter()
        await request(reader, writer, message(queries))
        taken = time.perf_counter() - started
        writer.close()
        return taken

    return asyncio.run(one())
