"""The folder of an evaluation: what was asked for, the answers so far, and who writes to it.

evaluation.json                 every setting that a figure depends on
rollouts-SYSTEM.jsonl[.zst]     the answers as they came, see :mod:`sleuth.evaluation.journal`
scores-SYSTEM.jsonl             a line an answer: what was asked, searched and answered, and its scores
retrieval.jsonl                 recall@k of each question
summary.json, table.md, …       made of these, and made anew by `sleuth eval FOLDER --table`
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sleuth.errors import UserError
from sleuth.evaluation.journal import Journal
from sleuth.evaluation.score import Score, score_one, score_row
from sleuth.jsonl import read_jsonl, write_atomically, write_jsonl
from sleuth.rewards.search_r1_compat import evaluation_grader
from sleuth.types import Question

SETTINGS = "evaluation.json"
SCHEMA = "sleuth.evaluation/1"
_RETRIEVAL = "retrieval.jsonl"
_GROWS = ("systems", "prices", "notes")
"""What a later call may add to or change; everything else must stay."""


@dataclass(frozen=True, slots=True)
class EvaluationFolder:
    """See the module."""

    path: Path

    @classmethod
    def find(cls, path: Path) -> EvaluationFolder:
        """The folder that ``path`` is.

        Raises:
            UserError: it is none.
        """
        if not (path / SETTINGS).is_file():
            raise UserError(f"{path}: no evaluation is in it ({SETTINGS}); name the folder that `sleuth eval` wrote")
        return cls(path)

    @property
    def settings(self) -> dict[str, Any]:
        try:
            read = json.loads((self.path / SETTINGS).read_text(encoding="utf-8"))
        except ValueError:
            raise UserError(f"{self.path / SETTINGS}: not JSON; take it away, or name another folder") from None
        if not isinstance(read, dict) or read.get("schema") != SCHEMA:
            raise UserError(f"{self.path / SETTINGS}: not of this version ({SCHEMA}); name another folder")
        return read

    @property
    def systems(self) -> list[str]:
        """Names, in the order that they were asked for."""
        return list(self.settings["systems"])

    @property
    def begun(self) -> bool:
        """Whether there are settings here that a call must keep to."""
        return (self.path / SETTINGS).is_file()

    def check(self, settings: Mapping[str, Any], *, partly: bool = False) -> None:
        """Make sure that ``settings`` are those that the folder was begun with; systems may join.

        Args:
            partly: not all settings are known yet; those that are missing, at any depth, aren't compared.

        Raises:
            UserError: names every setting that is another.
        """
        found = list(_differences(self.settings, settings, partly))
        if found:
            named = "; ".join(f"{key} was {_short(old)}, now it is {_short(new)}" for key, old, new in found)
            again = " (another grader alone: sleuth eval FOLDER --table --grader NAME)" if "grader was" in named else ""
            raise UserError(
                f"{self.path} was begun with other settings: {named}; set them as before to go on, or name another "
                f"folder with -o{again}"
            )

    def begin(self, settings: Mapping[str, Any]) -> None:
        """Write the settings, or make sure that they are those of before; systems may join.

        Raises:
            UserError: names every setting that is another.
        """
        if self.begun:
            self.check(settings)
            settings = {**settings, "systems": {**self.settings["systems"], **settings["systems"]}}
        with write_atomically(self.path / SETTINGS) as out:
            out.write((json.dumps(settings, indent=2, ensure_ascii=False) + "\n").encode())

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes from writing here.

        Raises:
            UserError: one does.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / "evaluation.lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UserError(
                    f"{self.path}: another evaluation writes to it; wait for it, or name another folder with -o"
                ) from None
            yield

    def journal(self, system: str) -> Journal:
        return Journal(self.path, system)

    def write_recall(self, recall: Mapping[str, float | None]) -> None:
        write_jsonl(self.path / _RETRIEVAL, ({"id": id, "recall": value} for id, value in recall.items()))

    def recall(self) -> dict[str, float | None] | None:
        """recall@k by question; None where it wasn't measured."""
        file = self.path / _RETRIEVAL
        return {row["id"]: row["recall"] for _, row in read_jsonl(file)} if file.is_file() else None

    def scores(self, system: str, grader: str | None = None) -> list[Score]:
        """Of the answers so far, in the order of their ids; ``grader``: default the folder's own."""
        name = grader or self.settings["grader"]
        return self.scores_by(system, [name])[name]

    def scores_by(self, system: str, graders: Sequence[str]) -> dict[str, list[Score]]:
        """:meth:`scores` by each of several graders, in one reading of the answers.

        Raises:
            UserError: no grader has that name.
        """
        known = {name: evaluation_grader(name) for name in graders}
        recall = self.recall() or {}
        found: dict[str, list[Score]] = {name: [] for name in known}
        for trajectory in self.journal(system).trajectories():
            for name, one in known.items():
                score = score_one(trajectory, one)
                found[name].append(replace(score, recall=recall.get(score.question)))
        return {name: sorted(scores, key=lambda s: s.id) for name, scores in found.items()}

    def write_scores(self, system: str) -> None:
        """The scores file, anew from the answers, by the folder's own grader."""
        grader = evaluation_grader(self.settings["grader"])
        recall = self.recall() or {}

        def rows() -> Iterator[dict[str, Any]]:
            for trajectory in self.journal(system).trajectories():
                one = score_one(trajectory, grader)
                yield score_row(trajectory, replace(one, recall=recall.get(one.question)))

        write_jsonl(self.path / f"scores-{system}.jsonl", rows())

    def expected(self) -> dict[str, int]:
        """Questions of each data source that are to be answered."""
        return dict(self.settings["sets"])


def question_settings(questions: Sequence[Question]) -> dict[str, Any]:
    """How many questions of each source, and a hash of them all that their order doesn't change."""
    rows = sorted(
        json.dumps([q.id, q.data_source, q.question, q.golden_answers, q.corpus], ensure_ascii=False) for q in questions
    )
    digest = hashlib.sha256("\n".join(rows).encode("utf-8", errors="replace")).hexdigest()
    sets = Counter(q.data_source or "questions" for q in questions)
    return {"sets": dict(sorted(sets.items())), "questions": digest}


def _differences(before: Mapping[str, Any], now: Mapping[str, Any], partly: bool) -> Iterator[tuple[str, Any, Any]]:
    """(dotted name, old, new) of every setting that is another; of systems only those that both have."""
    for key in now if partly else dict.fromkeys([*now, *before]):
        if key not in _GROWS:
            yield from _compared(key, before.get(key), now.get(key), partly)
    for name, new in now.get("systems", {}).items():
        if name in before.get("systems", {}):
            yield from _compared(name, before["systems"][name], new, partly)


def _compared(name: str, old: Any, new: Any, partly: bool) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in new if partly else dict.fromkeys([*new, *old]):
            yield from _compared(f"{name}.{key}", old.get(key), new.get(key), partly)
    elif old != new:
        yield name, old, new


def _short(value: Any) -> str:
    if isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value):
        return f"SHA-256 {value[:12]}…"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:59]}…"
