"""The answers of one system, appended as they come: what a kill can't take away."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from sleuth.data.benchmarks.sealed import CANARY, opened_row, sealed_row
from sleuth.errors import UserError
from sleuth.jsonl import read_jsonl, replace_surrogates, write_atomically, write_jsonl
from sleuth.rollouts import InvalidRollout, from_dict, to_dict
from sleuth.types import FAILED, Question, Trajectory

_SYNC_EVERY = 5.0
"""Seconds between two waits for the disk."""


class Journal:
    """A rollouts file that grows a line an answer. One process at a time may write to it, see the folder's lock.

    Attributes:
        path: of the file while it grows; :meth:`close` with ``whole`` compresses it to :attr:`packed`.
    """

    def __init__(self, folder: Path, system: str):
        self.path = folder / f"rollouts-{system}.jsonl"
        self.packed = folder / f"rollouts-{system}.jsonl.zst"
        self._file: IO[bytes] | None = None
        self._synced = 0.0

    def open(self, *, retry_failed: bool = True) -> set[str]:
        """Open for appending; returns the ids that are answered.

        A line that a kill cut off goes, and so do answers that failed, which are to be tried again.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.packed.exists() and not self.path.exists():
            write_jsonl(self.path, (row for _, row in read_jsonl(self.packed)))
        ids = self._compact(retry_failed) if self.path.exists() else set()
        self._file = self.path.open("ab")
        return ids

    def append(self, trajectories: Sequence[Trajectory]) -> None:
        """Write whole lines in one go, out of the process: a kill leaves them. A power cut costs the last few seconds,
        since waiting for the disk at every answer would hold up all others that are on their way."""
        if self._file is None:
            raise RuntimeError("the journal isn't open")
        lines = [replace_surrogates(json.dumps(_row_of(t), ensure_ascii=False)) + "\n" for t in trajectories]
        self._file.write("".join(lines).encode())
        self._file.flush()
        if time.monotonic() - self._synced > _SYNC_EVERY:
            self._sync()

    def close(self, *, whole: bool) -> None:
        """``whole``: nothing more will come, so that the file is compressed."""
        if whole:
            write_jsonl(self.packed, (row for _, row in read_jsonl(self.path)))
            self.path.unlink()
        if self._file is not None:
            self._sync()
            self._file.close()
            self._file = None

    def _sync(self) -> None:
        if self._file is not None:
            os.fsync(self._file.fileno())
            self._synced = time.monotonic()

    def trajectories(self) -> Iterator[Trajectory]:
        """All answers so far, in the order of their coming; nothing where none has begun.

        Raises:
            UserError: a line that is no rollout.
        """
        path = self.path if self.path.exists() else self.packed
        if not path.exists():
            return
        for line, row in read_jsonl(path, broken=lambda number, error: None):
            try:
                yield from_dict(_opened(row))
            except InvalidRollout as error:
                raise UserError(f"{path}, line {line}: {error}") from None

    def _compact(self, retry_failed: bool) -> set[str]:
        """Keep what counts; the ids of that."""
        ids: set[str] = set()
        failed = {status.value for status in FAILED}
        with self.path.open("rb") as lines, write_atomically(self.path) as out:
            for line in lines:
                row = _row(line)
                if row is None or row["id"] in ids or (retry_failed and row.get("status") in failed):
                    continue
                ids.add(row["id"])
                out.write(line)
        return ids


def _row_of(trajectory: Trajectory) -> dict[str, Any]:
    """The line of a trajectory. Of a sealed benchmark every text is encrypted, and token ids, which spell it, are left
    out."""
    canary = trajectory.extra.get(CANARY)
    if not canary:
        return to_dict(trajectory)
    bare = [replace(span, ids=[], logprobs=None, parts=[]) for span in trajectory.spans]
    row = to_dict(replace(trajectory, spans=bare))
    question = Question(trajectory.group, "", [], extra={CANARY: canary})
    return {**sealed_row(row, question, keep=("schema", "id", "group", "data_source", "status", "end")), CANARY: canary}


def _opened(row: dict[str, Any]) -> dict[str, Any]:
    canary = row.pop(CANARY, None)
    return opened_row(row, canary) if canary else row


def _row(line: bytes) -> dict | None:
    """The object of a whole line; None of one that was cut off."""
    if not line.endswith(b"\n"):
        return None
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) and "id" in row else None
