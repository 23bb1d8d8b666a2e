"""The nouns of Sleuth: what a rollout is made of, and the two things that it talks to.

One structure, the :class:`Trajectory` of typed :class:`Span` objects, is made once by the rollout and read by all else:
masks, grading, credit, metrics, viewer. Nothing decodes text to find out what the rollout already knew, and sampled
token ids are never tokenised again. This module imports nothing of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable


class SpanKind(StrEnum):
    """Who wrote a span. Only ``policy`` tokens are trained, parsed and graded."""

    PROMPT = "prompt"
    """The question, as the template shows it."""
    POLICY = "policy"
    """Sampled by the policy: one turn."""
    OBSERVATION = "observation"
    """What the environment answered, with the template around it (a prepended ``<think>``, an end-of-turn token)."""
    HINT = "hint"
    """A correction after an invalid action, or a forced opening of the last turn."""


class PartKind(StrEnum):
    """What a stretch of a policy span is."""

    THINK = "think"
    QUERY = "query"
    ANSWER = "answer"
    TAG = "tag"


class ActionType(StrEnum):
    """What the policy did in a turn."""

    SEARCH = "search"
    """A query to the retriever: ``Action.query``."""
    ANSWER = "answer"
    """The final answer: ``Action.text``."""
    TOOL = "tool"
    """A call of a user's own tool: ``Action.name`` and ``Action.arguments``."""
    INVALID = "invalid"
    """No complete or no usable action; ``Action.problem`` says why."""


class Problem(StrEnum):
    """Why an action is invalid."""

    NO_ACTION = "no_action"
    """The turn ended without any complete action."""
    EMPTY_QUERY = "empty_query"
    """A search for nothing or for white space."""
    MALFORMED_CALL = "malformed_call"
    """A tool call whose JSON or arguments can't be read."""
    UNKNOWN_TOOL = "unknown_tool"
    """A call of a tool that the protocol doesn't offer."""


class StopReason(StrEnum):
    """Why the sampling of one policy span stopped."""

    ACTION = "action"
    """The first complete action was closed."""
    END_OF_TURN = "end_of_turn"
    """The policy sampled an end-of-turn token, which belongs to the span."""
    LENGTH = "length"
    """The turn's or the episode's token limit was reached before anything else."""


class EndReason(StrEnum):
    """Why a rollout ended."""

    ANSWER = "answer"
    """The policy answered."""
    MAX_TURNS = "max_turns"
    """The last turn brought no answer."""
    MAX_SEARCHES = "max_searches"
    """The policy asked for one search more than it is allowed."""
    MAX_TURN_TOKENS = "max_turn_tokens"
    """A turn was cut by its own token limit."""
    MAX_TOKENS = "max_tokens"
    """The rollout's token limit left no room for another turn or for the observation."""
    RETRIEVER_FAILED = "retriever_failed"
    """The retriever gave an error instead of an answer."""
    ABORTED = "aborted"
    """Stopped from outside, or a tool raised."""


class Status(StrEnum):
    """The outcome of a rollout, as everyone who counts sees it."""

    ANSWERED = "answered"
    NO_ANSWER = "no_answer"
    """It ended by the turn or search limit without an answer."""
    TRUNCATED = "truncated"
    """A token limit cut it: not the same as wrong."""
    RETRIEVER_FAILED = "retriever_failed"
    """Leaves loss and score, and is counted."""
    ABORTED = "aborted"


STATUS_OF: dict[EndReason, Status] = {
    EndReason.ANSWER: Status.ANSWERED,
    EndReason.MAX_TURNS: Status.NO_ANSWER,
    EndReason.MAX_SEARCHES: Status.NO_ANSWER,
    EndReason.MAX_TURN_TOKENS: Status.TRUNCATED,
    EndReason.MAX_TOKENS: Status.TRUNCATED,
    EndReason.RETRIEVER_FAILED: Status.RETRIEVER_FAILED,
    EndReason.ABORTED: Status.ABORTED,
}

FAILED = frozenset({Status.RETRIEVER_FAILED, Status.ABORTED})
"""Rollouts with one of these say nothing of the policy: they leave loss, group statistics and score."""


@dataclass(slots=True)
class Question:
    """One row of a question set.

    Attributes:
        corpus: name of the part of the corpus that this row's searches stay inside, or None for the whole corpus
            (HopWorld reuses names across worlds).
        supporting_titles: titles of the passages that hold the evidence, where the data set has them.
        extra: every other column of the row (``hops``, ``type``, ``decomposition``, …), kept as it came.
    """

    id: str
    question: str
    golden_answers: list[str]
    data_source: str = ""
    corpus: str | None = None
    supporting_titles: list[str] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Document:
    """A passage as the retriever returns it. ``score`` is the retriever's own, higher is better."""

    id: str
    title: str
    text: str = ""
    score: float | None = None


@dataclass(slots=True)
class Action:
    """What a policy turn asks for; which of the fields are set depends on ``type``."""

    type: ActionType
    query: str | None = None
    text: str | None = None
    name: str | None = None
    arguments: dict[str, Any] | None = None
    problem: Problem | None = None


@dataclass(slots=True)
class Part:
    """Tokens ``start`` to ``end`` (exclusive) of a policy span are of one kind; uncovered tokens are free text."""

    kind: PartKind
    start: int
    end: int


@dataclass(slots=True)
class Span:
    """A stretch of a trajectory that one side wrote.

    Attributes:
        ids: token ids, exactly as sampled or as given to the model.
        text: their text, for people and viewers; nothing is computed from it.
        logprobs: (policy) natural-log probability of each id under the distribution it was sampled from.
        old_logprobs, new_logprobs, ref_logprobs, teacher_logprobs: (policy) as long as ``ids``; what replay needs.
        documents: (observation) the passages shown, best first.
        truncated: (observation) its body was cut to the observation limit.
    """

    kind: SpanKind
    ids: list[int]
    text: str = ""
    logprobs: list[float] | None = None
    action: Action | None = None
    stop: StopReason | None = None
    parts: list[Part] = field(default_factory=list)
    documents: list[Document] = field(default_factory=list)
    truncated: bool = False
    old_logprobs: list[float] | None = None
    new_logprobs: list[float] | None = None
    ref_logprobs: list[float] | None = None
    teacher_logprobs: list[float] | None = None


@dataclass(slots=True)
class Turn:
    """A policy span and what the environment put after it (None after the last one)."""

    index: int
    policy: Span
    observation: Span | None


@dataclass(slots=True)
class Trajectory:
    """One rollout.

    Attributes:
        id: unique in its file. ``group``: the rollouts of one row in one batch share it.
        step: the training step that it was sampled for, counted from 1; 0 outside training.
        update: which update of that step's batch trained on it, counted from 1; None where none did. Before update 1
            no weight has moved since the rollout.
        answer: text of the answer channel, stripped; None when the policy never answered.
        counts: events of the rollout by name: ``searches``, ``repeated_queries``, ``empty_results``,
            ``invalid_actions``, ``malformed_tags``, ``trailing_content``, ``truncated_observations``, …
        rewards: every component that the reward computed; ``reward`` is their weighted sum.
        error: what the retriever or a tool said when it failed. Never in any context.
    """

    id: str
    group: str
    question: str
    golden_answers: list[str]
    spans: list[Span] = field(default_factory=list)
    data_source: str = ""
    step: int = 0
    update: int | None = None
    answer: str | None = None
    status: Status = Status.ABORTED
    end: EndReason = EndReason.ABORTED
    format_valid: bool = False
    counts: dict[str, int] = field(default_factory=dict)
    reward: float | None = None
    rewards: dict[str, float] = field(default_factory=dict)
    error: str | None = None
    supporting_titles: list[str] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """True when the rollout says nothing of the policy and so leaves loss and score."""
        return self.status in FAILED

    @property
    def prompt_ids(self) -> list[int]:
        """Ids before the first policy token: the prompt span (and whatever the template prepends to turn one)."""
        return [i for span in self.spans[: self._first_policy] for i in span.ids]

    @property
    def completion_ids(self) -> list[int]:
        """All ids from the first policy span on, environment tokens included."""
        return [i for span in self.spans[self._first_policy :] for i in span.ids]

    @property
    def completion_mask(self) -> list[int]:
        """1 for policy tokens, 0 for everything else; as long as :attr:`completion_ids`. Decided by position alone."""
        return [int(span.kind is SpanKind.POLICY) for span in self.spans[self._first_policy :] for _ in span.ids]

    @property
    def answer_mask(self) -> list[bool]:
        """True for tokens of the answer channel (``answer`` parts); as long as :attr:`completion_ids`."""
        mask: list[bool] = []
        for span in self.spans[self._first_policy :]:
            start = len(mask)
            mask.extend([False] * len(span.ids))
            for part in span.parts:
                if part.kind is PartKind.ANSWER:
                    mask[start + part.start : start + part.end] = [True] * (part.end - part.start)
        return mask

    @property
    def completion_logprobs(self) -> list[float]:
        """The sampler's log-probs, 0.0 where the mask is 0; as long as :attr:`completion_ids`."""
        out: list[float] = []
        for span in self.spans[self._first_policy :]:
            if span.kind is SpanKind.POLICY and span.logprobs is not None:
                out.extend(span.logprobs)
            else:
                out.extend([0.0] * len(span.ids))
        return out

    @property
    def policy_spans(self) -> list[Span]:
        return [span for span in self.spans if span.kind is SpanKind.POLICY]

    @property
    def policy_tokens(self) -> int:
        """Number of sampled tokens."""
        return sum(len(span.ids) for span in self.policy_spans)

    @property
    def turns(self) -> list[Turn]:
        turns: list[Turn] = []
        for span in self.spans:
            if span.kind is SpanKind.POLICY:
                turns.append(Turn(len(turns), span, None))
            elif span.kind is SpanKind.OBSERVATION and turns and turns[-1].observation is None:
                turns[-1].observation = span
        return turns

    @property
    def queries(self) -> list[str]:
        """The queries that reached the retriever or would have, in order."""
        return [s.action.query for s in self.policy_spans if s.action and s.action.query is not None]

    @property
    def _first_policy(self) -> int:
        for i, span in enumerate(self.spans):
            if span.kind is SpanKind.POLICY:
                return i
        return len(self.spans)


@dataclass(slots=True)
class Group:
    """The rollouts of one row in one batch: what group-relative advantages compare."""

    id: str
    trajectories: list[Trajectory]

    def __iter__(self) -> Iterator[Trajectory]:
        return iter(self.trajectories)


def group_trajectories(trajectories: Iterable[Trajectory]) -> list[Group]:
    """Group by ``(step, group)``, in order of first appearance."""
    groups: dict[tuple[int, str], Group] = {}
    for t in trajectories:
        groups.setdefault((t.step, t.group), Group(t.group, [])).trajectories.append(t)
    return list(groups.values())


# ---------------------------------------------------------------------------------------------------------------------
# What a rollout talks to


@dataclass(slots=True)
class SearchRequest:
    """One query. ``corpus`` keeps it inside a named part of the corpus (see :class:`Question`)."""

    query: str
    corpus: str | None = None


@dataclass(slots=True)
class SearchResult:
    """Three outcomes that nobody may mix up: documents, nothing found (no documents, no error), failed (error)."""

    documents: list[Document] = field(default_factory=list)
    error: str | None = None

    @property
    def failed(self) -> bool:
        return self.error is not None


@runtime_checkable
class Retriever(Protocol):
    """Finds passages. Called with a whole batch; failures are results, never exceptions."""

    def search(self, requests: Sequence[SearchRequest], k: int) -> list[SearchResult]:
        """At most ``k`` distinct documents for each request, best first, in the order of the requests."""
        ...


Tool = Callable[..., str]
"""A user's own tool: keyword arguments in, text for the observation out."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are drawn. ``temperature`` 0 is greedy; ``top_k`` 0 and ``top_p`` 1 switch those off.

    Log-probs are always those of the full softmax at ``temperature`` (at 1 when greedy), which is what the trainer
    computes too.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0


@dataclass(slots=True)
class StopRule:
    """When a turn is over.

    A sampler calls ``complete`` with the ids sampled so far in this turn after a token of ``trigger_ids`` (any other
    token can't close an action), and stops when it returns True. ``strings`` are the closing tags as text, for engines
    that stop on strings; such an engine still has to ask ``complete``, since a closing tag inside a thought stops
    nothing. A sampled token of ``end_ids`` ends the turn and belongs to it.
    """

    complete: Callable[[Sequence[int]], bool]
    trigger_ids: frozenset[int]
    end_ids: frozenset[int]
    strings: tuple[str, ...] = ()


@dataclass(slots=True)
class SampleRequest:
    """One turn to sample.

    Attributes:
        key: names the conversation. A sampler may keep what it computed for a key (a KV cache) until ``release``.
        ids: the whole context. For a known key it extends the ids that the sampler has seen.
        max_new_tokens: at least 1.
        seed: the draw depends on it alone: same seed, same context, same weights, same tokens, in any batch.
    """

    key: Hashable
    ids: list[int]
    max_new_tokens: int
    stop: StopRule
    seed: int = 0


@dataclass(slots=True)
class Completion:
    """What was sampled: ids, as many log-probs, why it stopped."""

    ids: list[int]
    logprobs: list[float]
    stop: StopReason


@runtime_checkable
class Sampler(Protocol):
    """Produces tokens: ids in, ids and log-probs out. Never sees or makes text."""

    def sample(self, requests: Sequence[SampleRequest], params: SamplingParams) -> list[Completion]:
        """One completion a request, in order."""
        ...

    def release(self, keys: Iterable[Hashable]) -> None:
        """These conversations are over; unknown keys are ignored."""
        ...
