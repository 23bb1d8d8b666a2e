"""`sleuth ask`: one question, shown turn by turn."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.text import Text

from sleuth.agent.episode import Episode
from sleuth.assembly import assemble, build_agent, build_sampler
from sleuth.commands.policy import Policy, check_model, find_policy, split_arguments
from sleuth.commands.terminal import console
from sleuth.errors import UserError
from sleuth.question_sets import question_sets, world_files
from sleuth.rewards.graders import GRADERS
from sleuth.types import ActionType, PartKind, Question, SamplingParams, Span, SpanKind, Trajectory

_STYLES = {PartKind.THINK: "dim", PartKind.QUERY: "cyan", PartKind.ANSWER: "bold green", PartKind.TAG: "dim"}
_PASSAGE = 100
"""Characters of a passage's text that are shown behind its title."""


def ask(
    source: str,
    arguments: Sequence[str],
    *,
    corpus: str | None,
    recipe: str | None,
    part: str | None,
    temperature: float,
    seed: int,
) -> None:
    """Answer a question and show each turn as it comes.

    Args:
        arguments: the question, and ``key=value`` settings. Without a question one of the recipe's test questions is
            asked, drawn by ``seed``.
        part: of the corpus, for a corpus that has parts (a HopWorld's worlds).

    Raises:
        UserError: a wrong input.
    """
    words, settings = split_arguments(arguments)
    if len(words) > 1:
        raise UserError(f"{len(words)} words where one question belongs; put the question in quotes")
    if corpus is not None:
        settings.append(f"corpus={json.dumps(corpus)}")
    policy = find_policy(source, settings, recipe)
    check_model(policy)
    with tempfile.TemporaryDirectory() as scratch:
        folder = policy.folder or Path(scratch)
        asked = _question(policy, folder, words[0] if words else None, part, seed)
        parts = assemble(policy.recipe, folder, splits=())
    _check_part(parts.retriever, asked)
    agent = build_agent(parts, build_sampler(policy.recipe, parts.model))
    out = console()
    out.print(Text.assemble(("question  ", "bold"), asked.question))
    shown = _Shown()
    (trajectory,) = agent.answer([asked], SamplingParams(temperature), seeds=[seed], on_turn=shown.update)
    shown.finish(trajectory)


def _question(policy: Policy, folder: Path, text: str | None, part: str | None, seed: int) -> Question:
    if text is not None:
        if not text.strip():
            raise UserError("the question is empty; write it in quotes behind the model")
        return Question("question", text.strip(), [], corpus=part)
    test = question_sets(policy.recipe, world_files(policy.recipe, folder), splits=["test"]).test
    if not test:
        raise UserError('no question; write it in quotes behind the model: sleuth ask RUN "Who …?"')
    return random.Random(seed).choice(test)


def _check_part(retriever: object, question: Question) -> None:
    parts = {part for part in getattr(getattr(retriever, "corpus", None), "parts", []) if part is not None}
    if question.corpus is None and parts:
        first = sorted(parts)[0]
        raise UserError(f"this corpus has {len(parts):,} parts; say which one to search, such as --part {first}")
    if question.corpus is not None and parts and question.corpus not in parts:
        raise UserError(f"the corpus has no part {question.corpus!r}; there are {', '.join(sorted(parts)[:3])}, …")


class _Shown:
    """Prints each span of a rollout once, as soon as it is there."""

    def __init__(self) -> None:
        self.out = console()
        self._spans = 1  # the prompt stays unprinted
        self._turn = 0

    def update(self, episode: Episode) -> None:
        self._print_new(episode.trajectory)

    def finish(self, trajectory: Trajectory) -> None:
        self._print_new(trajectory)
        if trajectory.error:
            self.out.print(Text(f"failed    {trajectory.error}", "red"))
        answer = trajectory.answer if trajectory.answer is not None else f"none ({trajectory.end.value})"
        self.out.print(Text.assemble(("answer    ", "bold"), (answer, "bold green")))
        if trajectory.golden_answers:
            right = GRADERS["squad"].exact_match(trajectory.answer, trajectory.golden_answers)
            golden = " | ".join(trajectory.golden_answers)
            self.out.print(Text.assemble(("golden    ", "bold"), f"{golden} ({'right' if right else 'wrong'})"))

    def _print_new(self, trajectory: Trajectory) -> None:
        for span in trajectory.spans[self._spans :]:
            self._print(span)
        self._spans = len(trajectory.spans)

    def _print(self, span: Span) -> None:
        if span.kind is SpanKind.POLICY:
            self._turn += 1
            self.out.print(Text(f"turn {self._turn}", "bold"))
            self.out.print(Text("  " + " ".join(span.text.split())))
            action = span.action
            if action is not None and action.type is ActionType.INVALID:
                self.out.print(Text(f"  invalid: {action.problem.value if action.problem else 'no action'}", "yellow"))
        elif span.kind is SpanKind.OBSERVATION:
            for number, document in enumerate(span.documents, start=1):
                text = " ".join(document.text.split())
                short = text if len(text) <= _PASSAGE else text[:_PASSAGE].rsplit(" ", 1)[0] + " …"
                self.out.print(Text.assemble(f"    {number}. ", (document.title, "cyan"), ("  " + short, "dim")))
            if not span.documents:
                self.out.print(Text("    " + " ".join(span.text.split()), "dim"))
