"""What a batch has sampled in this turn, and who is done."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sleuth.types import Completion, SampleRequest, StopReason, StopRule

_TRIGGER, _END = 1, 2


class Turn:
    """Ids and log-probs of one turn, row by row, with the stop rules applied token by token.

    A step costs a few array operations for the whole batch; a rule's ``complete`` is called only where a trigger fell.

    Args:
        requests: one a row.
        vocabulary: number of token ids.
    """

    def __init__(self, requests: Sequence[SampleRequest], vocabulary: int):
        self.requests = requests
        self.step = 0
        self._limits = np.array([r.max_new_tokens for r in requests])
        self._ids = np.empty((len(requests), int(self._limits.max())), dtype=np.int64)
        self._logprobs = np.empty(self._ids.shape)
        self._codes, self._rule_of = _stop_codes([r.stop for r in requests], vocabulary)

    def add(self, rows: np.ndarray, tokens: np.ndarray, logprobs: np.ndarray) -> dict[int, Completion]:
        """Record one token for each of ``rows``; return the completions of those that stop with it.

        A row that has stopped is not to be given again.
        """
        self._ids[rows, self.step] = tokens
        self._logprobs[rows, self.step] = logprobs
        self.step += 1
        codes = self._codes[self._rule_of[rows], tokens]
        stopped: dict[int, Completion] = {}
        for n in np.flatnonzero((codes > 0) | (self._limits[rows] == self.step)):
            row = int(rows[n])
            if (reason := self._reason(row, int(codes[n]))) is not None:
                stopped[row] = Completion(
                    self._ids[row, : self.step].tolist(), self._logprobs[row, : self.step].tolist(), reason
                )
        return stopped

    def _reason(self, row: int, code: int) -> StopReason | None:
        if code == _END:
            return StopReason.END_OF_TURN
        if code == _TRIGGER and self.requests[row].stop.complete(self._ids[row, : self.step].tolist()):
            return StopReason.ACTION
        return StopReason.LENGTH if self.step == self._limits[row] else None


def _stop_codes(rules: Sequence[StopRule], vocabulary: int) -> tuple[np.ndarray, np.ndarray]:
    """A table (distinct rules, vocabulary) of what a token means to a rule, and the line of it for each rule given."""
    lines: dict[tuple[frozenset[int], frozenset[int]], int] = {}
    rule_of = np.array([lines.setdefault((r.trigger_ids, r.end_ids), len(lines)) for r in rules])
    codes = np.zeros((len(lines), vocabulary), dtype=np.uint8)
    for (triggers, ends), line in lines.items():
        for ids, code in ((triggers, _TRIGGER), (ends, _END)):
            codes[line, [i for i in ids if 0 <= i < vocabulary]] = code
    return codes, rule_of
