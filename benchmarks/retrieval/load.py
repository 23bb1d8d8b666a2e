"""Clients with connections of their own that send one request after the other, and check what they get."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


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
    return asyncio.run(_run(host, port, queries, expected, clients, seconds))


async def _run(
    host: str, port: int, queries: Sequence[str], expected: dict[str, str | None], clients: int, seconds: float
) -> Load:
    times: list[float] = []
    wrong = 0
    started = time.perf_counter()

    async def client(number: int) -> None:
        nonlocal wrong
        reader, writer = await asyncio.open_connection(host, port)
        at = number * 997
        while time.perf_counter() - started < seconds:
            query = queries[at % len(queries)]
            at += 1
            sent = time.perf_counter()
            answer = json.loads(await request(reader, writer, [query]))
            times.append(time.perf_counter() - sent)
            found = answer["result"][0]
            first = found[0]["document"]["id"] if found else None
            wrong += first != expected[query]
        writer.close()

    await asyncio.gather(*(client(n) for n in range(clients)))
    p50, p99 = (np.percentile(times, q) * 1000 for q in (50, 99))
    return Load(len(times), time.perf_counter() - started, float(p50), float(p99), wrong)


async def request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, queries: Sequence[str]) -> bytes:
    """The body of the answer to one search."""
    body = json.dumps({"queries": list(queries), "topk": 3, "return_scores": True}).encode()
    head = (
        f"POST /retrieve HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body)
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
        await request(reader, writer, queries)
        taken = time.perf_counter() - started
        writer.close()
        return taken

    return asyncio.run(one())
