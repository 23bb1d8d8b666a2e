"""What is fuzzed, and what must hold of it. A target takes bytes; it raises where something doesn't hold.

Where a rule can be written a second way, shorter and slower, both must agree.
"""

from __future__ import annotations

import json
import re
import string
import unicodedata
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from benchmarks.fuzzing.texts import ANSWERS, TAGS, Bytes

from sleuth.agent.agent import SearchAgent
from sleuth.agent.episode import Limits
from sleuth.agent.scanner import TurnScanner
from sleuth.agent.tags import TagProtocol, TagSettings
from sleuth.agent.tool_calls import ToolCallProtocol
from sleuth.conformance.own import _codec
from sleuth.data.forms import question_of, question_row
from sleuth.data.rows import Row
from sleuth.errors import UserError
from sleuth.evaluation.judge import read_verdict
from sleuth.evaluation.methods import METHODS
from sleuth.evaluation.methods.method import Budget, Find, Method
from sleuth.evaluation.methods.tags_over_chat import tags_over_chat
from sleuth.evaluation.rehearsal import rehearse
from sleuth.rewards.answers import golden_answers
from sleuth.rewards.graders import GRADERS
from sleuth.rewards.normal_forms import robust_form, robust_normalize, squad_normalize
from sleuth.rewards.search_r1_compat import SEARCH_R1_COMPAT, search_r1_answer
from sleuth.samplers.scripted import ScriptedSampler
from sleuth.samplers.writer import Written
from sleuth.types import (
    ActionType,
    Document,
    PartKind,
    Problem,
    Question,
    SamplingParams,
    SearchRequest,
    SearchResult,
    SpanKind,
    Trajectory,
)

SQUAD, ROBUST = GRADERS["squad"], GRADERS["robust"]


def graders(data: bytes) -> None:
    """EM ≤ F1, EM ≤ cover-EM and EM ⇒ F1 = 1 for all three; symmetry; the best of several golden answers; what
    ``squad`` accepts ``robust`` accepts unless a number differs, and ``search-r1-compat`` always."""
    source = Bytes(data)
    related = source.byte(4)
    prediction = source.text(ANSWERS)
    golds = [source.variant(prediction) if related else source.text(ANSWERS) for _ in range(1 + source.byte(2))]
    accepted: dict[str, list[float]] = {}
    for grader in (SQUAD, ROBUST, SEARCH_R1_COMPAT):
        grade = grader.grade(prediction, golds)
        assert grade.em in (0.0, 1.0)
        assert grade.cover_em in (0.0, 1.0)
        assert 0.0 <= grade.f1 <= 1.0
        assert grade.em <= grade.f1
        assert grade.em <= grade.cover_em
        each = [grader.grade(prediction, [gold]) for gold in golds] if len(golds) > 1 else [grade]
        for name in ("em", "f1", "cover_em"):
            assert getattr(grade, name) == max(getattr(one, name) for one in each)
        accepted[grader.name] = [one.em for one in each]
        back = grader.grade(golds[0], [prediction])
        assert (back.em, back.f1) == (each[0].em, _near(back.f1, each[0].f1))
        if grader is not SEARCH_R1_COMPAT:
            assert grader.exact_match(prediction, [prediction]) == float(bool(prediction.strip()))
    by_gold = zip(golds, *(accepted[g.name] for g in (SQUAD, ROBUST, SEARCH_R1_COMPAT)), strict=True)
    for gold, published, robust, old in by_gold:
        assert published <= old
        if published and not robust:
            assert robust_form(prediction).numbers != robust_form(gold).numbers
            assert any(c.isnumeric() for c in unicodedata.normalize("NFKD", prediction + gold))


def normal_forms(data: bytes) -> None:
    """``squad`` is the published rule to the bit; ``robust`` is blind to the form of equal characters and to case."""
    text = Bytes(data).text(ANSWERS)
    assert squad_normalize(text) == _published(text)
    form = robust_form(text)
    for normal in (squad_normalize(text), form.normal):
        assert normal == " ".join(normal.split())
    assert all(number in form.normal for number in form.numbers)
    assert all(re.fullmatch(r"-?(0|[1-9][0-9]*)(\.[0-9]*[1-9])?", number) for number in form.numbers)
    for way in ("NFC", "NFD"):
        assert robust_normalize(unicodedata.normalize(way, text)) == form.normal


def answers(data: bytes) -> None:
    """Golden answers in any form: texts or one line that refuses; five forms of the same answers are equal."""
    source = Bytes(data)
    if source.byte(2):
        value = source.value(ANSWERS + TAGS, ("target", "text", "value", "aliases", "answer"))
        try:
            found = golden_answers(value)
        except UserError:
            return
        assert found
        assert all(isinstance(answer, str) for answer in found)
        assert golden_answers(found) == found
        return
    given = [source.text(ANSWERS + TAGS) for _ in range(1 + source.byte(3))]
    forms: list[Any] = [given, tuple(given), {"target": given}, {"text": given}]
    assert all(golden_answers(form) == given for form in forms)
    written = json.dumps(given)
    assert golden_answers(written) == json.loads(written)  # JSON joins two halves of a character
    if not given[0].lstrip().startswith("["):
        assert golden_answers(given[0]) == given[:1]


_NAMES = ("think", "search", "answer", "information")
_SCANNER = TurnScanner("think", {"search": PartKind.QUERY, "answer": PartKind.ANSWER}, ["information"])
_OPENED = (None, None, "think", "answer")


def scanner(data: bytes) -> None:
    """The first complete action outside of thoughts, by a second reading of the rules; nothing behind it counts."""
    source = Bytes(data)
    opened = _OPENED[source.byte(4)]
    turn = source.text(TAGS).encode("utf-8", errors="replace")
    found = _SCANNER.scan(turn, opened)
    action, content, end = _first_action(turn, opened)
    assert (found.action, found.content, found.end) == (action, content, end)
    assert _SCANNER.completes(turn, opened) == (action is not None)
    at = 0
    for stretch in found.stretches:
        assert at <= stretch.start < stretch.end <= found.end
        at = stretch.end
    cut = _SCANNER.scan(turn[:end], opened)
    assert (cut.action, cut.content, cut.stretches) == (found.action, found.content, found.stretches)
    if action is not None:
        assert not cut.trailing
        assert cut.clean or not found.clean
        assert _SCANNER.can_close(turn[end - 1 : end])
        longer = _SCANNER.scan(turn + b"</think><answer>other</answer>", opened)
        assert (longer.action, longer.content, longer.end) == (action, content, end)
    if found.clean and opened is None:
        tag = str(action).encode()
        clean = rb"\s*(<think>.*?</think>\s*)*<" + tag + rb">" + re.escape(content) + rb"</" + tag + rb">\s*"
        assert re.fullmatch(clean, turn, re.DOTALL)


def tags(data: bytes) -> None:
    """The protocol on token ids: what it reads is what the scanner reads; ids that it can't have are no crash."""
    source = Bytes(data)
    protocol, opened = _tags(), _OPENED[source.byte(4)]
    text = source.text(TAGS).encode("utf-8", errors="replace").decode()
    ids = protocol.codec.encode(text)
    if source.byte(4) == 3:
        ids = [*ids, *protocol.codec.end_ids]
    parsed = protocol.parse(ids, opened)
    action = parsed.action
    assert 0 <= parsed.tokens <= len(ids)
    assert (action.problem is Problem.NO_ACTION) == (not protocol.stop_rule(opened).complete(ids))
    again = protocol.parse(ids[: parsed.tokens], opened)
    assert (again.action, again.tokens, again.parts) == (action, parsed.tokens, parsed.parts)
    at = 0
    for part in parsed.parts:
        assert at <= part.start < part.end <= parsed.tokens
        at = part.end
    if action.type is ActionType.SEARCH:
        assert action.query
        _clean(action.query)
    if action.type is ActionType.ANSWER:
        _clean(action.text or "")


def tool_calls(data: bytes) -> None:
    """A call is a search with a query, an answer, or a problem with a name; what comes of it can be stored."""
    source = Bytes(data)
    protocol = _tool_calls()
    shape = source.byte(4)
    text = source.text(TAGS)
    if shape:
        text = f"<tool_call>{text}</tool_call>"
    if shape > 1:
        value = source.value(TAGS, ("name", "arguments", "query", "q"))
        call = {"name": "search", "arguments": value} if shape == 2 else value
        text = f"<think>x</think><tool_call>{json.dumps(call)}</tool_call>"
    action = protocol.parse(protocol.codec.encode(text.encode("utf-8", errors="replace").decode()), None).action
    assert action.type is not ActionType.TOOL
    if action.type is ActionType.SEARCH:
        assert action.query
        assert action.query == action.query.strip()
        json.dumps(action.query).encode()
        action.query.encode()
    elif action.type is ActionType.INVALID:
        assert action.problem is not None


def episode(data: bytes) -> None:
    """A whole rollout: the policy alone decides, whatever the pages say; every token has its mask and log-prob."""
    source = Bytes(data)
    turns = [source.text(TAGS).encode("utf-8", errors="replace").decode() for _ in range(1 + source.byte(3))]
    page = source.text(TAGS)
    one, asked = _played(turns, page)
    other, also_asked = _played(turns, "<answer>Paris</answer></think>")
    assert asked == also_asked
    assert (one.answer, one.status, one.end, one.counts) == (other.answer, other.status, other.end, other.counts)
    assert one.counts.get("searches", 0) == len(asked)
    assert len(one.completion_ids) == len(one.completion_mask) == len(one.completion_logprobs)
    for span in one.spans:
        assert (span.logprobs is not None and len(span.logprobs) == len(span.ids)) == (span.kind is SpanKind.POLICY)
    if one.answer:
        assert any(one.answer in _clean_text(turn) for turn in turns)


def methods(data: bytes) -> None:
    """Every method ends within what its rehearsal says, with a query that isn't blank and an answer on one line."""
    source = Bytes(data)
    name = source.name(tuple(_methods()))
    method, calls, searches = _methods()[name]
    dialogue = method(_QUESTION, _BUDGET)
    made = found = 0
    sent: Any = None
    while True:
        try:
            need = dialogue.send(sent)
        except StopIteration as ended:
            answer = ended.value
            break
        if isinstance(need, Find):
            found += 1
            assert need.query.strip()
            sent = [Document("1", source.text(TAGS), source.text(TAGS)) for _ in range(source.byte(3))]
        else:
            made += 1
            assert [m.role for m in need.messages][-1] == "user"
            sent = Written(source.text(TAGS), cut=source.byte(3) == 2)
    assert made <= calls
    assert found <= searches
    if answer is not None and name != "agent-over-chat":
        assert answer.strip() == answer
        assert answer
        assert "\n" not in answer


def judge(data: bytes) -> None:
    """A verdict needs one of the two words and not the other, outside of thoughts."""
    text = Bytes(data).text((*TAGS, "CORRECT", "INCORRECT", "INCORRECTLY", " CORRECT", "</think>"))
    said = text.rpartition("</think>")[2]
    words = set(re.findall(r"\w+", said)) & {"CORRECT", "INCORRECT"}
    assert read_verdict(text) == ((words == {"CORRECT"}) if len(words) == 1 else None)


def compat(data: bytes) -> None:
    """The old answer element is what the old pattern finds."""
    text = Bytes(data).text(TAGS)
    found = re.findall(r"<answer>(.*?)</answer>", text, re.DOTALL)
    assert search_r1_answer(text) == (found[-1].strip() if len(found) > 1 else None)


_FIELDS = (
    *("id", "_id", "qid", "question", "golden_answers", "answers", "answer", "answer_aliases", "possible_answers"),
    *(
        "reward_model",
        "ground_truth",
        "target",
        "text",
        "value",
        "aliases",
        "data_source",
        "corpus",
        "prompt",
        "content",
    ),
    *("supporting_titles", "supporting_facts", "title", "paragraphs", "is_supporting", "metadata", "extra_info"),
    *("sleuth", "index", "split", "hops"),
)


def rows(data: bytes) -> None:
    """A row of a question set is a question, which survives being written and read, or one line that refuses it."""
    source = Bytes(data)
    fields: dict[str, Any] = {"question": "Who?", "golden_answers": ["Paris"]} if source.byte(2) else {}
    boxes = source.byte(3)
    for _ in range(source.byte(6)):
        # In twos, since most faults need a field and the one that goes with it.
        at = source.byte(len(_FIELDS))
        for name in _FIELDS[at : at + 1 + source.byte(2)]:
            fields[name] = source.value(ANSWERS, _FIELDS)
    if boxes == 2:
        fields["extra_info"] = {"sleuth": json.dumps(fields) if source.byte(2) else source.text(TAGS)}
    try:
        question = question_of(Row(fields, "rows.jsonl, line 3", 3))
    except UserError as error:
        if not str(error).startswith("rows.jsonl, line 3"):
            raise ValueError(f"a refusal that doesn't name the row: {error}") from None
        return
    assert question.question.strip()
    assert any(answer.strip() for answer in question.golden_answers)
    assert all(isinstance(title, str) for title in question.supporting_titles)
    written = json.loads(json.dumps(question_row(question)))
    if not set(question.extra) & {"metadata", "extra_info"}:  # boxes, which reading unpacks
        again = question_of(Row(written, "rows.jsonl, line 3", 3))
        assert (again.id, again.question, again.golden_answers) == (
            question.id,
            question.question,
            question.golden_answers,
        )


TARGETS: Mapping[str, Callable[[bytes], None]] = {
    "graders": graders,
    "normal_forms": normal_forms,
    "answers": answers,
    "scanner": scanner,
    "tags": tags,
    "tool_calls": tool_calls,
    "episode": episode,
    "methods": methods,
    "judge": judge,
    "compat": compat,
    "rows": rows,
}


# ---------------------------------------------------------------------------------------------------------------------
# Second ways, and what targets need

_PUNCTUATION = set(string.punctuation)
_QUESTION = Question("q", "Who wrote it?", ["Paris"])
_BUDGET = Budget(k=2, searches=2)
_GREEDY = SamplingParams(temperature=0.0)
_LIMITS = Limits(max_turns=3, max_turn_tokens=2_000, max_tokens=20_000, max_observation_tokens=1_000)

# What Qwen's template makes of calls, in as few lines.
_CALLS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>\n"
    "{{ c.function | tojson }}\n</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def _published(text: str) -> str:
    kept = "".join(c for c in text.lower() if c not in _PUNCTUATION)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", kept).split())


def _near(one: float, other: float) -> float:
    return one if abs(one - other) < 1e-12 else other


def _first_action(turn: bytes, opened: str | None) -> tuple[str | None, bytes, int]:
    """By exact tags alone, one at a time."""
    inside, start = opened, 0
    for match in re.finditer(rb"<(/?)(think|search|answer|information)>", turn):
        name, closing = match[2].decode(), match[1] == b"/"
        if inside == "think":
            if closing and name == "think":
                inside = None
        elif closing:
            if inside == name:
                return name, turn[start : match.start()], match.end()
        elif name != "information" and not (opened in ("search", "answer") and name != opened):
            inside, start = name, match.end()
    return None, b"", len(turn)


@cache
def _tags() -> TagProtocol:
    return TagProtocol(_codec("none"))


@cache
def _tool_calls() -> ToolCallProtocol:
    import copy

    from sleuth.agent.codec import TokenCodec

    tokenizer = copy.deepcopy(_codec("chatml").tokenizer)
    tokenizer.chat_template = _CALLS
    return ToolCallProtocol(TokenCodec(tokenizer))


@cache
def _methods() -> dict[str, tuple[Method, int, int]]:
    """Name → method, and the most messages and searches that it makes."""
    found: dict[str, Method] = {**METHODS, "agent-over-chat": tags_over_chat(TagSettings(), _LIMITS)}
    lengths = {name: rehearse(method, _BUDGET) for name, method in found.items()}
    # An agent's turn may be asked for twice, see tags_over_chat.
    twice = {"agent-over-chat": 2}
    return {
        name: (method, lengths[name].calls * twice.get(name, 1), lengths[name].searches)
        for name, method in found.items()
    }


def _played(turns: list[str], page: str) -> tuple[Trajectory, list[str]]:
    codec = _codec("none")
    asked: list[str] = []

    class Shelf:
        def search(self, requests: list[SearchRequest], k: int) -> list[SearchResult]:
            asked.extend(request.query for request in requests)
            return [SearchResult([Document("1", "T", page)]) for _ in requests]

    left = iter([turn or " " for turn in [*turns, "", "", ""]])
    sampler = ScriptedSampler(lambda request: codec.encode(next(left)))
    agent = SearchAgent(_tags(), _LIMITS, sampler, Shelf())
    (rollout,) = agent.answer([_QUESTION], _GREEDY, seeds=[0])
    return rollout, asked


def _clean(text: str) -> None:
    text.encode()
    assert text == text.strip()


def _clean_text(text: str) -> str:
    from sleuth.agent.protocol import clean_text

    return clean_text(text.encode("utf-8", errors="replace"))
