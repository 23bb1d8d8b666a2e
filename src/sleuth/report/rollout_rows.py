"""A rollout as the page gets it: a short row for the list, and the whole of it for the viewer.

Rows are lists in the order of :data:`COLUMNS`. Details are packed in blocks of :data:`BLOCK` rollouts, which the page
inflates when it needs them; a text that several rollouts of a block share stands in it once.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sleuth.agent.codec import TokenCodec
from sleuth.diagnostics.replay import RolloutReplay, SpanReplay
from sleuth.report.explain import Rewarding, explain
from sleuth.report.numbers import number, plain
from sleuth.report.token_texts import token_lengths
from sleuth.training.evidence import Words
from sleuth.types import Action, Span, SpanKind, Trajectory

BLOCK = 50
"""Rollouts in a block."""

COLUMNS = (
    "id",
    "step",
    "group",
    "status",
    "reward",
    "question",
    "answer",
    "searches",
    "turns",
    "tokens",
    "format",
    "found",
    "advantage",
    "lowest",
    "highest",
    "queries",
)
"""``question`` is an index into the questions; ``tokens`` counts the policy's. ``found``: a golden answer stands in a
passage (None: no passages). ``advantage``: mean over policy tokens. ``lowest``, ``highest``: probability ratios."""

TEXT_LIMIT = 100_000
"""Characters of one text; a longer one is cut, and says so."""

_CLOSED = frozenset({"yes", "no"})


@dataclass(frozen=True, slots=True)
class Reader:
    """What is needed to read a rollout: the tokenizer (None: no token texts) and how it was rewarded."""

    codec: TokenCodec | None
    rewarding: Rewarding


def row(trajectory: Trajectory, question: int, replay: RolloutReplay | None) -> list[Any]:
    """The list's row, in the order of :data:`COLUMNS`."""
    t = trajectory
    ratios = [r for span in t.policy_spans for r in (_log_ratios(span) or []) if math.isfinite(r)]
    advantages = [a for span in replay.spans for a in span.advantages] if replay else []
    return [
        t.id,
        t.step,
        t.group,
        t.status.value,
        number(t.reward),
        question,
        t.answer,
        t.counts.get("searches", len(t.queries)),
        len(t.policy_spans),
        t.policy_tokens,
        t.format_valid,
        _found(t),
        number(sum(advantages) / len(advantages)) if advantages else None,
        number(math.exp(max(min(ratios), -20.0))) if ratios else None,
        number(math.exp(min(max(ratios), 20.0))) if ratios else None,
        t.queries,
    ]


def detail(trajectory: Trajectory, replay: RolloutReplay | None, reader: Reader, texts: Texts) -> dict[str, Any]:
    """Everything that the viewer shows of a rollout."""
    t = trajectory
    of_span = {span.span: span for span in replay.spans} if replay else {}
    sign = next((math.copysign(1, a) for span in of_span.values() for a in span.advantages if a), 0.0)
    extra = {name: value for name, value in t.extra.items() if name != "anchors"}
    return {
        "spans": [
            _span(span, of_span.get(index), reader.codec, texts) | _teacher(span, sign)
            for index, span in enumerate(t.spans)
        ],
        "why": explain(t, reader.rewarding),
        "loss": number(sum(x for span in replay.spans for x in span.loss)) if replay else None,
        "supporting": t.supporting_titles,
        **({"error": t.error} if t.error else {}),
        **({"anchors": _anchors(t.extra["anchors"])} if "anchors" in t.extra else {}),
        **({"extra": _cut(json.dumps(plain(extra), ensure_ascii=False, indent=1))} if extra else {}),
    }


class Questions:
    """The questions of all rows, each once.

    Attributes:
        table: ``question``, ``golden`` answers and ``source`` of each.
    """

    def __init__(self) -> None:
        self.table: list[dict[str, Any]] = []
        self._index: dict[Any, int] = {}

    def add(self, trajectory: Trajectory) -> int:
        t = trajectory
        key = (t.question, tuple(t.golden_answers), t.data_source)
        if key not in self._index:
            self._index[key] = len(self.table)
            self.table.append(
                {"question": _cut(t.question), "golden": [_cut(a) for a in t.golden_answers], "source": t.data_source}
            )
        return self._index[key]


class Texts:
    """The texts of a block, each once."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._index: dict[str, int] = {}

    def add(self, text: str) -> int:
        if text not in self._index:
            self._index[text] = len(self.texts)
            self.texts.append(_cut(text))
        return self._index[text]


class Blocks:
    """Packs details as they come.

    Attributes:
        packed: the full blocks, gzipped JSON in base64: ``{"texts": [...], "rollouts": [...]}``.
        size: characters of ``packed``.
    """

    def __init__(self, reader: Reader) -> None:
        self.packed: list[str] = []
        self.size = 0
        self._reader = reader
        self._texts = Texts()
        self._details: list[dict[str, Any]] = []

    def add(self, trajectory: Trajectory, replay: RolloutReplay | None) -> None:
        self._details.append(detail(trajectory, replay, self._reader, self._texts))
        if len(self._details) == BLOCK:
            self.close()

    def close(self) -> None:
        """Pack what has come since the last full block."""
        if not self._details:
            return
        block = pack({"texts": self._texts.texts, "rollouts": self._details})
        self.packed.append(block)
        self.size += len(block)
        self._texts, self._details = Texts(), []


def pack(value: Any) -> str:
    """Gzipped JSON in base64: nothing in it can end a script element, and the same value gives the same text."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode("ascii")


def unpack(packed: str) -> Any:
    """The value of :func:`pack`."""
    return json.loads(gzip.decompress(base64.b64decode(packed)))


# ---------------------------------------------------------------------------------------------------------------------
# Spans


def _span(span: Span, replay: SpanReplay | None, codec: TokenCodec | None, texts: Texts) -> dict[str, Any]:
    if span.kind is SpanKind.POLICY:
        return _policy_span(span, replay, codec)
    out: dict[str, Any] = {"kind": span.kind.value, "tokens": len(span.ids), "text": _with_references(span, texts)}
    if span.documents:
        out["documents"] = [[d.id, d.title, texts.add(d.text), number(d.score)] for d in span.documents]
    if span.truncated:
        out["truncated"] = True
    return out


def _policy_span(span: Span, replay: SpanReplay | None, codec: TokenCodec | None) -> dict[str, Any]:
    out: dict[str, Any] = {
        "kind": span.kind.value,
        "tokens": len(span.ids),
        "text": _cut(span.text),
        "stop": span.stop.value if span.stop else None,
        "action": _action(span.action),
        "parts": [[part.kind.value, part.start, part.end] for part in span.parts],
    }
    if codec is not None and len(span.text) <= TEXT_LIMIT:
        out["lengths"] = token_lengths(codec, span.ids, span.text)
    old = span.old_logprobs or span.logprobs
    if old is not None:
        out["logprobs"] = [_thousandths(x) for x in old]
    ratios = _log_ratios(span)
    if ratios is not None:
        out["ratios"] = [_thousandths(x) for x in ratios]
    if replay is not None:
        advantages = [number(a) for a in replay.advantages]
        out["advantages"] = advantages[0] if len(set(advantages)) == 1 else advantages
        out["silent"] = [i for i, gradient in enumerate(replay.grad) if gradient == 0.0]
        if len(out["silent"]) == len(span.ids):
            out["silent"] = True
    return out


def _teacher(span: Span, sign: float) -> dict[str, Any]:
    """What a teacher thought of a step (:mod:`sleuth.objectives.sspo`): ``gain`` in nats, and what became of the step.

    Args:
        sign: of the rollout's advantages, 0 where they aren't known.
    """
    old = span.old_logprobs or span.logprobs
    if span.teacher_logprobs is None or old is None:
        return {}
    gains = [after - before for after, before in zip(span.teacher_logprobs, old, strict=True)]
    gain = sum(g for g in gains if math.isfinite(g))
    out: dict[str, Any] = {"gain": number(gain)}
    if sign * gain:
        amplified = sign * gain > 0
        out["weighed"] = "amplified" if amplified else "exempted" if -abs(gain) < math.log(0.1) else "dampened"
    return out


def _anchors(anchors: Any) -> list[list[str]]:
    """Title and explanation of each anchor that a teacher was shown."""
    if not isinstance(anchors, list):
        return []
    return [
        [_cut(str(a.get("title", ""))), _cut(str(a.get("explanation", "")))] for a in anchors if isinstance(a, dict)
    ]


def _action(action: Action | None) -> dict[str, Any] | None:
    if action is None:
        return None
    fields = {"query": action.query, "text": action.text, "name": action.name, "arguments": plain(action.arguments)}
    problem = action.problem.value if action.problem else None
    return {"type": action.type.value} | {k: v for k, v in {**fields, "problem": problem}.items() if v is not None}


def _with_references(span: Span, texts: Texts) -> list[str | int]:
    """The span's text in pieces; a passage that it shows word for word is the passage's index in ``texts``."""
    pieces: list[str | int] = []
    rest = span.text
    for document in span.documents:
        before, found, after = rest.partition(document.text) if document.text else (rest, "", "")
        if found:
            pieces += [before, texts.add(document.text)] if before else [texts.add(document.text)]
            rest = after
    return [*pieces, _cut(rest)] if rest else pieces


def _log_ratios(span: Span) -> list[float] | None:
    """log(new / old) of each token; None where the span lacks either."""
    if span.new_logprobs is None:
        return None
    old = span.old_logprobs or span.logprobs
    return None if old is None else [new - before for new, before in zip(span.new_logprobs, old, strict=True)]


def _thousandths(value: float) -> int | None:
    """A log-probability in thousandths; None where it is not finite."""
    return round(value * 1000) if math.isfinite(value) else None


def _cut(text: str) -> str:
    if len(text) <= TEXT_LIMIT:
        return text
    return f"{text[:TEXT_LIMIT]} … ({len(text) - TEXT_LIMIT:,} more characters are not in this report)"


# ---------------------------------------------------------------------------------------------------------------------
# Evidence


def _found(trajectory: Trajectory) -> bool | None:
    """Whether a golden answer stands in a passage; None without passages, or where every answer is yes or no."""
    answers = [a for a in trajectory.golden_answers if a.strip().casefold() not in _CLOSED]
    texts = [d.text for span in trajectory.spans for d in span.documents if d.text]
    if not answers or not texts:
        return None
    return any(_stands_in(answer, text) for text in texts for answer in answers)


@lru_cache(1 << 16)
def _stands_in(answer: str, text: str) -> bool:
    return bool(_words(text).find(answer))


@lru_cache(1 << 12)
def _words(text: str) -> Words:
    return Words.of(text)
