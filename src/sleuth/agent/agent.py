"""A search agent put together: a way of talking, limits, a sampler, a retriever, tools."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sleuth.agent.batched import run_episodes
from sleuth.agent.episode import Episode, Limits
from sleuth.agent.protocol import AgentProtocol
from sleuth.types import Question, Retriever, Sampler, SamplingParams, Tool, Trajectory


@dataclass(slots=True)
class SearchAgent:
    """Answers questions; training, evaluation and ``sleuth ask`` all go through :meth:`answer`."""

    protocol: AgentProtocol
    limits: Limits
    sampler: Sampler
    retriever: Retriever
    tools: Mapping[str, Tool] = field(default_factory=dict)

    def answer(
        self,
        questions: Sequence[Question],
        params: SamplingParams,
        *,
        seeds: Sequence[int],
        ids: Sequence[str] | None = None,
        groups: Sequence[str] | None = None,
        step: int = 0,
        on_turn: Callable[[Episode], None] | None = None,
    ) -> list[Trajectory]:
        """One rollout a question, all in one batch.

        Args:
            seeds: one a question; a rollout depends on its question, its seed and the weights, not on the batch.
            ids, groups: of the trajectories; default: the question's id.
        """
        ids = ids if ids is not None else [q.id for q in questions]
        groups = groups if groups is not None else [q.id for q in questions]
        if hasattr(self.retriever, "at_step"):  # a simulated engine gets worse as training goes on
            self.retriever.at_step(step)
        episodes = [
            Episode(q, self.protocol, self.limits, id=i, group=g, step=step)
            for q, i, g in zip(questions, ids, groups, strict=True)
        ]
        return run_episodes(
            episodes, self.sampler, self.retriever, params, seeds=seeds, tools=self.tools, on_turn=on_turn
        )
