"""A language model's verdicts: on rows for `sleuth grade --judge`, on answers for `sleuth eval --judge`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sleuth.errors import UserError
from sleuth.evaluation.folder import EvaluationFolder
from sleuth.evaluation.judge import PROMPT, Agreement, Judge, ToJudge, agreement
from sleuth.evaluation.judged import JudgeFile, judge_answers
from sleuth.evaluation.statistics import Interval
from sleuth.recipes.yaml_text import YamlError, parse_yaml
from sleuth.rewards.answers import golden_answers
from sleuth.rewards.graders import GRADERS
from sleuth.samplers.openai_compatible import EndpointSettings, OpenAIWriter

Bar = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]


@dataclass(frozen=True, slots=True)
class JudgeChoice:
    """Which model judges. ``prompt``: a file with another instruction; ``settings``: of the endpoint, field=value."""

    model: str
    endpoint: str
    prompt: Path | None = None
    settings: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Judged:
    """``lines`` for people; ``record``: model, prompt, endpoint, what was used, agreement with EM by each grader."""

    lines: list[str]
    record: dict[str, Any]


def judge_systems(
    systems: Sequence[tuple[str, EvaluationFolder]], choice: JudgeChoice, bar: Bar, say: Callable[[str], None]
) -> None:
    """Ask about every answer of these systems that this judge hasn't judged yet; the verdicts go to their folders.

    Args:
        systems: name and folder of each. ``bar``: makes a progress bar of a name and a total.

    Raises:
        UserError: a wrong setting, an endpoint that refuses for good.
    """
    settings = _endpoint(choice)
    writer = OpenAIWriter(settings)
    judge = Judge(writer, choice.model, _prompt(choice))
    before = {"messages": 0, "tokens_in": 0, "tokens_out": 0}

    def used() -> dict[str, float]:
        now = {name: getattr(writer.tally, name) for name in before}
        spent: dict[str, float] = {name: now[name] - before[name] for name in before}
        before.update(now)
        cost = settings.cost(int(spent["tokens_in"]), int(spent["tokens_out"]))
        return spent if cost is None else {**spent, "cost": cost}

    for name, folder in systems:
        file = JudgeFile.of(folder, judge, settings.url)
        answers = sum(not trajectory.failed for trajectory in folder.journal(name).trajectories())
        with bar(f"judge {name}", answers) as progress:
            judge_answers(folder, name, judge, file, used=used, progress=progress)
        open_ = sum(v.correct is None for (system, _, _), v in file.verdicts.items() if system == name)
        if open_:
            problem = next(v.problem for v in file.verdicts.values() if v.correct is None)
            say(f"{name}: no verdict on {open_} answers ({problem}); the same command asks again")


def ask_judge(path: str, rows: list[dict[str, Any]], choice: JudgeChoice) -> Judged:
    """Put ``judge`` into the graded rows that didn't fail.

    Raises:
        UserError: a row without a question, a wrong setting, an endpoint that refuses for good.
    """
    settings = _endpoint(choice)
    writer = OpenAIWriter(settings)
    judge = Judge(writer, choice.model, _prompt(choice))
    scored = [row for row in rows if row["squad"] is not None]
    verdicts = judge.judge([_to_judge(row, path) for row in scored])
    asked = judge.settings()
    for row, verdict in zip(scored, verdicts, strict=True):
        row["judge"] = {
            "correct": verdict.correct,
            "said": verdict.said,
            "problem": verdict.problem,
            "model": choice.model,
            "prompt_sha256": asked["prompt_sha256"],
        }
    found = {grader: agreement([row[grader]["em"] for row in scored], verdicts) for grader in GRADERS}
    tally = writer.tally
    used = {"messages": tally.messages, "tokens_in": tally.tokens_in, "tokens_out": tally.tokens_out}
    cost = settings.cost(tally.tokens_in, tally.tokens_out)
    record = {**asked, "endpoint": settings.url, **used, "cost": cost}
    record |= {"agreement": {grader: one.as_dict() for grader, one in found.items()}}
    problem = next((verdict.problem for verdict in verdicts if verdict.problem), None)
    price = "" if cost is None else f", cost {cost:.4f}"
    lines = [
        f"judge {choice.model} at {settings.url}, greedy; prompt SHA-256 {asked['prompt_sha256'][:16]}…",
        *_agreement_lines(found, problem),
        f"  {tally.messages:,} messages, {tally.tokens_in:,} tokens read, {tally.tokens_out:,} written{price}",
    ]
    return Judged(lines, record)


def _agreement_lines(found: dict[str, Agreement], problem: str | None) -> list[str]:
    lines: list[str] = []
    for grader, one in found.items():
        if one.share is None or one.accuracy is None:
            return [f"  no verdict at all ({problem or 'no row to judge'})"]
        if not lines:
            lines.append(f"  correct: {_interval(one.accuracy)}; no verdict on {one.no_verdict:,} rows")
        kappa = "–" if one.kappa is None else f"{one.kappa:.2f}"
        lines.append(
            f"  agrees with EM by {grader} on {_interval(one.share)}, kappa {kappa}: right by both {one.both:,}, by "
            f"neither {one.neither:,}, by the judge alone {one.judge_only:,}, by EM alone {one.em_only:,}"
        )
    return lines


def _interval(interval: Interval) -> str:
    return f"{interval.mean:.3f} [{interval.low:.3f}, {interval.high:.3f}]"


def _to_judge(row: dict[str, Any], path: str) -> ToJudge:
    if not isinstance(row.get("question"), str):
        raise UserError(f'{path}: row "{row["id"]}" has no "question", which a judge has to read')
    prediction = row["prediction"] if row.get("status", "answered") == "answered" else None
    said = None if prediction is None else str(prediction)
    return ToJudge(str(row["id"]), row["question"], golden_answers(row["golden_answers"]), said)


def _prompt(choice: JudgeChoice) -> str:
    return PROMPT if choice.prompt is None else choice.prompt.read_text(encoding="utf-8").strip()


def _endpoint(choice: JudgeChoice) -> EndpointSettings:
    try:
        given = _fields(choice.settings)
        return EndpointSettings.model_validate({**given, "url": choice.endpoint, "model": choice.model})
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"the judge's endpoint: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def _fields(settings: Sequence[str]) -> dict[str, Any]:
    given = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise UserError(f"--judge-set {setting}: write field=value, such as concurrency=8")
        try:
            given[name.strip()] = parse_yaml(text)
        except YamlError as error:
            raise UserError(f"--judge-set {setting}: the value is not YAML ({error})") from None
    return given
