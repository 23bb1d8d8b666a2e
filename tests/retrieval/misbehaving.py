"""A search server whose path says how it misbehaves: ``POST /hang/retrieve`` never answers. Run it; it says where."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import sys
from collections import Counter

SECRET = "Traceback: secret of the server"
WRONG_SHAPES = {
    "list": [],
    "no-result": {"results": []},
    "null": {"result": None},
    "too-few": {"result": []},
    "flat": {"result": [{"document": {"id": "1", "contents": "x"}}]},
    "no-text": {"result": [[{"document": {"id": "1"}}]]},
    "number": {"result": [[3]]},
    "score": {"result": [[{"document": {"contents": "x"}, "score": "high"}]]},
    "error": {"result": [[{"document": {"contents": None}}]]},
}

calls: Counter[str] = Counter()


def good(queries: list[str], k: int) -> bytes:
    found = [
        [{"document": {"id": f"{q}/{n}", "contents": f'"T {q}"\ntext of {q} {n}'}, "score": 1.0} for n in range(k)]
        for q in queries
    ]
    return json.dumps({"result": [[] if q == "nothing" else f for q, f in zip(queries, found, strict=True)]}).encode()


def response(status: int, body: bytes, *headers: str, length: int | None = None) -> bytes:
    head = [f"HTTP/1.1 {status} x", f"content-length: {len(body) if length is None else length}", *headers]
    return "\r\n".join([*head, "", ""]).encode() + body


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = next((int(h[15:]) for h in head.lower().split("\r\n") if h.startswith("content-length:")), 0)
            body = json.loads(await reader.readexactly(length) or b"{}")
            method, path, _ = head.split(" ", 2)
            mode = path.split("/")[1]
            calls[mode] += 1
            if path == "/calls":
                await send(writer, response(200, json.dumps(calls).encode()))
            elif method == "GET":
                await health(writer, mode)
            else:
                await misbehave(writer, mode, body.get("queries", []), body.get("topk") or 1)
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def health(writer: asyncio.StreamWriter, mode: str) -> None:
    if mode.startswith("corpus"):
        await send(writer, response(200, json.dumps({"status": "ok", "corpus_hash": mode}).encode()))
    elif mode == "hang":
        await asyncio.sleep(3600)
    else:
        await send(writer, response(404, b"{}"))


async def misbehave(writer: asyncio.StreamWriter, mode: str, queries: list[str], k: int) -> None:
    right = good(queries, k)
    kind, _, rest = mode.partition("-")
    if kind == "hang":
        await asyncio.sleep(3600)
    elif kind == "drip":
        await send(writer, response(200, b"", length=100_000))
        while True:
            await send(writer, b" ")
            await asyncio.sleep(0.05)
    elif kind == "endless":
        await send(writer, response(200, b"", length=1 << 40))
        while True:
            await send(writer, b" " * (1 << 20))
    elif kind.isdigit():
        await send(writer, response(int(kind), SECRET.encode(), "retry-after: 1"))
    elif kind == "empty":
        await send(writer, response(200, b""))
    elif kind == "html":
        await send(writer, response(200, f"<html>{SECRET}</html>".encode()))
    elif kind == "truncated":
        await send(writer, response(200, right[: len(right) // 2]))
    elif kind == "cut":
        await send(writer, response(200, right[: len(right) // 2], length=len(right)))
        raise ConnectionError
    elif kind == "shape":
        await send(writer, response(200, json.dumps(WRONG_SHAPES[rest]).encode()))
    elif kind == "reset":
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raise ConnectionError
    elif kind == "flaky":  # flaky-NAME-2: the first two calls fail
        failing = calls[mode] <= int(rest.rpartition("-")[2])
        await send(writer, response(503, b"") if failing else response(200, right))
    elif kind == "sleepy":  # sleepy-NAME-9: the first nine calls are answered after 0 to 40 ms
        if calls[mode] <= int(rest.rpartition("-")[2]):
            await asyncio.sleep(0.01 * (calls[mode] % 5))
        await send(writer, response(200, right))
    elif kind == "picky":  # one query that it doesn't like spoils the whole call
        await send(writer, response(422, SECRET.encode()) if "bad" in queries else response(200, right))
    else:
        await send(writer, response(200, right))


async def send(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    await writer.drain()


async def main() -> None:
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    print(f"misbehaving at http://{host}:{port}", file=sys.stderr, flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
