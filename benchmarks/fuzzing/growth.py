"""How the time of parsers and graders grows when a piece is repeated: twice as long may take twice as long.

Each function is given ``head + piece * n + tail`` with n = 2,000 and n = 8,000, for every piece alone and in pairs.
An exponent of 1 is linear; above 1.5 it is a finding.
"""

from __future__ import annotations

import itertools
import math
import re
import time
from collections.abc import Callable, Iterator, Sequence

from benchmarks.fuzzing.texts import ANSWERS, TAGS

from sleuth.agent.scanner import TurnScanner
from sleuth.evaluation.judge import read_verdict
from sleuth.evaluation.methods.answers import answer_line, whole_answer
from sleuth.evaluation.methods.react import find_action
from sleuth.rewards.answers import golden_answers
from sleuth.rewards.graders import GRADERS
from sleuth.rewards.normal_forms import robust_form, squad_normalize
from sleuth.rewards.search_r1_compat import search_r1_answer
from sleuth.samplers.writer import Written
from sleuth.types import PartKind

_SHORT, _LONG = 2_000, 8_000
_WORTH_A_LOOK = 0.004
"""Seconds; below it the clock's grain and the machine decide."""

_CALLS = itertools.count()
_SCANNER = TurnScanner("think", {"search": PartKind.QUERY, "answer": PartKind.ANSWER}, ["information"])


def _graded(text: str) -> None:
    for grader in GRADERS.values():
        grader.grade(text, [text[1:], "Paris"])


FUNCTIONS: dict[str, tuple[Callable[[str], object], Sequence[str]]] = {
    "squad normal form": (squad_normalize, ANSWERS),
    "robust normal form": (robust_form, ANSWERS),
    "graders": (_graded, ("a ", "x ", "1,", "1 ", ",111", ".111", "-", "'", "é")),
    "golden answers": (golden_answers, ("[", '["a",', '"', "{", "1", " ")),
    "scanner": (lambda text: _SCANNER.scan(text.encode("utf-8", errors="replace")), TAGS),
    "answer line": (lambda text: answer_line(Written(text)), TAGS),
    "whole answer": (lambda text: whole_answer(Written(text)), TAGS),
    "react": (find_action, TAGS),
    "judge": (read_verdict, TAGS),
    "search-r1-compat": (search_r1_answer, TAGS),
}


def texts(pieces: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(head, piece): every piece alone, with nothing or one character in front, and behind every 40th other."""
    for number, piece in enumerate(pieces):
        yield "", piece
        yield "<" if piece != "<" else "1", piece
        for other in pieces[number % 40 :: 40]:
            yield "", other + piece
    for piece in (",111", "'111", "_111", ",11", ".111", ".1", "-1"):
        yield "1", piece


def exponent(function: Callable[[str], object], head: str, piece: str, tail: str) -> tuple[float, float]:
    """(how time grows, seconds of the long one), by CPU time; the better of two tries where it is worth a look."""

    def seconds(count: int) -> float:
        text = f"{head}{piece * count}{tail} q{next(_CALLS)}"  # which no cache knows
        start = time.process_time()
        function(text)
        return time.process_time() - start

    long = seconds(_LONG)
    if long < _WORTH_A_LOOK:
        return 0.0, long
    long = min(long, seconds(_LONG))
    short = min(seconds(_SHORT), seconds(_SHORT))
    return math.log(long / max(short, 1e-6)) / math.log(_LONG / _SHORT), long


def report(names: Sequence[str] | None = None) -> int:
    """Print the worst of each function; 1 where one grows faster than it may."""
    code = 0
    for name, (function, pieces) in FUNCTIONS.items():
        if names and name not in names:
            continue
        tried, worst = 0, (0.0, 0.0, "", "")
        for head, piece in texts(pieces):
            for tail in ("", "1", "x"):
                tried += 1
                grows, long = exponent(function, head, piece, tail)
                worst = max(worst, (grows, long, head, piece))
        finding = worst[0] > 1.5
        code |= finding
        shown = re.sub(r"\s+", " ", f"{worst[2]!r} + {worst[3]!r} * n")
        print(
            f"{name:20s} {tried:5,} repeated pieces; worst: time grows with n^{worst[0]:.2f}, {1000 * worst[1]:.1f} ms "
            f"for n = {_LONG:,} ({shown}){'  FINDING' if finding else ''}",
            flush=True,
        )
    return int(code)
