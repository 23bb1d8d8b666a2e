"""The two views of a student's rollout: behind the bare prompt, and behind the prompt that shows the reference.

The response is the same token ids in both, as they were sampled; only what stands before them differs. The teacher's
prompt is the protocol's own for a question that holds the reference, so that it fits whatever template the protocol
uses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sleuth.agent.protocol import AgentProtocol
from sleuth.training.search_e1.pairs import Pair
from sleuth.training.search_e1.settings import DistillSettings, ReferenceView
from sleuth.types import Action, ActionType, Question, SpanKind, Trajectory


@dataclass(frozen=True, slots=True)
class Views:
    """One pair, ready for two forwards.

    Attributes:
        student, teacher: prompt ids of each.
        response: the student's rollout behind them, observations included.
        kept: as long as ``response``: True for tokens that the policy sampled, the only ones with a loss.
        ids: of the student's rollout and of the reference, for a person.
    """

    student: list[int]
    teacher: list[int]
    response: list[int]
    kept: list[bool]
    ids: tuple[str, str]

    @property
    def tokens(self) -> int:
        """Tokens with a loss."""
        return sum(self.kept)


def views_of(
    pairs: Sequence[Pair], protocol: AgentProtocol, settings: DistillSettings, max_context: int | None
) -> tuple[list[Views], int]:
    """Both views of each pair whose longer one fits, and the number of those that don't: nothing is ever cut."""
    views = [view(pair, protocol, settings) for pair in pairs]
    fitting = [v for v in views if max_context is None or len(v.teacher) + len(v.response) <= max_context]
    return fitting, len(views) - len(fitting)


def view(pair: Pair, protocol: AgentProtocol, settings: DistillSettings) -> Views:
    """Both views of one pair."""
    spans = pair.student.spans
    first = next(i for i, span in enumerate(spans) if span.kind is SpanKind.POLICY)
    # What the environment wrote behind the prompt, an opened thought for instance, stands in both.
    opened = [i for span in spans[:first] if span.kind is not SpanKind.PROMPT for i in span.ids]
    prompt = protocol.prompt(teacher_question(pair, protocol, settings))
    return Views(
        student=pair.student.prompt_ids,
        teacher=[*prompt.ids, *opened],
        response=pair.student.completion_ids,
        kept=[bool(m) for m in pair.student.completion_mask],
        ids=(pair.student.id, pair.reference.id),
    )


def teacher_question(pair: Pair, protocol: AgentProtocol, settings: DistillSettings) -> Question:
    """The student's question with the reference in it."""
    shown = reference_text(pair.reference, protocol, settings.reference_view, settings.passage_tokens)
    asked = pair.student.question
    text = settings.teacher_question
    # In this order and not by str.format: what is filled in may hold braces of its own.
    before, _, after = text.partition("{reference}")
    filled = before.replace("{question}", asked) + shown + after.replace("{question}", asked)
    t = pair.student
    return Question(t.id, filled, t.golden_answers, t.data_source, extra=t.extra)


def reference_text(
    trajectory: Trajectory, protocol: AgentProtocol, view: ReferenceView = "full", passage_tokens: int | None = None
) -> str:
    """A rollout as text, from its ids, without the template's own marks.

    Args:
        passage_tokens: most tokens of each observation.
    """
    codec = protocol.codec
    marks = {i for i, token in codec.tokenizer.added_tokens_decoder.items() if token.special}
    pieces: list[str] = []
    for span in trajectory.spans:
        if span.kind is SpanKind.PROMPT:
            continue
        if span.kind is SpanKind.POLICY and view == "queries":
            pieces.append(_acted(span.action))
            continue
        if span.kind is not SpanKind.POLICY and (view == "queries" or (view == "no_passages" and span.documents)):
            continue
        ids = [i for i in span.ids if i not in marks]
        if span.kind is SpanKind.OBSERVATION and passage_tokens is not None:
            ids = codec.cut_ids(ids, passage_tokens)
        pieces.append(codec.decode(ids).strip())
    return "\n".join(piece for piece in pieces if piece)


def _acted(action: Action | None) -> str:
    if action is None:
        return ""
    if action.type is ActionType.ANSWER:
        return action.text or ""
    return action.query or ""
