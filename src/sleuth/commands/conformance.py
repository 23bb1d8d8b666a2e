"""`sleuth conformance`: the suite on Sleuth itself or on another tool's functions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sleuth.commands.folders import check_output_file
from sleuth.commands.terminal import console
from sleuth.conformance.adapters import load_function, shape_of
from sleuth.conformance.cases import FILES, cases, file_text
from sleuth.conformance.check import Functions, Verdict, check, check_own, tallies
from sleuth.errors import UserError
from sleuth.evaluation.sheet import Sheet
from sleuth.jsonl import write_atomically
from sleuth.rewards.graders import GRADERS

SCHEMA = "sleuth.conformance/1"


def conformance(
    *,
    grader: str | None,
    shape: str | None,
    with_prompt: bool,
    cover_em: str | None,
    extractor: str | None,
    parser: str | None,
    evaluator: str | None,
    rules: str,
    sets: Sequence[str],
    name: str | None,
    output: Path | None,
    as_json: bool,
) -> int:
    """Print which inputs fail; 0 when none does, else 1. Without a function Sleuth itself is checked.

    Raises:
        UserError: a name that can't be loaded, an unknown set, shape or grader.
    """
    if unknown := [one for one in sets if one not in FILES]:
        raise UserError(f"--set {unknown[0]} is not known; write {', '.join(FILES)}")
    if rules not in GRADERS:
        raise UserError(f"--rules {rules} is not known; write {', '.join(GRADERS)}")
    chosen = [case for case in cases() if not sets or case.set in sets]
    named = {"grader": grader, "cover_em": cover_em, "extractor": extractor, "parser": parser, "evaluator": evaluator}
    given = {kind: value for kind, value in named.items() if value is not None}
    if given:
        loaded: dict[str, Any] = {kind: load_function(value) for kind, value in given.items()}
        if "grader" in loaded:
            loaded["shape"] = shape_of(loaded["grader"], shape)
        verdicts = check(Functions(**loaded, rules=rules, with_prompt=with_prompt), chosen)
        if all(verdict.passed is None for verdict in verdicts):
            raise UserError(
                f"no case of {', '.join(sets)} can be put to {', '.join(given.values())}; name another function"
            )
    else:
        verdicts = check_own(chosen)
    who = name or (", ".join(given.values()) if given else "sleuth")
    result: dict[str, Any] = {"schema": SCHEMA, "name": who, "functions": given, "rules": rules if given else "both"}
    result["cases"] = [verdict.as_dict() for verdict in verdicts]
    text = json.dumps(result, ensure_ascii=False, indent=2)
    if output is not None:
        with write_atomically(output) as file:
            file.write((text + "\n").encode("utf-8", errors="replace"))
    if as_json:
        print(text)
    else:
        _show(who, verdicts)
    return 1 if any(verdict.passed is False for verdict in verdicts) else 0


def export(folder: Path, *, force: bool = False) -> None:
    """Write the data files to a folder, for tools in other languages.

    Raises:
        UserError: one is there already, without ``force``.
    """
    for file in FILES.values():
        check_output_file(folder / file, force=force)
    for file in FILES.values():
        with write_atomically(folder / file) as out:
            out.write(file_text(file).encode())
    console().print(f"{len(cases())} cases in {', '.join(FILES.values())}: {folder}")


def table(results: Sequence[Path], form: str) -> None:
    """Print saved results side by side, in text, markdown, latex or html.

    Raises:
        UserError: a file that isn't a result.
    """
    sheet = results_sheet([_result(path) for path in results])
    if form == "text":
        sheet.print(console())
    else:
        print({"markdown": sheet.markdown, "latex": sheet.latex, "html": sheet.html}[form](), end="")


def results_sheet(results: Sequence[dict[str, Any]]) -> Sheet:
    """Kinds of fault × tools. A cell says how many of the asked cases pass; – where none can be asked."""
    titles: dict[tuple[str, str], None] = {}
    for result in results:
        titles.update(dict.fromkeys((case["id"], case["seam"]) for case in result["cases"]))
    rows = []
    for identity, seam in titles:
        cells = []
        for result in results:
            asked = [
                case
                for case in result["cases"]
                if (case["id"], case["seam"]) == (identity, seam) and case["passed"] is not None
            ]
            passed = sum(case["passed"] for case in asked)
            cells.append("–" if not asked else ("ok" if passed == len(asked) else f"{passed} of {len(asked)}"))
        rows.append([identity, seam, *cells])
    totals = []
    for result in results:
        asked = [case["passed"] for case in result["cases"] if case["passed"] is not None]
        totals.append(f"{sum(asked)} of {len(asked)}")
    note = (
        "ok: every case passes; –: the tool's functions can't be asked. Exact match is held to the rules named above."
    )
    header = ["kind", "asked of", *(result["name"] for result in results)]
    rules = ["rules", "", *(result["rules"] for result in results)]
    return Sheet("Conformance", header, [rules, *rows, ["all", "", *totals]], left=2, notes=(note,))


def _result(path: Path) -> dict[str, Any]:
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: can't be read ({error}); name files that `sleuth conformance -o` wrote") from None
    if not isinstance(result, dict) or result.get("schema") != SCHEMA:
        raise UserError(f"{path}: no result of `sleuth conformance -o` ({SCHEMA})")
    return result


def _show(who: str, verdicts: Sequence[Verdict]) -> None:
    out = console()
    for verdict in verdicts:
        if verdict.passed is False:
            out.print(
                f"fails {verdict.case.title}: {_short(verdict.case.input)} gave {_short(verdict.got)}, "
                f"expected {_short(verdict.wanted)}",
                soft_wrap=True,
            )
    for name, tally in tallies(verdicts).items():
        out.print(f"set {name}: {tally.passed} of {tally.asked} pass")
    left = sum(verdict.passed is None for verdict in verdicts)
    if left:
        why = "left to its tests" if who == "sleuth" else "can't be put to these functions"
        out.print(f"{left} of {len(verdicts)} cases {why}")


def _short(value: Any) -> str:
    if isinstance(value, dict) and "prediction" in value:
        return f"{value['prediction']!r} / {value['golden_answers']!r}"
    if isinstance(value, dict) and "spans" in value:
        value = "".join(span["text"] for span in value["spans"] if span["kind"] != "prompt")
    if isinstance(value, dict) and list(value) == ["text"]:
        value = value["text"]
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    text = " ".join(text.split())
    return text if len(text) <= 120 else f"{text[:119]}…"
