"""Many clients for many minutes through a faulty line to a real server: nothing lost, swapped or doubled, memory flat.

    python -m benchmarks.retrieval.soak DIR --questions FILE [--minutes 10] [--clients 64] [--faults 0.05]

A proxy between client and server breaks a share of the calls: it hangs, resets the connection, cuts the answer, or
answers 500 or HTML. Every answer is compared with what the index gives in process. Exits with 1 on any difference, on a
search that took longer than its budget, or on memory that grew by more than a tenth after the first quarter.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import socket
import struct
import sys
import threading
import time
from collections import Counter
from pathlib import Path

from benchmarks.retrieval.processes import Server

from sleuth.jsonl import read_jsonl
from sleuth.retrieval.client.http import HTTPRetriever, HTTPSettings
from sleuth.retrieval.index import open_index
from sleuth.types import SearchRequest

_BUDGET = 120.0
_FAULTS = ("hang", "reset", "cut", "500", "html")


class FaultyLine:
    """Passes requests on, one connection to the server for each of a client's; breaks a share of them."""

    def __init__(self, server: Server, share: float, seed: int) -> None:
        self._server, self._share, self._rng = server, share, random.Random(seed)
        self.faults: Counter[str] = Counter()
        self.port = 0

    def start(self) -> None:
        ready = threading.Event()

        async def serve() -> None:
            listening = await asyncio.start_server(self._connection, "127.0.0.1", 0)
            self.port = listening.sockets[0].getsockname()[1]
            ready.set()
            await listening.serve_forever()

        threading.Thread(target=lambda: asyncio.run(serve()), daemon=True).start()
        ready.wait()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream_reader, upstream = await asyncio.open_connection(self._server.host, self._server.port)
        try:
            while True:
                request = await _message(reader)
                fault = self._rng.choice(_FAULTS) if self._rng.random() < self._share else None
                if fault is None:
                    upstream.write(request)
                    writer.write(await _message(upstream_reader))
                    await writer.drain()
                    continue
                self.faults[fault] += 1
                await self._break(fault, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            upstream.close()
            writer.close()

    async def _break(self, fault: str, writer: asyncio.StreamWriter) -> None:
        if fault == "hang":
            await asyncio.sleep(3600)
        elif fault == "reset":
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        elif fault == "cut":
            writer.write(b'HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n{"result": [[{"document": {"id')
            await writer.drain()
        else:
            status, body = (500, b"error") if fault == "500" else (200, b"<html>error</html>")
            writer.write(b"HTTP/1.1 %d x\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body))
            await writer.drain()
            return
        raise ConnectionError


async def _message(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    lengths = [int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return head + await reader.readexactly(lengths[0] if lengths else 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("index", type=Path)
    parser.add_argument("--questions", required=True)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--faults", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    queries = list(dict.fromkeys(row["question"] for _, row in read_jsonl(args.questions)))[:2000]
    index = open_index(args.index)
    requests = [SearchRequest(query) for query in queries]
    expected = {
        query: [d.id for d in result.documents]
        for query, result in zip(queries, index.search(requests, 3), strict=True)
    }
    server = Server.ours(args.index)
    line = FaultyLine(server, args.faults, args.seed)
    line.start()
    # The circuit stays closed: here it is every single search that has to come through.
    retriever = HTTPRetriever(
        HTTPSettings(
            url=f"http://127.0.0.1:{line.port}",
            timeout=10.0,
            budget=_BUDGET,
            attempts=8,
            connections=args.clients,
            circuit_failures=1_000_000,
        )
    )
    counts: Counter[str] = Counter()
    lock = threading.Lock()
    end = time.monotonic() + 60 * args.minutes

    def client(number: int) -> None:
        rng = random.Random(args.seed * 1000 + number)
        while time.monotonic() < end:
            asked = rng.choices(queries, k=rng.choice((1, 1, 1, 4)))
            started = time.monotonic()
            results = retriever.search([SearchRequest(query) for query in asked], 3)
            late = time.monotonic() - started > _BUDGET + 5
            with lock:
                counts["searches"] += 1
                counts["late"] += late
                counts["lost"] += len(results) != len(asked)
                for query, result in zip(asked, results, strict=False):
                    counts["queries"] += 1
                    counts["failed"] += result.failed
                    counts["wrong"] += not result.failed and [d.id for d in result.documents] != expected[query]

    threads = [threading.Thread(target=client, args=(n,)) for n in range(args.clients)]
    for thread in threads:
        thread.start()
    memory: list[float] = []
    while any(thread.is_alive() for thread in threads):
        time.sleep(min(5.0, 6 * args.minutes))
        memory.append(server.megabytes())
        print(f"{counts['queries']:,} queries, {sum(line.faults.values()):,} faults, {memory[-1]:.0f} MB", flush=True)
    server.stop()
    settled, last = memory[len(memory) // 4], memory[-1]
    print(
        f"{dict(counts)}; faults {dict(line.faults)}; server {settled:.0f} MB after a quarter, {last:.0f} MB at the end"
    )
    bad = counts["late"] or counts["lost"] or counts["wrong"] or last > 1.1 * settled
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
