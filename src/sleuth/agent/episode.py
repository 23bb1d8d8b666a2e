"""The rules of one rollout, as a state machine without I/O.

An episode says what it needs next (tokens, passages, a tool's result) and is told what came. Whatever drives it (a
batch, an event loop, a test) decides how to get that; the rules are here and nowhere else:

* a turn ends at its first end-of-turn token or at its token limit: whatever a sampler gives behind that never was;
* the first complete action of a turn wins; what was sampled behind it is cut, token by token, and counted;
* nothing inside a thought is an action; nothing that the environment wrote is ever parsed;
* an invalid action gets one hint, is counted, and uses up its turn;
* turns, tokens and searches are limited, each with a named reason (:class:`sleuth.types.EndReason`);
* on the last turn an answer may be forced: the environment opens the answer tag and no search is possible;
* the environment writes only where a sampled token still fits behind it, so no limit is ever exceeded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

from sleuth.agent.codec import valid_text
from sleuth.agent.protocol import AgentProtocol, ParsedTurn, Rendered
from sleuth.types import (
    STATUS_OF,
    Action,
    ActionType,
    Completion,
    Document,
    EndReason,
    Problem,
    Question,
    SearchRequest,
    SearchResult,
    Span,
    SpanKind,
    Status,
    StopReason,
    StopRule,
    Trajectory,
)


class Limits(BaseModel):
    """How long a rollout may be.

    Attributes:
        max_turns: policy turns, the answering one included.
        max_searches: searches (and tool calls) that are carried out; None: as many as turns allow.
        max_turn_tokens: sampled tokens in one turn.
        max_tokens: all tokens after the prompt, environment included.
        max_context: all tokens, prompt included (the model's context window); None: no such limit.
        max_observation_tokens: tokens of one observation; its body is cut, its closing tag kept.
        k: passages a search.
        force_answer: in the last turn, or when no search is left, the environment opens the answer tag.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_turns: int = Field(default=5, ge=1)
    max_searches: int | None = Field(default=None, ge=0)
    max_turn_tokens: int = Field(default=512, ge=1)
    max_tokens: int = Field(default=4096, ge=1)
    max_context: int | None = Field(default=None, ge=2)
    max_observation_tokens: int = Field(default=512, ge=1)
    k: int = Field(default=3, ge=1)
    force_answer: bool = False


@dataclass(slots=True)
class NeedTokens:
    """The episode waits for a completion of ``ids``."""

    ids: list[int]
    max_new_tokens: int
    stop: StopRule


@dataclass(slots=True)
class NeedPassages:
    """The episode waits for a :class:`SearchResult` with up to ``k`` documents."""

    request: SearchRequest
    k: int


@dataclass(slots=True)
class NeedTool:
    """The episode waits for the text that the tool ``name`` returns."""

    name: str
    arguments: dict


Need = NeedTokens | NeedPassages | NeedTool | None


class Episode:
    """One rollout in progress.

    Args:
        id, group, step: go into the trajectory as they are.

    Use: while ``need`` is not None, give it what it needs with :meth:`sampled`, :meth:`found` or :meth:`tool_returned`;
    then ``trajectory`` is complete. A call that doesn't match the need raises RuntimeError.
    """

    def __init__(
        self,
        question: Question,
        protocol: AgentProtocol,
        limits: Limits,
        *,
        id: str,
        group: str | None = None,
        step: int = 0,
    ):
        self.question = question
        self.protocol = protocol
        self.limits = limits
        self.trajectory = Trajectory(
            id=id,
            group=group if group is not None else question.id,
            question=question.question,
            golden_answers=list(question.golden_answers),
            data_source=question.data_source,
            step=step,
            supporting_titles=list(question.supporting_titles),
            extra=dict(question.extra),
        )
        self.need: Need = None
        self._ids: list[int] = []
        self._opened: str | None = None
        self._turns = 0
        self._searches = 0
        self._valid = True
        self._queries: Counter[str] = Counter()
        prompt = protocol.prompt(question)
        self._append(prompt)
        self._prompt_tokens = len(prompt.ids)
        self._next_turn(None)

    @property
    def done(self) -> bool:
        return self.need is None

    # What the driver tells the episode ------------------------------------------------------------------------------

    def sampled(self, completion: Completion) -> None:
        """The policy's turn. ``completion`` may hold more tokens than the turn: the surplus is cut.

        A turn that the sampler reports as ended may lack its end-of-turn token (some engines hide it).

        Raises:
            ValueError: the completion breaks the sampler's contract: not one log-prob an id, or stopped for an action
                that isn't there.
        """
        need = self._expect(NeedTokens)
        if len(completion.logprobs) != len(completion.ids):
            raise ValueError(f"the sampler gave {len(completion.logprobs)} log-probs for {len(completion.ids)} tokens")
        sampled = self._within(completion.ids, need.max_new_tokens)
        parsed = self.protocol.parse(sampled, self._opened)
        ids, logprobs = sampled[: parsed.tokens], list(completion.logprobs[: parsed.tokens])
        stop = self._why_stopped(parsed, ids, completion.stop, need.max_new_tokens)
        text = self.protocol.codec.decode(ids)
        self._append(Span(SpanKind.POLICY, ids, text, logprobs, parsed.action, stop, parsed.parts))
        self._turns += 1
        self._valid &= parsed.valid
        self._count("malformed_tags", parsed.malformed)
        self._count("trailing_content", int(parsed.trailing))
        if stop is StopReason.LENGTH:
            turn_limit = len(ids) >= self.limits.max_turn_tokens
            self._end(EndReason.MAX_TURN_TOKENS if turn_limit else EndReason.MAX_TOKENS)
        else:
            self._act(parsed.action)

    def found(self, result: SearchResult) -> None:
        """The retriever's result. A failure ends the rollout; its text never enters the context."""
        self._expect(NeedPassages)
        if result.failed:
            self.trajectory.error = result.error
            self._end(EndReason.RETRIEVER_FAILED)
            return
        documents = list(result.documents[: self.limits.k])
        self._count("empty_results", int(not documents))
        self._observe(self.protocol.observation(documents, self._ended()), documents)

    def tool_returned(self, text: str) -> None:
        """What the user's tool said."""
        self._expect(NeedTool)
        self._observe(self.protocol.tool_result(text, self._ended()), [])

    def abort(self, error: str) -> None:
        """Stop here; the rollout leaves loss and score."""
        self.trajectory.error = error
        self._end(EndReason.ABORTED)

    # The rules --------------------------------------------------------------------------------------------------------

    def _within(self, ids: Sequence[int], limit: int) -> list[int]:
        ends = self.protocol.codec.end_ids
        for n, i in enumerate(ids[:limit], start=1):
            if i in ends:
                return list(ids[:n])
        return list(ids[:limit])

    def _why_stopped(self, parsed: ParsedTurn, ids: list[int], said: StopReason, limit: int) -> StopReason:
        if parsed.action.problem is not Problem.NO_ACTION:
            return StopReason.ACTION
        if ids and ids[-1] in self.protocol.codec.end_ids:
            return StopReason.END_OF_TURN
        if len(ids) >= limit:
            return StopReason.LENGTH
        if said is StopReason.ACTION:
            raise ValueError(f"the sampler stopped for an action, but none is complete in {parsed.tokens} tokens")
        return said

    def _act(self, action: Action) -> None:
        if action.type is ActionType.ANSWER:
            self.trajectory.answer = action.text
            self._end(EndReason.ANSWER)
            return
        self._count("invalid_actions", int(action.type is ActionType.INVALID))
        if self._turns >= self.limits.max_turns:
            self._end(EndReason.MAX_TURNS)
        elif action.type is ActionType.INVALID:
            hint = self.protocol.hint(action, self._ended())
            self._next_turn(Span(SpanKind.HINT, self.protocol.codec.encode(hint), hint))
        elif self._searches_used_up():
            self._end(EndReason.MAX_SEARCHES)
        else:
            self._call(action)

    def _call(self, action: Action) -> None:
        self._searches += 1
        if action.type is ActionType.TOOL:
            self._count("tool_calls", 1)
            self.need = NeedTool(action.name or "", action.arguments or {})
            return
        query = action.query or ""
        self._count("searches", 1)
        self._count("repeated_queries", int(self._queries[query.casefold()] > 0))
        self._queries[query.casefold()] += 1
        self.need = NeedPassages(SearchRequest(query, self.question.corpus), self.limits.k)

    def _observe(self, rendered: Rendered, documents: list[Document]) -> None:
        codec = self.protocol.codec
        head, tail = codec.encode(rendered.head), codec.encode(rendered.tail)
        body, text = codec.encode_foreign(rendered.body), valid_text(rendered.text)
        room = self.limits.max_observation_tokens - len(head) - len(tail)
        truncated = len(body) > max(room, 0)
        if truncated:
            body = codec.cut_ids(body, room)
            text = rendered.head + codec.decode(body) + rendered.tail
        observation = Span(SpanKind.OBSERVATION, head + body + tail, text, documents=documents, truncated=truncated)
        self._count("truncated_observations", int(truncated))
        self._next_turn(observation)

    def _next_turn(self, answer: Span | None) -> None:
        """The environment's ``answer`` to the last turn and the opening of the next one, if a token fits behind them.

        Otherwise the rollout ends here: the turns so far stay and train, text that nobody reads would only cost.
        """
        forced = self.limits.force_answer and (self._turns == self.limits.max_turns - 1 or self._searches_used_up())
        text, opened = self.protocol.opening(forced)
        opening = self.protocol.codec.encode(text) if text else []
        said = (len(answer.ids) if answer else 0) + len(opening)
        room = min(self.limits.max_turn_tokens, self._tokens_left() - said)
        if room < 1:
            self._end(EndReason.MAX_TOKENS)
            return
        if answer is not None and text and not forced:  # a prepended <think> is part of what the environment says
            answer.ids = answer.ids + opening
            answer.text += text
            opening = []
        if answer is not None:
            self._append(answer)
        if opening:
            self._append(Span(SpanKind.HINT, opening, text))
        self._opened = opened
        self.need = NeedTokens(list(self._ids), room, self.protocol.stop_rule(opened))

    def _searches_used_up(self) -> bool:
        return self.limits.max_searches is not None and self._searches >= self.limits.max_searches

    def _tokens_left(self) -> int:
        left = self._prompt_tokens + self.limits.max_tokens - len(self._ids)
        return left if self.limits.max_context is None else min(left, self.limits.max_context - len(self._ids))

    def _ended(self) -> bool:
        return bool(self._ids) and self._ids[-1] in self.protocol.codec.end_ids

    def _append(self, span: Span) -> None:
        self.trajectory.spans.append(span)
        self._ids.extend(span.ids)

    def _end(self, reason: EndReason) -> None:
        t = self.trajectory
        t.end, t.status = reason, STATUS_OF[reason]
        t.format_valid = self._valid and t.status is Status.ANSWERED
        self.need = None

    def _count(self, name: str, amount: int) -> None:
        if amount:
            self.trajectory.counts[name] = self.trajectory.counts.get(name, 0) + amount

    def _expect(self, kind: type) -> NeedTokens:
        if not isinstance(self.need, kind):
            raise RuntimeError(f"the episode needs {self.need!r}, not {kind.__name__}")
        return self.need  # type: ignore[return-value]
