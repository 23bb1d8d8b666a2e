"""Drives one episode on an event loop, for engines that serve many rollouts at once, each at its own pace."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from sleuth.agent.batched import ask, call_tool
from sleuth.agent.episode import Episode, NeedPassages, NeedTokens
from sleuth.types import Completion, Retriever, SearchRequest, SearchResult, Tool, Trajectory

TurnSampler = Callable[[NeedTokens], Awaitable[Completion]]
"""Samples one turn: the ids of the context in, what the policy said out."""


class SamplingAborted(Exception):
    """The engine gave a turn up; the rollout is aborted and says nothing of the policy."""


class SharedRetriever:
    """One retriever for all episodes of an event loop: searches that come while others are under way go out together.

    Args:
        retriever: is called in threads.
        calls: of the retriever at the same time; 1 for one that is not safe to use from several threads.
    """

    def __init__(self, retriever: Retriever, calls: int = 1):
        self._retriever = retriever
        self._threads = ThreadPoolExecutor(calls, thread_name_prefix="retriever")
        self._free = calls
        self._waiting: list[tuple[SearchRequest, int, asyncio.Future[SearchResult]]] = []
        self._running: set[asyncio.Task] = set()

    async def search(self, request: SearchRequest, k: int) -> SearchResult:
        """The retriever's result for this request. A failure is a result.

        Raises:
            UserError: the retriever's; the set-up is wrong then.
        """
        result: asyncio.Future[SearchResult] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, k, result))
        self._start()
        return await result

    def _start(self) -> None:
        if self._free and self._waiting:
            self._free -= 1
            task = asyncio.get_running_loop().create_task(self._call())
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def _call(self) -> None:
        await asyncio.sleep(0)  # lets every rollout that is ready now ask first
        k = self._waiting[0][1] if self._waiting else 0
        batch = [waiting for waiting in self._waiting if waiting[1] == k]
        self._waiting = [waiting for waiting in self._waiting if waiting[1] != k]
        loop = asyncio.get_running_loop()
        try:
            if batch:
                requests = [request for request, _, _ in batch]
                found = await loop.run_in_executor(self._threads, ask, self._retriever, requests, k)
                for (_, _, result), answer in zip(batch, found, strict=True):
                    if not result.done():
                        result.set_result(answer)
        except Exception as error:
            for _, _, result in batch:
                if not result.done():
                    result.set_exception(error)
        finally:
            self._free += 1
            self._start()


async def run_episode(
    episode: Episode,
    sample: TurnSampler,
    retriever: SharedRetriever,
    tools: Mapping[str, Tool] | None = None,
) -> Trajectory:
    """Run the episode to its end; a failed retriever or tool and an aborted turn are in the trajectory, not raised.

    Args:
        sample: may give more tokens than the turn, as any sampler; raises :class:`SamplingAborted`.
        tools: by name; what isn't here is the protocol's own.

    Raises:
        UserError: the retriever's.
    """
    while (need := episode.need) is not None:
        if isinstance(need, NeedTokens):
            try:
                episode.sampled(await sample(need))
            except SamplingAborted as aborted:
                episode.abort(str(aborted))
        elif isinstance(need, NeedPassages):
            episode.found(await retriever.search(need.request, need.k))
        else:
            await asyncio.to_thread(call_tool, episode, need, tools or {})
    return episode.trajectory
