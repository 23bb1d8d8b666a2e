"""Many small searches as few large ones: what waits while the engine works goes into its next batch."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TypeVar

R = TypeVar("R")

Search = Callable[[Sequence[str], int], list[R]]
"""Queries and ``k`` in, one result a query out."""

_SHORT, _TURN = 0.0005, 0.002
"""Seconds: a call that takes no longer than the first is searched on the event loop, together with others up to the
second; handing it to a thread and back would take about as long."""


class QueueFull(Exception):
    """More queries wait than are allowed; try again later."""


@dataclass(slots=True)
class _Job(Generic[R]):
    queries: list[str]
    k: int
    future: asyncio.Future[list[R]] = field(repr=False)

    @property
    def characters(self) -> int:
        return sum(map(len, self.queries))


class Batcher(Generic[R]):
    """Runs searches in the order of their coming: short ones on the event loop, others in threads.

    An idle engine gets a query at once; no query waits for others to come. While ``threads`` batches are in work, new
    queries gather. A batch holds calls with the same ``k``, so that its results are those of the calls alone.

    A thread costs more than a search of a small index: the hand-over, and two sides that wait for one interpreter.
    Which calls are short is told from the seconds a character that the last ones took.

    Args:
        search: may be replaced at any time.
        threads: batches in work at the same time.
        largest: queries in a batch; one call with more is several, searched side by side.
        waiting: queries that may wait.
    """

    def __init__(self, search: Search[R], *, threads: int = 2, largest: int = 128, waiting: int = 4096) -> None:
        self.search = search
        self._threads, self._largest, self._most = threads, largest, waiting
        self._pool = ThreadPoolExecutor(threads, "search")
        self._jobs: deque[_Job[R]] = deque()
        self._working = 0
        self._called = False
        self._pace = math.inf
        self.waiting = 0
        self.batches = 0
        self.on_batch: Callable[[int], None] = lambda queries: None

    async def submit(self, queries: list[str], k: int) -> list[R]:
        """The result of each query.

        Raises:
            QueueFull: as it says. Whatever the search raises is raised here too.
        """
        if not queries:
            return []
        # Whoever comes to an empty queue is served, however many queries that are.
        if self.waiting and self.waiting + len(queries) > self._most:
            raise QueueFull
        loop = asyncio.get_running_loop()
        step = self._largest
        jobs = [_Job(queries[at : at + step], k, loop.create_future()) for at in range(0, len(queries), step)]
        self._jobs += jobs
        self.waiting += len(queries)
        if not self._called:
            self._called = True
            loop.call_soon(self._start)
        if len(jobs) == 1:
            return await jobs[0].future
        return [found for part in await asyncio.gather(*(job.future for job in jobs)) for found in part]

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _start(self) -> None:
        self._called = False
        loop = asyncio.get_running_loop()
        while self._jobs and self._working < self._threads:
            short = not self._working and self._pace * self._jobs[0].characters < _SHORT
            batch = self._next_batch(_TURN if short else math.inf)
            if not batch:
                continue
            queries = [query for job in batch for query in job.queries]
            self.batches += 1
            self.on_batch(len(queries))
            if short:
                self._give(batch, *self._timed(queries, batch[0].k))
                if self._jobs:  # requests that came meanwhile have their turn before the next batch
                    self._called = True
                    loop.call_soon(self._start)
                return
            self._working += 1
            work = loop.run_in_executor(self._pool, self._timed, queries, batch[0].k)
            work.add_done_callback(partial(self._finish, batch))

    def _timed(self, queries: list[str], k: int) -> tuple[list[R], Exception | None]:
        """Results or what the search raised; the pace is noted."""
        started = time.perf_counter()
        try:
            return self.search(queries, k), None
        except BaseException as error:  # a panic in Rust is no Exception, and those who wait must hear of it
            return [], error if isinstance(error, Exception) else RuntimeError(repr(error))
        finally:
            pace = (time.perf_counter() - started) / max(1, sum(map(len, queries)))
            # A mean of the last few: one search that was held up counts little, and cold caches are forgotten.
            self._pace = pace if self._pace == math.inf else 0.8 * self._pace + 0.2 * pace

    def _next_batch(self, seconds: float) -> list[_Job[R]]:
        """Calls from the front of the queue that may be searched together and, but for the first, in this time."""
        batch: list[_Job[R]] = []
        size = 0
        largest = self._largest
        if seconds == math.inf:  # what waits is shared among the threads that are free
            largest = min(largest, math.ceil(self.waiting / (self._threads - self._working)))
        while self._jobs:
            job = self._jobs[0]
            if seconds < math.inf:
                seconds -= self._pace * job.characters
            if batch and (job.k != batch[0].k or size + len(job.queries) > largest or seconds < 0):
                break
            self._jobs.popleft()
            self.waiting -= len(job.queries)
            if job.future.done():  # its client has gone
                continue
            batch.append(job)
            size += len(job.queries)
        return batch

    def _finish(self, batch: list[_Job[R]], done: asyncio.Future[tuple[list[R], Exception | None]]) -> None:
        self._working -= 1
        if done.cancelled():
            self._give(batch, [], asyncio.CancelledError())
        else:
            self._give(batch, *done.result())
        self._start()

    def _give(self, batch: list[_Job[R]], results: list[R], error: BaseException | None) -> None:
        start = 0
        for job in batch:
            end = start + len(job.queries)
            if not job.future.done():
                if error is not None:
                    job.future.set_exception(error)
                else:
                    job.future.set_result(results[start:end])
            start = end
