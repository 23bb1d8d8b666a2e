"""What is evaluated: a method on a model, driven in the way that suits the model.

A local model answers whole batches in lock step; an endpoint answers many questions at a time, each at its own pace.
Either way a question's outcome depends on its own seed and nothing else of the batch.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from sleuth.agent.agent import SearchAgent
from sleuth.errors import UserError
from sleuth.evaluation.methods.method import Budget, Find, Method, Write
from sleuth.evaluation.talk import Talk, Usage
from sleuth.samplers.openai_compatible import first_error
from sleuth.samplers.writer import AsyncWriter, Writer, WriteRequest
from sleuth.types import (
    Question,
    Retriever,
    SamplingParams,
    SearchRequest,
    SearchResult,
    SpanKind,
    Trajectory,
)

USAGE = "usage"
"""Where a trajectory's ``extra`` holds its :class:`~sleuth.evaluation.talk.Usage`, as plain numbers."""


@dataclass(frozen=True, slots=True)
class Task:
    """One answer to get. ``id``: of the trajectory, unique; ``seed``: its draws depend on it alone."""

    question: Question
    id: str
    seed: int


Done = Callable[[list[Trajectory]], None]
"""Told of trajectories as they are finished."""


class System(Protocol):
    """Something that answers questions."""

    def run(self, tasks: Sequence[Task], params: SamplingParams, done: Done) -> None:
        """Answer every task. ``done`` is told of each once, in any order; outcomes that failed are outcomes too.

        Raises:
            UserError: the set-up is wrong, which no question can help.
        """
        ...


class AgentSystem:
    """The policy in the protocol that it was trained in, on a local sampler."""

    def __init__(self, agent: SearchAgent, batch: int):
        self._agent, self._batch = agent, batch

    def run(self, tasks: Sequence[Task], params: SamplingParams, done: Done) -> None:
        for rows in _batches(tasks, self._batch):
            start = time.monotonic()
            trajectories = self._agent.answer(
                [t.question for t in rows],
                params,
                seeds=[t.seed for t in rows],
                ids=[t.id for t in rows],
                groups=[t.question.id for t in rows],
            )
            seconds = (time.monotonic() - start) / len(rows)
            for trajectory in trajectories:
                _note(trajectory, _usage_of(trajectory, seconds))
            done(trajectories)


class LocalMethod:
    """A method on a local model: all questions of a batch take a step together."""

    def __init__(self, method: Method, budget: Budget, writer: Writer, retriever: Retriever, batch: int):
        self._method, self._budget, self._writer, self._retriever = method, budget, writer, retriever
        self._batch = batch

    def run(self, tasks: Sequence[Task], params: SamplingParams, done: Done) -> None:
        for rows in _batches(tasks, self._batch):
            start = time.monotonic()
            talks = [_talk(self._method, self._budget, task) for task in rows]
            while any(not talk.done for talk in talks):
                self._write([talk for talk in talks if isinstance(talk.need, Write)], params)
                self._find([talk for talk in talks if isinstance(talk.need, Find)])
            for talk in talks:
                talk.usage.seconds = (time.monotonic() - start) / len(rows)
            done([_finished(talk) for talk in talks])

    def _write(self, talks: Sequence[Talk], params: SamplingParams) -> None:
        if not talks:
            return
        requests = [_request(talk) for talk in talks]
        for talk, written in zip(talks, self._writer.write(requests, params), strict=True):
            talk.wrote(written)

    def _find(self, talks: Sequence[Talk]) -> None:
        if not talks:
            return
        results = _search(self._retriever, [talk.search for talk in talks], self._budget.k)
        for talk, result in zip(talks, results, strict=True):
            talk.found(result)


class EndpointMethod:
    """A method on an endpoint: as many questions at a time as the endpoint may be asked, none waits for another."""

    def __init__(self, method: Method, budget: Budget, writer: AsyncWriter, retriever: Retriever, at_once: int):
        self._method, self._budget, self._writer, self._retriever = method, budget, writer, retriever
        self._at_once = at_once

    def run(self, tasks: Sequence[Task], params: SamplingParams, done: Done) -> None:
        try:
            asyncio.run(self._run(deque(tasks), params, done))
        except BaseExceptionGroup as errors:
            raise first_error(errors) from None

    async def _run(self, waiting: deque[Task], params: SamplingParams, done: Done) -> None:
        searches = _Searches(self._retriever, self._budget.k)

        async def work() -> None:
            while waiting:
                talk = _talk(self._method, self._budget, waiting.popleft())
                await self._answer(talk, params, searches)
                done([_finished(talk)])

        async with self._writer, asyncio.TaskGroup() as group:
            for _ in range(min(self._at_once, len(waiting))):
                group.create_task(work())

    async def _answer(self, talk: Talk, params: SamplingParams, searches: _Searches) -> None:
        start = time.monotonic()
        while not talk.done:
            if isinstance(talk.need, Find):
                talk.found(await searches.find(talk.search))
            else:
                talk.wrote(await self._writer.awrite(_request(talk), params))
        talk.usage.seconds = time.monotonic() - start


class _Searches:
    """One search of the retriever at a time, since one in process need not be safe for several threads.

    What is asked for while it works goes together into the next.
    """

    def __init__(self, retriever: Retriever, k: int):
        self._retriever, self._k = retriever, k
        self._waiting: list[tuple[SearchRequest, asyncio.Future[SearchResult]]] = []
        self._working: asyncio.Task[None] | None = None

    async def find(self, request: SearchRequest) -> SearchResult:
        found: asyncio.Future[SearchResult] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, found))
        if self._working is None or self._working.done():
            self._working = asyncio.create_task(self._work())
        return await found

    async def _work(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            try:
                results = await asyncio.to_thread(_search, self._retriever, [r for r, _ in batch], self._k)
            except UserError as error:
                for _, found in batch:
                    if not found.done():
                        found.set_exception(error)
                continue
            for (_, found), result in zip(batch, results, strict=True):
                if not found.done():
                    found.set_result(result)


def usage_of(trajectory: Trajectory) -> dict[str, Any]:
    """The usage that a system noted; empty for a trajectory of something else."""
    usage = trajectory.extra.get(USAGE)
    return usage if isinstance(usage, dict) else {}


def _talk(method: Method, budget: Budget, task: Task) -> Talk:
    return Talk(method, task.question, budget, id=task.id, group=task.question.id, seed=task.seed)


def _request(talk: Talk) -> WriteRequest:
    need = talk.need
    if not isinstance(need, Write):
        raise RuntimeError(f"the method needs {need!r}, not a message")
    return WriteRequest(need.messages, need.max_tokens, need.stop, talk.message_seed)


def _search(retriever: Retriever, requests: Sequence[SearchRequest], k: int) -> list[SearchResult]:
    """The retriever's results, at most ``k`` documents each; one that breaks its contract has failed for all."""
    try:
        results = list(retriever.search(requests, k))
        if len(results) == len(requests):
            return [SearchResult(r.documents[:k], r.error) for r in results]
        error = f"the retriever gave {len(results)} results for {len(requests)} requests"
    except UserError:
        raise
    except Exception as raised:
        error = f"{type(raised).__name__}: {raised}"
    return [SearchResult(error=error) for _ in requests]


def _finished(talk: Talk) -> Trajectory:
    _note(talk.trajectory, talk.usage)
    return talk.trajectory


def _note(trajectory: Trajectory, usage: Usage) -> None:
    trajectory.extra[USAGE] = asdict(usage)


def _usage_of(trajectory: Trajectory, seconds: float) -> Usage:
    """Of a rollout of token ids: each turn reads the whole context before it."""
    read = context = 0
    for span in trajectory.spans:
        if span.kind is SpanKind.POLICY:
            read += context
        context += len(span.ids)
    queries = trajectory.queries[: trajectory.counts.get("searches", 0)]
    return Usage(len(trajectory.policy_spans), read, trajectory.policy_tokens, seconds, queries)


def _batches(tasks: Sequence[Task], size: int) -> Iterator[Sequence[Task]]:
    if size < 1:
        raise ValueError(f"batch={size} must be at least 1")
    for start in range(0, len(tasks), size):
        yield tasks[start : start + size]
