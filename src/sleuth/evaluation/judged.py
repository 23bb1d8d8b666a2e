"""A judge's verdicts on the answers of an evaluation, kept beside them: each answer is judged once by one judge.

judge-MODEL-HASH.jsonl      first what was asked of whom, then a line a verdict and a line of what each call used
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sleuth.errors import UserError
from sleuth.evaluation.folder import EvaluationFolder
from sleuth.evaluation.judge import Judge, ToJudge, Verdict, agreement
from sleuth.evaluation.score import Score
from sleuth.evaluation.sheet import Sheet
from sleuth.evaluation.table import shown
from sleuth.jsonl import read_jsonl, replace_surrogates
from sleuth.types import Status, Trajectory

SCHEMA = "sleuth.judge/1"
_CHUNK = 128
"""Answers asked about between two writes to the disk."""


@dataclass(slots=True)
class JudgeFile:
    """The verdicts of one judge on one evaluation.

    Attributes:
        asked: model, prompt, endpoint, sampling. ``used``: messages, tokens and, where prices were set, cost.
        verdicts: (system, answer's id, hash of what was judged) → verdict.
    """

    path: Path
    asked: dict[str, Any]
    used: dict[str, float] = field(default_factory=dict)
    verdicts: dict[tuple[str, str, str], Verdict] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: EvaluationFolder, judge: Judge, url: str) -> JudgeFile:
        """The file of this judge, with what is in it already.

        Raises:
            UserError: it is damaged.
        """
        asked = {**judge.settings(), "endpoint": url}
        digest = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:8]
        name = re.sub(r"[^\w.-]+", "-", Path(judge.model).name).strip("-.") or "model"
        path = folder.path / f"judge-{name}-{digest}.jsonl"
        return cls.read(path) if path.is_file() else cls(path, asked)

    @classmethod
    def read(cls, path: Path) -> JudgeFile:
        """What a file holds; a line that a kill cut off is left out.

        Raises:
            UserError: it is none of ours.
        """
        rows = [row for _, row in read_jsonl(path, broken=lambda number, error: None)]
        if not rows or rows[0].get("schema") != SCHEMA:
            raise UserError(f"{path}: no verdicts of a judge ({SCHEMA}); move it away")
        found = cls(path, {name: value for name, value in rows[0].items() if name != "schema"})
        for row in rows[1:]:
            if "used" in row:
                for name, number in row["used"].items():
                    found.used[name] = found.used.get(name, 0) + number
            elif "answer" in row:
                key = (row["system"], row["id"], row["answer"])
                found.verdicts[key] = Verdict(row["id"], row["correct"], row["said"], row["problem"])
        return found

    def append(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write whole lines to the disk; the first call writes what was asked, too."""
        head = [] if self.path.is_file() else [{"schema": SCHEMA, **self.asked}]
        lines = [replace_surrogates(json.dumps(row, ensure_ascii=False)) + "\n" for row in [*head, *rows]]
        cut_off = self.path.is_file() and not self.path.read_bytes().endswith(b"\n")
        with self.path.open("ab") as file:
            file.write((b"\n" if cut_off else b"") + "".join(lines).encode())
            file.flush()
            os.fsync(file.fileno())


def judge_answers(
    folder: EvaluationFolder,
    system: str,
    judge: Judge,
    file: JudgeFile,
    *,
    used: Callable[[], dict[str, float]],
    progress: Callable[[int], None],
) -> None:
    """Ask about every answer that has no verdict by this judge yet.

    Args:
        used: what the calls since it was last asked have used.
        progress: told how many more answers are through, those of earlier calls first.

    Raises:
        UserError: the endpoint refuses for good.
    """
    sealed = bool(folder.settings.get("sealed"))
    todo: list[tuple[str, ToJudge]] = []
    there = 0
    for trajectory in folder.journal(system).trajectories():
        if trajectory.failed:
            continue
        key = _key(trajectory)
        known = file.verdicts.get((system, trajectory.id, key))
        if known is not None and known.correct is not None:
            there += 1
        else:
            todo.append((key, _to_judge(trajectory)))
    progress(there)
    for start in range(0, len(todo), _CHUNK):
        chunk = todo[start : start + _CHUNK]
        rows: list[dict[str, Any]] = []
        for (key, _), verdict in zip(chunk, judge.judge([row for _, row in chunk]), strict=True):
            file.verdicts[system, verdict.id, key] = verdict
            said = "" if sealed else verdict.said  # it may quote the question
            row = {"system": system, "id": verdict.id, "answer": key, "correct": verdict.correct}
            rows.append({**row, "said": said, "problem": verdict.problem})
        spent = used()
        for name, number in spent.items():
            file.used[name] = file.used.get(name, 0) + number
        file.append([*rows, {"used": spent}])
        progress(len(chunk))


def judge_files(folder: EvaluationFolder) -> list[JudgeFile]:
    """Those of all judges that were asked about this evaluation."""
    return [JudgeFile.read(path) for path in sorted(folder.path.glob("judge-*.jsonl"))]


def judge_sheets(systems: Sequence[tuple[str, str, EvaluationFolder, Sequence[Score]]], grader: str) -> list[Sheet]:
    """A table for each judge: its score beside EM, and how often the two agree.

    Args:
        systems: label, name, folder and scores (by ``grader``) of each system.
    """
    by_judge: dict[str, tuple[JudgeFile, list[list[str]]]] = {}
    for label, name, folder, scores in systems:
        files = judge_files(folder)
        if not files:
            continue
        keys = {t.id: _key(t) for t in folder.journal(name).trajectories() if not t.failed}
        for file in files:
            rows = list(_rows(label, name, scores, keys, file))
            if rows:
                _, known = by_judge.setdefault(file.path.stem, (file, []))
                known.extend(rows)
    return [_sheet(file, rows, grader) for file, rows in by_judge.values()]


def _rows(
    label: str, system: str, scores: Sequence[Score], keys: Mapping[str, str], file: JudgeFile
) -> Iterator[list[str]]:
    sets: dict[str, list[tuple[float, Verdict]]] = {}
    for score in scores:
        verdict = file.verdicts.get((system, score.id, keys.get(score.id, "")))
        if score.em is not None and verdict is not None:
            sets.setdefault(score.data_source or "questions", []).append((score.em, verdict))
    for name, pairs in sets.items():
        both = agreement([em for em, _ in pairs], [verdict for _, verdict in pairs])
        judged = len(pairs) - both.no_verdict
        yield [
            label,
            name,
            f"{judged:,}",
            shown(both.accuracy),
            f"{(both.both + both.em_only) / judged:.3f}" if judged else "–",
            shown(both.share),
            "–" if both.kappa is None else f"{both.kappa:.2f}",
            str(both.judge_only),
            str(both.em_only),
            str(both.no_verdict),
        ]


def _sheet(file: JudgeFile, rows: Sequence[Sequence[str]], grader: str) -> Sheet:
    asked, used = file.asked, file.used
    cost = f", cost {used['cost']:.4f}" if "cost" in used else ""
    return Sheet(
        f"Judged by {asked['model']} at {asked['endpoint']}, greedy; prompt SHA-256 {asked['prompt_sha256'][:16]}…",
        ["", "set", "n", "judge", "EM", "agrees with EM", "kappa", "judge alone", "EM alone", "no verdict"],
        rows,
        left=2,
        notes=(
            f"EM by {grader}, of the same answers. Judge alone, EM alone: answers that only the one calls right. "
            "Unanswered questions are wrong without asking; answers without a verdict are in neither score.",
            f"Verdicts and prompt: {file.path.name}; {used.get('messages', 0):,.0f} messages, "
            f"{used.get('tokens_in', 0):,.0f} tokens read, {used.get('tokens_out', 0):,.0f} written{cost}.",
        ),
    )


def _to_judge(trajectory: Trajectory) -> ToJudge:
    said = trajectory.answer if trajectory.status is Status.ANSWERED else None
    return ToJudge(trajectory.id, trajectory.question, trajectory.golden_answers, said)


def _key(trajectory: Trajectory) -> str:
    """Tells what is judged: an answer that was got anew has to be judged anew."""
    row = _to_judge(trajectory)
    text = json.dumps([row.question, list(row.golden_answers), row.prediction])
    return hashlib.sha256(text.encode("utf-8", errors="replace")).hexdigest()[:16]
