"""Two systems on the same questions: paired differences, with tests that say whether they can be told apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from sleuth.errors import UserError
from sleuth.evaluation.folder import EvaluationFolder
from sleuth.evaluation.score import Score
from sleuth.evaluation.sheet import Sheet
from sleuth.evaluation.statistics import (
    RESAMPLES,
    Interval,
    holm,
    macro_average,
    macro_means,
    mcnemar_test,
    paired_bootstrap_test,
    paired_difference,
)
from sleuth.evaluation.table import AVERAGE, by_question
from sleuth.rewards.search_r1_compat import evaluation_grader

_SHOULD_AGREE = ("k", "corpus", "retriever", "limits")


@dataclass(frozen=True, slots=True)
class Paired:
    """Two systems on one set.

    Attributes:
        only_a, only_b: questions that only the one and only the other gets right; None where answers were averaged.
        bootstrap_p, mcnemar_p: uncorrected. ``corrected_p``: of the bootstrap test, for all tests of the comparison.
        left_out: questions that only one of them has, or on which one failed.
    """

    pair: str
    name: str
    n: int
    a: float
    b: float
    difference: Interval
    bootstrap_p: float
    mcnemar_p: float | None
    only_a: int | None
    only_b: int | None
    left_out: int
    corrected_p: float = 1.0


def system_pairs(a: str, b: str) -> list[tuple[tuple[EvaluationFolder, str], tuple[EvaluationFolder, str]]]:
    """What is compared with what: ``FOLDER`` or ``FOLDER:SYSTEM`` on either side.

    Two folders: their systems of the same name, or the only ones that they have.

    Raises:
        UserError: there is nothing to pair.
    """
    (folder_a, system_a), (folder_b, system_b) = _find(a), _find(b)
    names_a = [system_a] if system_a else folder_a.systems
    names_b = [system_b] if system_b else folder_b.systems
    if len(names_a) == len(names_b) == 1:
        pairs = [(names_a[0], names_b[0])]
    elif system_a or system_b:
        pairs = [(x, y) for x in names_a for y in names_b if (x, folder_a.path) != (y, folder_b.path)]
    else:
        pairs = [(name, name) for name in names_a if name in names_b]
    if not pairs or (folder_a.path == folder_b.path and all(x == y for x, y in pairs)):
        raise UserError(f"{a} and {b} have no two systems to compare; name them: {a}:{names_a[0]} {b}:{names_b[-1]}")
    return [((folder_a, x), (folder_b, y)) for x, y in pairs]


def compare(
    pairs: Sequence[tuple[tuple[EvaluationFolder, str], tuple[EvaluationFolder, str]]],
    metric: str = "em",
    grader: str | None = None,
) -> tuple[list[Paired], list[str]]:
    """Every pair on every set that both have, with Holm's correction over all; and notes on what isn't equal.

    Args:
        grader: score both by this one; default: their own, which must be the same.

    Raises:
        UserError: other graders, or no question in common.
    """
    results: list[Paired] = []
    notes: list[str] = []
    for (folder_a, a), (folder_b, b) in pairs:
        one, other = folder_a.settings, folder_b.settings
        if grader is None and one["grader"] != other["grader"]:
            raise UserError(
                f"{folder_a.path} has grader {one['grader']}, {folder_b.path} {other['grader']}; score both alike: "
                f"--grader {one['grader']}"
            )
        notes.append(f"grader: {evaluation_grader(grader or one['grader']).label}")
        notes += [
            f"{name} differs: {_short(x)} and {_short(y)}; a difference may come from that"
            for key in _SHOULD_AGREE
            for name, x, y in _differing(key, one.get(key), other.get(key))
        ]
        label = (
            f"{a} → {b}" if folder_a.path == folder_b.path else f"{folder_a.path.name} {a} → {folder_b.path.name} {b}"
        )
        results += _compare(label, folder_a.scores(a, grader), folder_b.scores(b, grader), metric)
    if not results:
        raise UserError("the two have no answered question in common; evaluate both on the same sets")
    corrected = holm([r.bootstrap_p for r in results])
    return [replace(r, corrected_p=p) for r, p in zip(results, corrected, strict=True)], list(dict.fromkeys(notes))


def _differing(name: str, one: Any, other: Any) -> list[tuple[str, Any, Any]]:
    """Where two settings differ: their keys, if both are mappings."""
    if isinstance(one, dict) and isinstance(other, dict):
        keys = dict.fromkeys([*one, *other])
        return [found for key in keys for found in _differing(f"{name}.{key}", one.get(key), other.get(key))]
    return [] if one == other else [(name, one, other)]


def comparison_sheet(results: Sequence[Paired], notes: Sequence[str], metric: str = "em") -> Sheet:
    """The comparison as a table."""
    tests = f"p: paired bootstrap test, two-sided; with Holm's correction for {len(results)} tests; McNemar: exact."
    rows = [
        [
            r.pair,
            r.name,
            f"{r.n:,}",
            f"{r.a:.3f}",
            f"{r.b:.3f}",
            f"{r.difference.mean:+.3f} [{r.difference.low:+.3f}, {r.difference.high:+.3f}]",
            f"{r.bootstrap_p:.4f}",
            f"{r.corrected_p:.4f}",
            "–" if r.mcnemar_p is None else f"{r.mcnemar_p:.4f} ({r.only_a} : {r.only_b})",
            str(r.left_out),
        ]
        for r in results
    ]
    header = ["systems", "set", "n", "A", "B", "B − A", "p", "p corrected", "McNemar", "left out"]
    verdict = _verdict(results, metric)
    return Sheet(f"{metric} over the same questions", header, rows, left=2, notes=(*verdict, tests, *notes))


def _compare(label: str, a: Sequence[Score], b: Sequence[Score], metric: str) -> list[Paired]:
    values_a, values_b = by_question(a, metric), by_question(b, metric)
    source = {s.question or s.id: s.data_source or "questions" for s in [*a, *b]}
    sets: dict[str, list[str]] = {}
    for question in sorted(values_a.keys() & values_b.keys()):
        sets.setdefault(source[question], []).append(question)
    averaged = any(0 < v < 1 for v in [*values_a.values(), *values_b.values()])
    results = []
    for name, questions in sorted(sets.items()):
        x, y = [values_a[q] for q in questions], [values_b[q] for q in questions]
        left_out = sum(source[q] == name for q in values_a.keys() ^ values_b.keys())
        only_a, only_b = sum(p > q for p, q in zip(x, y, strict=True)), sum(p < q for p, q in zip(x, y, strict=True))
        results.append(
            Paired(
                label,
                name,
                len(questions),
                sum(x) / len(x),
                sum(y) / len(y),
                paired_difference(x, y),
                paired_bootstrap_test(x, y),
                None if averaged else mcnemar_test(only_a, only_b),
                None if averaged else only_a,
                None if averaged else only_b,
                left_out,
            )
        )
    return [*results, _average(label, results, sets, values_a, values_b)] if len(results) > 1 else results


def _average(
    label: str,
    results: Sequence[Paired],
    sets: dict[str, list[str]],
    a: dict[str, float],
    b: dict[str, float],
) -> Paired:
    """Every set weighs the same. The test is the bootstrap's, of the differences shifted to mean 0 within each set."""
    differences = {name: [b[q] - a[q] for q in questions] for name, questions in sets.items()}
    difference = macro_average(differences)
    return Paired(
        label,
        AVERAGE,
        sum(r.n for r in results),
        sum(r.a for r in results) / len(results),
        sum(r.b for r in results) / len(results),
        difference,
        _average_test(differences, difference.mean),
        None,
        None,
        None,
        sum(r.left_out for r in results),
    )


def _average_test(differences: dict[str, list[float]], observed: float) -> float:
    centred = {name: [v - sum(values) / len(values) for v in values] for name, values in differences.items()}
    as_far = int(np.sum(np.abs(macro_means(centred)) >= abs(observed) - 1e-12))
    return (as_far + 1) / (RESAMPLES + 1)


def _verdict(results: Sequence[Paired], metric: str) -> list[str]:
    told = [r for r in results if r.corrected_p <= 0.05]
    if not told:
        return [f"No difference in {metric} can be told from chance at 0.05 after correction."]
    return [
        f"{r.pair}, {r.name}: B is {'better' if r.difference.mean > 0 else 'worse'} (0.05, corrected)." for r in told
    ]


def _find(name: str) -> tuple[EvaluationFolder, str | None]:
    if Path(name).is_dir():
        return EvaluationFolder.find(Path(name)), None
    path, colon, system = name.rpartition(":")
    if not colon or not Path(path).is_dir():
        raise UserError(f"{name}: no such folder; name an evaluation's folder, or FOLDER:SYSTEM")
    folder = EvaluationFolder.find(Path(path))
    if system not in folder.systems:
        raise UserError(f"{path} has no system {system!r}; there are: {', '.join(folder.systems)}")
    return folder, system


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:39]}…"
