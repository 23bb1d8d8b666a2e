"""From the sampled ids of one turn to its action, and when sampling has to stop: the same rule for both."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sleuth.agent.codec import TokenCodec
from sleuth.agent.protocol import ParsedTurn, completed_tokens
from sleuth.agent.scanner import ScannedTurn, TurnScanner, token_parts
from sleuth.types import Action, ActionType, StopRule


class TurnReader:
    """Reads turns of tagged elements.

    Args:
        to_action: what a scanned turn asks for.
        require_think: a well-formed turn has exactly one thought before its action; otherwise at most one.
    """

    def __init__(
        self,
        codec: TokenCodec,
        scanner: TurnScanner,
        to_action: Callable[[ScannedTurn], Action],
        require_think: bool,
    ):
        self._codec = codec
        self._scanner = scanner
        self._to_action = to_action
        self._require_think = require_think
        self._triggers = frozenset(i for i, piece in codec.ids_containing(b">").items() if scanner.can_close(piece))
        self._rules: dict[str | None, StopRule] = {}

    def read(self, ids: Sequence[int], opened: str | None) -> ParsedTurn:
        """See :meth:`sleuth.agent.protocol.AgentProtocol.parse`."""
        pieces = self._codec.pieces(ids)
        turn = b"".join(pieces)
        ended = bool(ids) and ids[-1] in self._codec.end_ids
        scanned = self._scanner.scan(turn, opened, len(turn) - len(pieces[-1]) if ended else None)
        tokens = completed_tokens(pieces, scanned)
        action = self._to_action(scanned)
        return ParsedTurn(
            action=action,
            tokens=tokens,
            parts=token_parts(pieces[:tokens], scanned.stretches),
            valid=scanned.clean and _says_something(action) and self._thought_well(scanned, opened),
            malformed=scanned.malformed,
            trailing=scanned.trailing,
        )

    def stop_rule(self, opened: str | None) -> StopRule:
        """See :meth:`sleuth.agent.protocol.AgentProtocol.stop_rule`."""
        if opened not in self._rules:

            def complete(ids: Sequence[int]) -> bool:
                return self._scanner.completes(b"".join(self._codec.pieces(ids)), opened)

            self._rules[opened] = StopRule(complete, self._triggers, self._codec.end_ids, self._scanner.closings)
        return self._rules[opened]

    def _thought_well(self, scanned: ScannedTurn, opened: str | None) -> bool:
        if self._require_think and opened not in self._scanner.actions:
            return scanned.thoughts == 1
        return scanned.thoughts <= 1


def _says_something(action: Action) -> bool:
    if action.type is ActionType.ANSWER:
        return bool(action.text)
    return action.type is not ActionType.INVALID
