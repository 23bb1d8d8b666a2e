"""Drives many episodes at once, turn by turn: one call to the sampler and one to the retriever for all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sleuth.agent.episode import Episode, Need, NeedPassages, NeedTokens, NeedTool
from sleuth.errors import UserError
from sleuth.seeds import derive_seed
from sleuth.types import (
    Retriever,
    Sampler,
    SampleRequest,
    SamplingParams,
    SearchRequest,
    SearchResult,
    Tool,
    Trajectory,
)


def run_episodes(
    episodes: Sequence[Episode],
    sampler: Sampler,
    retriever: Retriever,
    params: SamplingParams,
    *,
    seeds: Sequence[int],
    tools: Mapping[str, Tool] | None = None,
    on_turn: Callable[[Episode], None] | None = None,
) -> list[Trajectory]:
    """Run every episode to its end.

    Args:
        seeds: one an episode. A turn's draw depends on the episode's seed and the turn's number alone, so the result
            doesn't depend on what else is in the batch.
        tools: by name; what isn't here is the protocol's own.
        on_turn: called with an episode after each span that it appended (for showing a rollout as it goes).

    Returns:
        The trajectories, in the order of ``episodes``. A failed retriever or tool is in them, not raised.

    Raises:
        UserError: the retriever's; the set-up is wrong then, which no rollout can help.
    """
    if len(seeds) != len(episodes):
        raise ValueError(f"{len(seeds)} seeds for {len(episodes)} episodes")
    told = on_turn or (lambda episode: None)
    try:
        while active := [i for i, e in enumerate(episodes) if not e.done]:
            _sample(episodes, active, sampler, params, seeds, told)
            _search(episodes, active, retriever, told)
            _call_tools(episodes, active, tools or {}, told)
    finally:
        sampler.release(range(len(episodes)))
    return [e.trajectory for e in episodes]


def _need(episode: Episode) -> Need:
    return episode.need


def _sample(
    episodes: Sequence[Episode],
    active: list[int],
    sampler: Sampler,
    params: SamplingParams,
    seeds: Sequence[int],
    told: Callable[[Episode], None],
) -> None:
    rows, requests = [], []
    for i in active:
        need = _need(episodes[i])
        if isinstance(need, NeedTokens):
            turn = len(episodes[i].trajectory.policy_spans)
            seed = derive_seed(seeds[i], turn)
            rows.append(i)
            requests.append(SampleRequest(i, need.ids, need.max_new_tokens, need.stop, seed))
    if requests:
        for i, completion in zip(rows, sampler.sample(requests, params), strict=True):
            episodes[i].sampled(completion)
            told(episodes[i])
        sampler.release(i for i in rows if episodes[i].done)


def _search(
    episodes: Sequence[Episode], active: list[int], retriever: Retriever, told: Callable[[Episode], None]
) -> None:
    by_k: dict[int, list[tuple[Episode, SearchRequest]]] = {}
    for i in active:
        if isinstance(need := _need(episodes[i]), NeedPassages):
            by_k.setdefault(need.k, []).append((episodes[i], need.request))
    for k, waiting in by_k.items():
        for (episode, _), result in zip(waiting, ask(retriever, [r for _, r in waiting], k), strict=True):
            episode.found(result)
            told(episode)


def ask(retriever: Retriever, requests: Sequence[SearchRequest], k: int) -> Sequence[SearchResult]:
    """The retriever's results; one that breaks its contract has failed for all of these requests."""
    try:
        results = retriever.search(requests, k)
        if len(results) == len(requests):
            return results
        error = f"the retriever gave {len(results)} results for {len(requests)} requests"
    except UserError:  # not the rollout's trouble: the run is set up wrongly
        raise
    except Exception as raised:
        error = f"{type(raised).__name__}: {raised}"
    return [SearchResult(error=error) for _ in requests]


def _call_tools(
    episodes: Sequence[Episode], active: list[int], tools: Mapping[str, Tool], told: Callable[[Episode], None]
) -> None:
    for i in active:
        need = _need(episodes[i])
        if isinstance(need, NeedTool):
            call_tool(episodes[i], need, tools)
            told(episodes[i])


def call_tool(episode: Episode, need: NeedTool, tools: Mapping[str, Tool]) -> None:
    """Give the episode what the tool says; a tool that raises aborts the rollout."""
    try:
        tool = tools[need.name] if need.name in tools else episode.protocol.tools[need.name]
        text = str(tool(**need.arguments))
    except Exception as error:
        episode.abort(f"tool {need.name}: {type(error).__name__}: {error}")
    else:
        episode.tool_returned(text)
