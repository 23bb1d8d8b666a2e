"""Sleuth itself under the suite: its graders, its loader, its protocol and episode, its evaluation."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from sleuth.agent.agent import SearchAgent
from sleuth.agent.codec import TokenCodec
from sleuth.agent.episode import Limits
from sleuth.agent.tags import TagProtocol
from sleuth.conformance.cases import Case, golden_answers_of
from sleuth.data.check import check_questions
from sleuth.errors import UserError
from sleuth.evaluation.score import evaluate, score
from sleuth.rewards.graders import GRADERS
from sleuth.samplers.scripted import ScriptedSampler
from sleuth.types import (
    ActionType,
    Document,
    Question,
    SampleRequest,
    SamplingParams,
    SearchRequest,
    SearchResult,
    SpanKind,
    Trajectory,
)

_END = "<|im_end|>"
_TEMPLATES = {
    "none": None,
    "chatml": "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    "llama": "{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content }}<|eot_id|>"
    "{% endfor %}{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}",
}
_GREEDY = SamplingParams(temperature=0.0)


def em(case: Case, grader: str) -> float:
    """Raises UserError where the case is refused."""
    return GRADERS[grader].exact_match(case.input["prediction"], golden_answers_of(case))


def cover_em(case: Case, grader: str) -> float:
    return GRADERS[grader].cover_em(case.input["prediction"], golden_answers_of(case))


def load(case: Case) -> str:
    """``refused``, ``warning`` or ``ok``: what `sleuth data check` says of the row."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.jsonl"
        file.write_text(json.dumps(case.input, ensure_ascii=False) + "\n", encoding="utf-8")
        report = check_questions(file)
    if any(case.input["id"] in error for error in report.errors):
        return "refused"
    return "warning" if report.warnings else "ok"


def turn(case: Case) -> tuple[str | None, str | None]:
    """(action, content) of one turn."""
    codec = _codec("none")
    action = TagProtocol(codec).parse(codec.encode(case.input["text"]), None).action
    if action.type is ActionType.SEARCH:
        return "search", action.query
    return ("answer", action.text) if action.type is ActionType.ANSWER else (None, None)


def transcript(case: Case, *, overshoot: bool) -> dict[str, Any]:
    """A whole rollout, with the case's turns as the policy and its pages as the retriever.

    Args:
        overshoot: the engine notices a stop string late, and samples on behind it.
    """
    given = case.input
    codec = _codec(given.get("template", "none"))
    turns = [codec.encode(span["text"]) for span in given["spans"] if span["kind"] == "policy"]
    shelf = _Shelf(given["pages"])
    limits = Limits(
        max_turns=len(turns),
        max_turn_tokens=len(turns[-1]) if given.get("turn_limit") else 20_000,
        max_tokens=60_000,
        max_observation_tokens=5_000,
    )
    question = Question(case.id, given["question"], given["golden_answers"])
    sampler = ScriptedSampler({0: turns, case.id: turns}, overshoot=overshoot)
    sampler.scripts = _in_order(turns)
    agent = SearchAgent(TagProtocol(codec), limits, sampler, shelf)
    (rollout,) = agent.answer([question], _GREEDY, seeds=[0])
    return {
        "em": score([rollout])[0].em,
        "answer": rollout.answer,
        "queries": shelf.queries,
        "status": rollout.status.value,
        "counts": rollout.counts,
        "format_valid": rollout.format_valid,
        "hints": sum(span.kind is SpanKind.HINT for span in rollout.spans),
        "text": codec.decode(rollout.completion_ids),
    }


def evaluator(rows: Sequence[dict[str, Any]], batch_size: int) -> list[dict[str, Any]]:
    """Sleuth's evaluation of rows whose ``response`` is what the policy says."""
    codec = _codec("none")
    responses = {row["question"]: codec.encode(row["response"]) for row in rows}

    def policy(request: SampleRequest) -> Sequence[int]:
        asked = codec.decode(request.ids).rpartition("Question: ")[2].strip()
        return responses[asked]

    agent = SearchAgent(TagProtocol(codec), Limits(max_turns=1), ScriptedSampler(policy), _Shelf([]))
    questions = [Question(row["id"], row["question"], row["golden_answers"]) for row in rows]
    rollouts: list[Trajectory] = evaluate(agent, questions, _GREEDY, seed=0, batch=batch_size)
    return [{"id": one.id, "em": one.em} for one in score(rollouts)]


class _Shelf:
    """Gives out its pages, a list a search, and remembers what it was asked."""

    def __init__(self, pages: Sequence[Sequence[dict[str, str]]]):
        self._pages = list(pages)
        self.queries: list[str] = []

    def search(self, requests: Sequence[SearchRequest], k: int) -> list[SearchResult]:
        results = []
        for request in requests:
            number = len(self.queries)
            self.queries.append(request.query)
            pages = self._pages[number] if number < len(self._pages) else []
            results.append(SearchResult([Document(str(n), p["title"], p["text"]) for n, p in enumerate(pages)]))
        return results


def _in_order(turns: Sequence[Sequence[int]]):
    left = iter(turns)
    return lambda request: next(left)


@cache
def _codec(template: str) -> TokenCodec:
    """One token a byte, so that every tag is many tokens; and the end-of-turn token."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    if template not in _TEMPLATES:
        raise UserError(f'no chat template "{template}"; there are {", ".join(_TEMPLATES)}')
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={piece: n for n, piece in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=_END, pad_token=_END)
    tokenizer.chat_template = _TEMPLATES[template]
    return TokenCodec(tokenizer)
