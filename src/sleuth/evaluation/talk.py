"""One question answered by a method, as a state machine without I/O: what it needs next, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sleuth.evaluation.methods.method import Budget, Find, Method, Write
from sleuth.samplers.writer import Written
from sleuth.seeds import derive_seed
from sleuth.types import (
    STATUS_OF,
    Action,
    ActionType,
    EndReason,
    Question,
    SearchRequest,
    SearchResult,
    Span,
    SpanKind,
    StopReason,
    Trajectory,
)


@dataclass(slots=True)
class Usage:
    """What an answer took.

    Attributes:
        calls: of the model, failed ones included. ``tokens_in``: of every call's whole context, as a price list counts
            them; None where an endpoint doesn't say. ``tokens_out``: written.
        seconds: from the question to its answer; of a batch, the question's share.
        queries: every query that reached the retriever.
    """

    calls: int = 0
    tokens_in: int | None = 0
    tokens_out: int | None = 0
    seconds: float = 0.0
    queries: list[str] = field(default_factory=list)

    def add(self, written: Written) -> None:
        self.calls += written.calls
        self.tokens_in = _plus(self.tokens_in, written.tokens_in)
        self.tokens_out = _plus(self.tokens_out, written.tokens_out)


class Talk:
    """Runs a method's generator: while ``need`` is not None, give it what it needs with :meth:`wrote` or :meth:`found`.

    The trajectory is a record for people and tables. Its policy spans hold ids where the writer is a local model; its
    prompt and observations are text alone, and nothing can be trained on it.

    Args:
        id, group: of the trajectory.
        seed: the draw of each message depends on it and the message's number.
    """

    def __init__(self, method: Method, question: Question, budget: Budget, *, id: str, group: str, seed: int):
        self.question, self.seed = question, seed
        self.usage = Usage()
        self.need: Write | Find | None = None
        self.trajectory = Trajectory(
            id=id,
            group=group,
            question=question.question,
            golden_answers=list(question.golden_answers),
            data_source=question.data_source,
            supporting_titles=list(question.supporting_titles),
            extra=dict(question.extra),
        )
        self._dialogue = method(question, budget)
        self._cut = False
        self._advance(None)

    @property
    def done(self) -> bool:
        return self.need is None

    @property
    def message_seed(self) -> int:
        return derive_seed(self.seed, len(self.trajectory.policy_spans))

    @property
    def search(self) -> SearchRequest:
        """The search that it waits for."""
        if not isinstance(self.need, Find):
            raise RuntimeError(f"the method needs {self.need!r}, not a search")
        return SearchRequest(self.need.query, self.question.corpus)

    def wrote(self, written: Written) -> None:
        """The model's message. A failed one ends the rollout."""
        if not isinstance(self.need, Write):
            raise RuntimeError(f"the method needs {self.need!r}, not a message")
        self.usage.add(written)
        self._record_context(self.need)
        if written.failed:
            self.fail(EndReason.ABORTED, written.error)
            return
        self._cut = written.cut
        stop = StopReason.LENGTH if written.cut else StopReason.END_OF_TURN
        logprobs = None if written.logprobs is None else list(written.logprobs)
        span = Span(SpanKind.POLICY, list(written.ids or ()), written.text, logprobs, stop=stop)
        self.trajectory.spans.append(span)
        self._advance(written)

    def found(self, result: SearchResult) -> None:
        """The retriever's result. A failed one ends the rollout; its text never reaches the model."""
        query = self.search.query
        self.usage.queries.append(query)
        counts = self.trajectory.counts
        counts["searches"] = counts.get("searches", 0) + 1
        if result.failed:
            self.fail(EndReason.RETRIEVER_FAILED, result.error)
            return
        if spans := self.trajectory.policy_spans:
            spans[-1].action = spans[-1].action or Action(ActionType.SEARCH, query=query)
        shown = "\n".join(f"{d.title}: {d.text}" for d in result.documents) or "Nothing was found."
        span = Span(SpanKind.OBSERVATION, [], f"\n[{query}]\n{shown}\n", documents=list(result.documents))
        self.trajectory.spans.append(span)
        self._advance(list(result.documents))

    def fail(self, reason: EndReason, error: str | None) -> None:
        """Stop here: it says nothing of the method, and can be tried again."""
        self.trajectory.error = error
        self._dialogue.close()
        self._end(reason)

    def _advance(self, reply: Any) -> None:
        try:
            self.need = self._dialogue.send(reply)
        except StopIteration as ended:
            answer: str | None = ended.value
            self.trajectory.answer = answer
            if answer is not None:
                self.trajectory.policy_spans[-1].action = Action(ActionType.ANSWER, text=answer)
                self._end(EndReason.ANSWER)
            else:
                self._end(EndReason.MAX_TURN_TOKENS if self._cut else EndReason.MAX_TURNS)

    def _record_context(self, need: Write) -> None:
        """What is new in this message's context; the passages in it stand in the observation before."""
        spans = self.trajectory.spans
        if not any(span.kind is SpanKind.PROMPT for span in spans):
            text = "\n".join(f"{m.role}: {m.content}" for m in need.messages)
            spans.insert(0, Span(SpanKind.PROMPT, [], text))

    def _end(self, reason: EndReason) -> None:
        t = self.trajectory
        t.end, t.status = reason, STATUS_OF[reason]
        t.format_valid = t.answer is not None
        self.need = None
        self._dialogue.close()


def _plus(total: int | None, more: int | None) -> int | None:
    return None if total is None or more is None else total + more
