"""What an evaluation on an endpoint costs beyond the endpoint: python -m benchmarks.evaluation

A mock endpoint in a process of its own answers every call after the same time. Sleuth (method, seeds, retries, rate,
usage, journal on disk) and a plain asyncio loop over httpx ask it the same questions, as many at a time, in turn.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import statistics
import tempfile
import time
from pathlib import Path

from sleuth.evaluation.journal import Journal
from sleuth.evaluation.methods import METHODS
from sleuth.evaluation.methods.method import Budget
from sleuth.evaluation.systems import EndpointMethod, Task
from sleuth.samplers.openai_compatible import EndpointSettings, OpenAIWriter
from sleuth.types import Document, Question, SamplingParams, SearchResult

_ANSWER = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 0,
    "model": "mock",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Answer: Paris"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 400, "completion_tokens": 4, "total_tokens": 404},
}


class Passages:
    """A retriever that takes no time."""

    def search(self, requests, k):
        return [SearchResult([Document(str(n), "Title", "word " * 100) for n in range(k)]) for _ in requests]


def serve(latency: float, port: multiprocessing.Queue) -> None:
    """Answer every POST after ``latency`` seconds."""
    body = json.dumps(_ANSWER).encode()
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode()

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while header := await reader.readuntil(b"\r\n\r\n"):
                (line,) = [one for one in header.lower().split(b"\r\n") if one.startswith(b"content-length:")]
                await reader.readexactly(int(line.split(b":")[1]))
                await asyncio.sleep(latency)
                writer.write(head + body)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def main() -> None:
        server = await asyncio.start_server(connection, "127.0.0.1", 0, backlog=1024)
        port.put(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(main())


def sleuth(url: str, questions: list[Question], at_once: int) -> None:
    writer = OpenAIWriter(EndpointSettings(url=url, model="mock", concurrency=at_once))
    system = EndpointMethod(METHODS["rag"], Budget(), writer, Passages(), at_once)
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder), "rag")
        journal.open()
        system.run([Task(q, q.id, n) for n, q in enumerate(questions)], SamplingParams(0.0), journal.append)
        journal.close(whole=False)
    assert writer.tally.messages == len(questions)


def plain(url: str, questions: list[Question], at_once: int) -> None:
    import httpx

    passages = "\n".join(f"[{n}] Title: {'word ' * 100}" for n in range(3))

    async def main() -> None:
        slots = asyncio.Semaphore(at_once)
        async with httpx.AsyncClient(timeout=120, limits=httpx.Limits(max_connections=at_once)) as client:

            async def one(question: Question) -> str:
                async with slots:
                    said = f"Passages:\n{passages}\nQuestion: {question.question}"
                    body = {"model": "mock", "messages": [{"role": "user", "content": said}], "max_tokens": 32}
                    answer = await client.post(f"{url}/chat/completions", json=body)
                    return answer.json()["choices"][0]["message"]["content"]

            await asyncio.gather(*map(one, questions))

    asyncio.run(main())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--latency", type=float, default=1.0, help="seconds of a call")
    parser.add_argument("--questions", type=int, default=512)
    parser.add_argument("--at-once", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    port: multiprocessing.Queue = multiprocessing.Queue()
    server = multiprocessing.Process(target=serve, args=(given.latency, port), daemon=True)
    server.start()
    url = f"http://127.0.0.1:{port.get()}/v1"
    questions = [Question(str(n), f"What is number {n}?", ["Paris"]) for n in range(given.questions)]
    ideal = given.latency * -(-given.questions // given.at_once)
    walls: dict[str, list[float]] = {"sleuth": [], "plain": []}
    cpus: dict[str, list[float]] = {"sleuth": [], "plain": []}
    for _ in range(given.repeats):
        for name, way in (("plain", plain), ("sleuth", sleuth)):
            wall, cpu = time.perf_counter(), time.process_time()
            way(url, questions, given.at_once)
            walls[name].append(time.perf_counter() - wall)
            cpus[name].append(time.process_time() - cpu)
    server.kill()
    print(f"{given.questions} questions, {given.at_once} at a time, {given.latency:g} s a call: {ideal:.2f} s at best")
    for name in walls:
        wall, cpu = statistics.median(walls[name]), statistics.median(cpus[name])
        print(
            f"{name:7s} {wall:6.2f} s ({wall / ideal - 1:+.1%} over the endpoint), "
            f"{1000 * cpu / given.questions:.2f} ms of CPU a question"
        )


if __name__ == "__main__":
    main()
