"""Many small searches as few large ones: what waits while the engine works goes into its next batch."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

Search = Callable[[Sequence[Any], int], list[Any]]
"""Queries and ``k`` in, one result a query out."""


class QueueFull(Exception):
    """More queries wait than are allowed; try again later."""


@dataclass(slots=True)
class _Job:
    queries: list[Any]
    k: int
    future: asyncio.Future[list[Any]] = field(repr=False)


class Batcher:
    """Runs searches in threads, in the order of their coming.

    An idle engine gets a query at once; no query waits for others to come. While ``threads`` batches are in work, new
    queries gather. A batch holds calls with the same ``k``, so that its results are those of the calls alone.

    Args:
        search: runs in a thread; may be replaced at any time.
        threads: batches in work at the same time.
        largest: queries in a batch; one call with more is a batch of its own.
        waiting: queries that may wait.
    """

    def __init__(self, search: Search, *, threads: int = 2, largest: int = 128, waiting: int = 4096) -> None:
        self.search = search
        self._threads, self._largest, self._most = threads, largest, waiting
        self._pool = ThreadPoolExecutor(threads, "search")
        self._jobs: deque[_Job] = deque()
        self._working = 0
        self.waiting = 0
        self.batches = 0
        self.on_batch: Callable[[int], None] = lambda queries: None

    async def submit(self, queries: list[Any], k: int) -> list[Any]:
        """The result of each query.

        Raises:
            QueueFull: as it says. Whatever the search raises is raised here too.
        """
        if not queries:
            return []
        # Whoever comes to an empty queue is served, however many queries that are.
        if self.waiting and self.waiting + len(queries) > self._most:
            raise QueueFull
        job = _Job(queries, k, asyncio.get_running_loop().create_future())
        self._jobs.append(job)
        self.waiting += len(queries)
        self._start()
        return await job.future

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _start(self) -> None:
        loop = asyncio.get_running_loop()
        while self._jobs and self._working < self._threads:
            batch = self._next_batch()
            if not batch:
                continue
            self._working += 1
            queries = [query for job in batch for query in job.queries]
            self.batches += 1
            self.on_batch(len(queries))
            work = loop.run_in_executor(self._pool, self.search, queries, batch[0].k)
            work.add_done_callback(lambda done, batch=batch: self._finish(batch, done))  # type: ignore[misc]

    def _next_batch(self) -> list[_Job]:
        batch: list[_Job] = []
        size = 0
        while self._jobs:
            job = self._jobs[0]
            if batch and (job.k != batch[0].k or size + len(job.queries) > self._largest):
                break
            self._jobs.popleft()
            self.waiting -= len(job.queries)
            if job.future.done():  # its client has gone
                continue
            batch.append(job)
            size += len(job.queries)
        return batch

    def _finish(self, batch: list[_Job], done: asyncio.Future[list[Any]]) -> None:
        self._working -= 1
        error = asyncio.CancelledError() if done.cancelled() else done.exception()
        start = 0
        for job in batch:
            end = start + len(job.queries)
            if not job.future.done():
                if error is not None:
                    job.future.set_exception(error)
                else:
                    job.future.set_result(done.result()[start:end])
            start = end
        self._start()
