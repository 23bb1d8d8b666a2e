"""Reads one policy turn: where are the thoughts, which action was completed first.

The one place that looks for tags in what the policy wrote. It works on bytes, since token boundaries are byte offsets.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from sleuth.types import Part, PartKind


@dataclass(slots=True)
class Stretch:
    """Bytes ``start`` to ``end`` (exclusive) are of one kind."""

    kind: PartKind
    start: int
    end: int


@dataclass(slots=True)
class ScannedTurn:
    """What a turn contains.

    Attributes:
        action: name of the tag whose element was completed first outside of any thought; None when there is none.
        content: the bytes inside that element.
        end: offset just behind the closing tag of the action; the length of the turn when there is none.
        stretches: thoughts, tags, query or answer content up to ``end``, in order, without overlap.
        malformed: number of things that look like a known tag and are none (wrong case, inner white space).
        stray: number of known tags where they mean nothing: a closing tag that closes nothing, an opening tag whose
            element was abandoned, a tag that belongs to the environment.
        free: True when something other than white space stands outside of any element before ``end``.
        thoughts: number of closed thoughts before the action.
        trailing: True when something other than white space (and the end-of-turn token) follows ``end``.
    """

    action: str | None
    content: bytes
    end: int
    stretches: list[Stretch] = field(default_factory=list)
    malformed: int = 0
    stray: int = 0
    free: bool = False
    thoughts: int = 0
    trailing: bool = False

    @property
    def clean(self) -> bool:
        """One complete action, closed thoughts, and nothing else but white space."""
        return self.action is not None and not (self.malformed or self.stray or self.free or self.trailing)


class TurnScanner:
    """Finds the first complete action of a turn.

    Args:
        think: name of the thought's tag, e.g. ``think``.
        actions: tag name → kind of its content (``query`` or ``answer``), e.g. ``{"search": QUERY, "answer": ANSWER}``.
        environment: names of tags that only the environment writes, e.g. ``information``.

    Rules: inside a thought everything but its closing tag is text; an action is an opening tag and its closing tag with
    no other known opening tag between them (a later opening tag abandons an earlier one); tag names match exactly. A
    turn is read on its own: what an earlier turn left open is over. An action that the environment opened can't be
    abandoned: every other tag in it is text.
    """

    def __init__(self, think: str, actions: dict[str, PartKind], environment: Sequence[str] = ()):
        self.think = think
        self.actions = dict(actions)
        names = [think, *actions, *environment]
        alternatives = "|".join(re.escape(n) for n in names)
        # Group 1, 2: a real tag. Otherwise: something that a reader would take for one.
        self._tag = re.compile(
            rf"<(/?)({alternatives})>|<\s*(?:/\s*)?(?:{alternatives})\s*(?:/\s*)?>".encode(), re.IGNORECASE
        )
        self._names = {n.encode(): n for n in names}
        self.closings = tuple(f"</{name}>" for name in actions)
        self._closings = tuple(closing.encode() for closing in self.closings)

    def scan(self, turn: bytes, opened: str | None = None, end_of_turn: int | None = None) -> ScannedTurn:
        """Read ``turn``; ``opened`` is the tag that the environment already opened for it (a prepended ``<think>``).

        ``end_of_turn``: offset of the end-of-turn token that the turn ends with, if any.
        """
        written = len(turn) if end_of_turn is None else end_of_turn
        result = ScannedTurn(None, b"", len(turn))
        forced = opened if opened in self.actions else None
        mode = opened
        content_start = 0
        for match in self._tag.finditer(turn):
            name = self._names.get(match.group(2)) if match.group(2) is not None else None
            closing = match.group(1) == b"/"
            if mode == self.think:
                if name == self.think and closing:
                    self._close(result, PartKind.THINK, content_start, match)
                    result.thoughts += 1
                    mode, content_start = None, match.end()
                continue
            if name is None:
                result.malformed += 1
                continue
            if mode is not None and closing and name == mode:
                result.action = name
                result.content = turn[content_start : match.start()]
                self._close(result, self.actions[name], content_start, match)
                result.end = match.end()
                break
            if closing or (name != self.think and name not in self.actions) or (forced and name != forced):
                result.stray += 1
                continue
            if mode is None:
                result.free |= bool(turn[content_start : match.start()].strip())
            else:
                result.stray += 1
            result.stretches.append(Stretch(PartKind.TAG, match.start(), match.end()))
            mode, content_start = name, match.end()
        if result.action is not None:
            result.trailing = bool(turn[result.end : written].strip())
        elif mode == self.think and content_start < written:
            result.stretches.append(Stretch(PartKind.THINK, content_start, written))
        elif mode is None:
            result.free |= bool(turn[content_start:written].strip())
        return result

    def completes(self, turn: bytes, opened: str | None = None) -> bool:
        """Whether ``turn`` holds a complete action: as :meth:`scan`, cheaper where no closing tag stands at all."""
        return any(closing in turn for closing in self._closings) and self.scan(turn, opened).action is not None

    def can_close(self, piece: bytes) -> bool:
        """Whether a token with these bytes can complete a closing tag of an action."""
        for stop in range(len(piece)):
            if piece[stop : stop + 1] == b">":
                before = piece[:stop]
                if any(c[:-1].endswith(before) or before.endswith(c[:-1]) for c in self._closings):
                    return True
        return False

    @staticmethod
    def _close(result: ScannedTurn, kind: PartKind, start: int, closing: re.Match[bytes]) -> None:
        if closing.start() > start:
            result.stretches.append(Stretch(kind, start, closing.start()))
        result.stretches.append(Stretch(PartKind.TAG, closing.start(), closing.end()))


def token_parts(pieces: Sequence[bytes], stretches: Sequence[Stretch]) -> list[Part]:
    """Stretches of bytes as parts of tokens: a token belongs to the stretch that holds its first byte.

    White space at the start of a token doesn't count, unless it is all there is: a token means the word behind it.

    Args:
        pieces: the bytes of each token of the turn.
        stretches: ordered, without overlap.
    """
    starts: list[int] = []
    offset = 0
    for piece in pieces:
        visible = piece.lstrip()
        starts.append(offset + (len(piece) - len(visible) if visible else 0))
        offset += len(piece)
    parts: list[Part] = []
    token = 0
    for stretch in stretches:
        while token < len(starts) and starts[token] < stretch.start:
            token += 1
        first = token
        while token < len(starts) and starts[token] < stretch.end:
            token += 1
        if token > first:
            parts.append(Part(stretch.kind, first, token))
    return parts
