"""Written turns as a trajectory: played through the real episode."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sleuth.agent.episode import Episode, Limits, NeedPassages, NeedTokens
from sleuth.agent.protocol import AgentProtocol
from sleuth.types import Completion, Document, Question, SearchResult, StopReason, Trajectory


def play(
    question: Question,
    turns: Sequence[str],
    documents: Iterable[Sequence[Document]],
    protocol: AgentProtocol,
    limits: Limits,
    *,
    id: str | None = None,
) -> Trajectory:
    """Written policy turns and what each search returned, as the trajectory that a rollout would have made of them.

    What the environment opens itself (a prepended thought) is taken off the front of a turn. Log-probs are 0: nothing
    was sampled.
    """
    episode = Episode(question, protocol, limits, id=id or question.id)
    results = iter(documents)
    for turn in turns:
        if not isinstance(episode.need, NeedTokens):
            break
        context = episode.trajectory.spans[-1].text
        for opening in {protocol.opening(False)[0], protocol.opening(True)[0]} - {""}:
            if context.endswith(opening):
                turn = turn.removeprefix(opening)
        ids = protocol.codec.encode(turn)
        episode.sampled(Completion(ids, [0.0] * len(ids), StopReason.ACTION))
        if isinstance(episode.need, NeedPassages):
            episode.found(SearchResult(list(next(results))))
    if not episode.done:
        episode.abort("the demonstration ends before the rollout does")
    return episode.trajectory
