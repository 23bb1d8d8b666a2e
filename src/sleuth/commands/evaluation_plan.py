"""What an evaluation will do: its questions, its systems and what they will take, before anything is paid for."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sleuth.agent.episode import Limits
from sleuth.assembly import Material, assemble, build_agent, build_retriever, build_sampler, check_parts_of_corpus
from sleuth.commands.policy import Policy
from sleuth.data.benchmarks.sealed import CANARY
from sleuth.errors import UserError
from sleuth.evaluation.folder import SCHEMA, question_settings
from sleuth.evaluation.methods import AGENT, METHODS
from sleuth.evaluation.methods.method import Budget, Method
from sleuth.evaluation.rehearsal import Rehearsal, rehearse
from sleuth.evaluation.run import SystemRun
from sleuth.evaluation.systems import AgentSystem, EndpointMethod, LocalMethod, System
from sleuth.question_sets import QuestionSets, limited, question_sets, world_files
from sleuth.recipes.schema import Recipe
from sleuth.types import Question, Retriever, Sampler, SampleRequest, SamplingParams, StopRule

if TYPE_CHECKING:
    from sleuth.assembly import Parts

_HEAD = 1 << 20
"""Bytes at either end of a file of weights that tell it from another one."""

AGENT_OVER_CHAT = "agent-over-chat"
"""The agent's tags on an endpoint, see :mod:`sleuth.evaluation.methods.tags_over_chat`."""


@dataclass(slots=True)
class Plan:
    """Everything that an evaluation is made of.

    Attributes:
        parts: with the model loaded; None on an endpoint.
        sampler: of the local model.
        rehearsals: of each method.
    """

    recipe: Recipe
    questions: list[Question]
    retriever: Retriever
    corpus_hash: str | None
    budget: Budget
    parts: Parts | None
    sampler: Sampler | None
    rehearsals: dict[str, Rehearsal]

    def runs(self) -> Iterator[SystemRun]:
        """Every method in every way of sampling, the methods in the order that they were asked for."""
        settings, sampling = self.recipe.evaluation, self.recipe.sampling
        for method in self.rehearsals:
            system = self._system(method)
            for way, temperature, samples in ways(self.recipe):
                params = SamplingParams(temperature, sampling.top_p, sampling.top_k)
                prompt = self.rehearsals[method].prompt
                yield SystemRun(f"{method}-{way}", method, system, params, settings.seed, samples, prompt)

    def settings(self) -> dict[str, Any]:
        """All that a figure depends on. A batch, a rate limit or a number of tries is not in it."""
        limits = self.recipe.limits if self.parts is None else self.parts.limits
        return {
            **recipe_settings(self.recipe, self.budget),
            **question_settings(self.questions),
            "limits": limits.model_dump(),
            "corpus": self.corpus_hash,
            "sealed": any(CANARY in question.extra for question in self.questions),
            "systems": {run.name: run.settings() for run in self.runs()},
        }

    def _system(self, method: str) -> System:
        endpoint = self.recipe.evaluation.endpoint
        batch = self.recipe.evaluation.batch
        if endpoint is not None:
            from sleuth.samplers.openai_compatible import OpenAIWriter

            writer = OpenAIWriter(endpoint)
            return EndpointMethod(
                _method(method, self.recipe), self.budget, writer, self.retriever, endpoint.concurrency
            )
        if self.parts is None or self.sampler is None:
            raise RuntimeError("a local model has to be loaded first")
        if method == AGENT:
            return AgentSystem(build_agent(self.parts, self.sampler), batch)
        from sleuth.samplers.local_writer import LocalWriter

        local = LocalWriter(self.sampler, self.parts.codec, self.parts.limits.max_context)
        return LocalMethod(_method(method, self.recipe), self.budget, local, self.retriever, batch)


@dataclass(frozen=True, slots=True)
class Outline:
    """What is known of an evaluation before a corpus, an index or a model is loaded.

    Attributes:
        names: of the methods. ``files``: of the recipe's world, if it has one. ``sets``: with the test set alone.
        questions: those of it that are answered.
    """

    names: list[str]
    budget: Budget
    files: Any
    sets: QuestionSets
    questions: list[Question]

    def settings(self, recipe: Recipe) -> dict[str, Any]:
        """The part of :meth:`Plan.settings` that is known by now."""
        limits = recipe.limits.model_dump()
        del limits["max_context"]  # the model has a say in it
        ways_ = {
            f"{name}-{way}": {
                "temperature": temperature,
                "top_p": recipe.sampling.top_p,
                "top_k": recipe.sampling.top_k,
                "seed": recipe.evaluation.seed,
                "samples": samples,
            }
            for name in self.names
            for way, temperature, samples in ways(recipe)
        }
        settings = {**recipe_settings(recipe, self.budget), **question_settings(self.questions)}
        return {**settings, "limits": limits, "systems": ways_}


def outline_evaluation(policy: Policy, folder: Path, *, say: Callable[[str], None]) -> Outline:
    """Read the questions, and no more.

    Args:
        folder: of the evaluation, for a world's files where the policy has no folder of its own.

    Raises:
        UserError: an unknown method, or no questions.
    """
    recipe = policy.recipe
    on_endpoint = recipe.evaluation.endpoint is not None
    names = [_known(name, on_endpoint=on_endpoint) for name in dict.fromkeys(recipe.evaluation.methods)]
    if not names:
        raise UserError(f"no method to evaluate; --methods takes {', '.join([AGENT, *METHODS])}")
    limits = recipe.limits
    budget = Budget(
        k=limits.k,
        searches=_searches(limits),
        turn_tokens=limits.max_turn_tokens,
        answer_tokens=min(limits.max_turn_tokens, recipe.evaluation.answer_tokens),
        passage_words=recipe.evaluation.passage_words,
    )
    files = world_files(recipe, policy.folder or folder)
    sets = question_sets(recipe, files, splits=["test"], say=say)
    questions = sets.test
    if recipe.evaluation.limit is not None:
        questions = limited(questions, recipe.evaluation.limit, recipe.evaluation.seed)
    if not questions:
        raise UserError("no questions to answer; name a question file behind the model")
    return Outline(names, budget, files, sets, questions)


def plan_evaluation(policy: Policy, folder: Path, outline: Outline, *, say: Callable[[str], None]) -> Plan:
    """Load what is needed.

    Raises:
        UserError: a part that can't be built.
    """
    recipe = policy.recipe
    retriever, corpus_hash = build_retriever(recipe, outline.files)
    check_parts_of_corpus(retriever, outline.sets.test)
    parts: Parts | None = None
    sampler: Sampler | None = None
    if recipe.evaluation.endpoint is None:
        material = Material(outline.sets, retriever, corpus_hash)
        parts = assemble(recipe, policy.folder or folder, splits=["test"], say=say, material=material)
        sampler = build_sampler(recipe, parts.model)
    rehearsals = {name: _rehearsal(name, recipe, outline.budget, parts) for name in outline.names}
    return Plan(recipe, outline.questions, retriever, corpus_hash, outline.budget, parts, sampler, rehearsals)


def recipe_settings(recipe: Recipe, budget: Budget) -> dict[str, Any]:
    """All that a figure depends on and a recipe alone tells."""
    endpoint, retriever = recipe.evaluation.endpoint, recipe.retriever
    if endpoint is not None:
        model: dict[str, Any] = {
            "model": endpoint.model,
            "weights": None,
            "endpoint": {"url": endpoint.url, "extra": endpoint.extra},
        }
    else:
        precision = recipe.model_settings
        model = {
            "model": recipe.model,
            "weights": _fingerprint(recipe),
            "precision": {"dtype": precision.dtype, "mixed": precision.mixed_precision},
        }
    return {
        "schema": SCHEMA,
        **model,
        "k": recipe.limits.k,
        "passage_words": budget.passage_words,
        "answer_tokens": budget.answer_tokens,
        "retriever": {"kind": retriever.kind, "settings": retriever.settings},
        "grader": recipe.evaluation.grader or getattr(recipe.reward, "grader", "squad"),
        "comparable": recipe.data.comparable,
        **({} if endpoint is None else {"prices": {"in": endpoint.price_in, "out": endpoint.price_out}}),
    }


def ways(recipe: Recipe) -> list[tuple[str, float, int]]:
    """(name, temperature, samples): greedy answers are all the same, so that there is one of them."""
    settings = recipe.evaluation
    if settings.temperature == 0:
        return [("greedy", 0.0, 1)]
    return [("sampled", settings.temperature, settings.samples), *([("greedy", 0.0, 1)] if settings.greedy else [])]


def estimate_lines(plan: Plan) -> list[str]:
    """What it will take at most, for people."""
    questions = len(plan.questions)
    answers = sum(samples for _, _, samples in ways(plan.recipe))
    lines = []
    tokens_in = tokens_out = 0
    for name, rehearsal in plan.rehearsals.items():
        times = questions * answers
        tokens_in += rehearsal.tokens_in * times
        tokens_out += rehearsal.tokens_out * times
        lines.append(
            f"{name}: {questions:,} questions × {answers} answers, at most {rehearsal.calls * times:,} messages of "
            f"{rehearsal.tokens_out * times:,} tokens and {rehearsal.searches * times:,} searches"
        )
    endpoint = plan.recipe.evaluation.endpoint
    if endpoint is not None:
        cost = endpoint.cost(tokens_in, tokens_out)
        money = "no price is set, so no cost is known" if cost is None else f"at most about {cost:,.2f} by your prices"
        lines.append(f"about {tokens_in:,} tokens read, {tokens_out:,} written at most; {money}")
    elif plan.sampler is not None and plan.parts is not None:
        read, written = _speed(plan.sampler, plan.parts.codec.end_ids, plan.recipe.evaluation.batch, questions)
        seconds = tokens_in / read + tokens_out / written
        lines.append(
            f"this model reads {read:,.0f} and writes {written:,.0f} tokens a second here: "
            f"at most {_duration(seconds)}, less where turns are short or contexts shared"
        )
    return lines


def _known(name: str, *, on_endpoint: bool) -> str:
    names = [AGENT, *METHODS]
    if name not in names:
        close = get_close_matches(name, names, n=1)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(names)}"
        raise UserError(f"no method is called {name!r}; {hint}")
    return AGENT_OVER_CHAT if on_endpoint and name == AGENT else name


def _searches(limits: Limits) -> int:
    return limits.max_turns - 1 if limits.max_searches is None else min(limits.max_searches, limits.max_turns - 1)


def _method(name: str, recipe: Recipe) -> Method:
    if name != AGENT_OVER_CHAT:
        return METHODS[name]
    from sleuth.agent.tags import TagSettings
    from sleuth.evaluation.methods.tags_over_chat import tags_over_chat
    from sleuth.recipes.validation import validated

    if recipe.protocol.kind != "tags":
        raise UserError(
            f"protocol.kind={recipe.protocol.kind} can't be played over an endpoint, which gives text and no ids; "
            "use tags, or a local model"
        )
    settings = validated(
        TagSettings, recipe.protocol.settings, where=f"recipe {recipe.name}", prefix="protocol.settings"
    )
    return tags_over_chat(settings, recipe.limits)


def _rehearsal(name: str, recipe: Recipe, budget: Budget, parts: Parts | None) -> Rehearsal:
    if name != AGENT or parts is None:
        return rehearse(_method(name, recipe), budget)
    limits = parts.limits
    written = min(limits.max_turns * limits.max_turn_tokens, limits.max_tokens)
    return Rehearsal(parts.prompt_hash, limits.max_turns, _searches(limits), limits.max_tokens - written, written)


def _speed(sampler: Sampler, end_ids: frozenset[int], batch: int, questions: int) -> tuple[float, float]:
    """Tokens a second, read and written, from a short try with as many rows as there will be, at most 8."""
    rows = min(batch, questions, 8)
    context, more = 128, 8
    rule = StopRule(lambda ids: False, frozenset(), frozenset())
    plain = [i for i in range(10, 10 + context) if i not in end_ids]
    prompts = [[*plain[row:], *plain[:row]] for row in range(rows)]

    def seconds(new: int) -> float:
        requests = [SampleRequest(("speed", n), ids, new, rule, n) for n, ids in enumerate(prompts)]
        start = time.monotonic()
        sampler.sample(requests, SamplingParams(1.0))
        sampler.release([request.key for request in requests])
        return time.monotonic() - start

    seconds(1)
    reading = max(seconds(1), 1e-6)
    writing = max(seconds(1 + more) - reading, 1e-6)
    return rows * len(plain) / reading, rows * more / writing


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"


def _fingerprint(recipe: Recipe) -> str | None:
    """Tells the weights in a folder from others under the same name; None where they aren't in a folder."""
    from sleuth.assembly import UNTRAINED_TINY, model_source

    if recipe.model == UNTRAINED_TINY:
        return None
    folder = Path(model_source(recipe)).expanduser()
    if not folder.is_dir():
        return None
    digest = hashlib.sha256()
    for file in sorted(p for p in folder.iterdir() if p.suffix in (".safetensors", ".bin") or p.name == "config.json"):
        size = file.stat().st_size
        digest.update(f"{file.name} {size}\n".encode())
        with file.open("rb") as bytes_:
            digest.update(bytes_.read(_HEAD))
            bytes_.seek(max(size - _HEAD, 0))
            digest.update(bytes_.read(_HEAD))
    return digest.hexdigest()
