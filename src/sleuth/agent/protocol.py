"""What a way of talking must say: how a question is asked, how a turn is read, how the environment answers.

A protocol renders and reads; it knows nothing of limits, turns or retrievers. Those rules are the Episode's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sleuth.agent.codec import TokenCodec, valid_text
from sleuth.agent.scanner import ScannedTurn
from sleuth.errors import UserError
from sleuth.types import Action, Document, Part, Question, Span, StopRule, Tool


@dataclass(slots=True)
class Rendered:
    """Text of the environment in three pieces, so that a long body can be cut and the closing tag kept."""

    head: str
    body: str
    tail: str

    @property
    def text(self) -> str:
        return self.head + self.body + self.tail


@dataclass(slots=True)
class ParsedTurn:
    """A policy turn as the protocol understands it.

    Attributes:
        action: what the turn asks for; type INVALID when nothing usable was completed (problem NO_ACTION: nothing at
            all, so that a turn without an end is a truncated one).
        tokens: how many of the turn's tokens belong to it: those up to the one that completes the action.
        parts: of those tokens.
        valid: the turn's form is exactly what the prompt asks for.
        malformed: number of things that look like a tag and are none.
        trailing: the sampler went on behind the action with more than white space or an end-of-turn token.
    """

    action: Action
    tokens: int
    parts: list[Part] = field(default_factory=list)
    valid: bool = False
    malformed: int = 0
    trailing: bool = False


class AgentProtocol(ABC):
    """A way of talking between policy and environment.

    A user's own protocol is a subclass; a recipe names the class or a factory as ``module:function``, which is called
    with the codec, ``settings`` as keyword arguments and ``tools``.
    """

    def __init__(self, codec: TokenCodec, tools: Mapping[str, Tool] | None = None):
        self.codec = codec
        self.tools: dict[str, Tool] = dict(tools or {})

    @abstractmethod
    def prompt(self, question: Question) -> Span:
        """The prompt span."""

    @abstractmethod
    def opening(self, last: bool) -> tuple[str, str | None]:
        """What the environment writes at the start of a policy turn, and the name of the tag that it thereby opens.

        ``last``: an answer must be forced. ``("", None)`` when it writes nothing.
        """

    @abstractmethod
    def parse(self, ids: Sequence[int], opened: str | None) -> ParsedTurn:
        """Read the ids sampled in one turn, of which there may be more than belong to it.

        An id of ``codec.end_ids`` is the last one, if there is any.
        """

    def write_turn(self, thought: str, action: Action, last: bool = False) -> str:
        """What the policy would write behind :meth:`opening` for this thought and action, for demonstrations.

        Args:
            thought: left out where an answer is forced.
            action: a search or an answer; an answer where ``last`` is true.

        Raises:
            UserError: this protocol doesn't say how its turns are written.
        """
        raise UserError(f"{type(self).__name__} has no write_turn, so nothing can be demonstrated with it; write one")

    @abstractmethod
    def stop_rule(self, opened: str | None) -> StopRule:
        """When the sampler has to stop in a turn that starts inside ``opened``."""

    @abstractmethod
    def observation(self, documents: Sequence[Document], ended: bool) -> Rendered:
        """Passages for the policy; ``ended``: the policy's turn was closed by an end-of-turn token of its own."""

    @abstractmethod
    def tool_result(self, text: str, ended: bool) -> Rendered:
        """What a user's tool returned."""

    @abstractmethod
    def hint(self, action: Action, ended: bool) -> str:
        """What the policy is told after an invalid action."""


def completed_tokens(pieces: Sequence[bytes], scanned: ScannedTurn) -> int:
    """Number of tokens up to and including the one that completes the action; all of them when there is no action."""
    if scanned.action is None:
        return len(pieces)
    offset = 0
    for n, piece in enumerate(pieces, start=1):
        offset += len(piece)
        if offset >= scanned.end:
            return n
    return len(pieces)


def clean_text(content: bytes) -> str:
    """Bytes of an element as text: stripped, with what can't be text (broken UTF-8, NUL) as U+FFFD."""
    return valid_text(content.decode("utf-8", errors="replace")).strip()
