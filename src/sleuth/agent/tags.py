"""Search-R1's way of talking: thoughts, queries and answers in tags, all in one assistant turn (arXiv 2503.09516, §3).

    <think> … </think> <search> query </search> <information> passages </information> … <answer> … </answer>

Names, prompt and texts are settings: SAPO's variant is ``information="documents"``; ``prepend_think`` lets the
environment open every thought (CalibAdv's released set-up).
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ConfigDict, Field

from sleuth.agent.codec import TokenCodec
from sleuth.agent.protocol import AgentProtocol, ParsedTurn, Rendered, clean_text, completed_tokens
from sleuth.agent.scanner import ScannedTurn, TurnScanner, token_parts
from sleuth.types import Action, ActionType, Document, PartKind, Problem, Question, Span, SpanKind, StopRule, Tool

PROMPT = """\
Find the answer to a question with the help of a search engine. Work in turns. Each turn starts with your reasoning \
between <{think}> and </{think}>, followed by exactly one action. To look something up, write a short query between \
<{search}> and </{search}>; passages from the search engine then appear between <{information}> and </{information}>. \
Search again as often as you need. As soon as you know, give the answer alone, in as few words as possible, between \
<{answer}> and </{answer}>: for example <{answer}> Lake Victoria </{answer}>.
Question: {question}"""


class TagSettings(BaseModel):
    """Settings of the tag protocol. Texts may use the tag names as ``{think}``, ``{search}``, ….

    Attributes:
        prompt: must contain ``{question}``.
        system: system message, used with a chat template only.
        chat: render the prompt through the tokenizer's chat template; None: if it has one.
        document: one passage; ``{n}`` counts from 1.
        require_think: a well-formed turn has one thought before its action.
    """

    model_config = ConfigDict(extra="forbid")

    think: str = "think"
    search: str = "search"
    information: str = "information"
    answer: str = "answer"
    prompt: str = PROMPT
    system: str | None = None
    chat: bool | None = None
    prepend_think: bool = False
    require_think: bool = True
    document: str = "Doc {n}(Title: {title}) {text}"
    document_separator: str = "\n"
    observation: str = "\n\n<{information}>{documents}</{information}>\n\n"
    no_results: str = "Nothing was found for this query."
    hint: str = (
        "\nThis was not a valid action. Write a query between <{search}> and </{search}>, "
        "or the final answer between <{answer}> and </{answer}>.\n"
    )
    max_document_tokens: int | None = Field(default=None, ge=1)


class TagProtocol(AgentProtocol):
    """See the module. ``tools``: a tool ``calc`` is called by ``<calc> text </calc>``, its first parameter gets the text."""

    def __init__(self, codec: TokenCodec, settings: TagSettings | None = None, tools: Mapping[str, Tool] | None = None):
        super().__init__(codec, tools)
        s = self.settings = settings or TagSettings()
        self._names = {"think": s.think, "search": s.search, "information": s.information, "answer": s.answer}
        kinds = {s.search: PartKind.QUERY, s.answer: PartKind.ANSWER} | dict.fromkeys(self.tools, PartKind.QUERY)
        self._scanner = TurnScanner(s.think, kinds, environment=[s.information])
        self._closings = tuple(f"</{name}>" for name in kinds)
        self._ends = [codec.decode([i]).encode() for i in codec.end_ids]
        # Of the tokens with a '>' in them, those that are exactly another tag of ours can't close an action.
        others = {f"<{n}>".encode() for n in [s.think, s.information, *kinds]}
        others |= {f"</{s.think}>".encode(), f"</{s.information}>".encode()}
        closers = codec.ids_containing(b">")
        self._triggers = frozenset(i for i, piece in closers.items() if piece.strip() not in others)

    def prompt(self, question: Question) -> Span:
        text = self._fill(self.settings.prompt, question=question.question)
        chat = self.settings.chat if self.settings.chat is not None else self.codec.chat_template is not None
        if chat:
            messages = [{"role": "user", "content": text}]
            if self.settings.system is not None:
                messages.insert(0, {"role": "system", "content": self.settings.system})
            text = self.codec.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return Span(SpanKind.PROMPT, self.codec.encode(text), text)

    def opening(self, last: bool) -> tuple[str, str | None]:
        if last:
            return f"<{self.settings.answer}>", self.settings.answer
        if self.settings.prepend_think:
            return f"<{self.settings.think}>", self.settings.think
        return "", None

    def parse(self, ids: Sequence[int], opened: str | None) -> ParsedTurn:
        pieces = self.codec.pieces(ids)
        scanned = self._scanner.scan(b"".join(pieces), opened, self._ends)
        tokens = completed_tokens(pieces, scanned)
        return ParsedTurn(
            action=self._action(scanned),
            tokens=tokens,
            parts=token_parts(pieces[:tokens], scanned.stretches),
            valid=self._valid(scanned, opened),
            malformed=scanned.malformed,
            trailing=scanned.trailing,
        )

    def stop_rule(self, opened: str | None) -> StopRule:
        def complete(ids: Sequence[int]) -> bool:
            return self._scanner.scan(b"".join(self.codec.pieces(ids)), opened).action is not None

        return StopRule(complete, self._triggers, self.codec.end_ids, self._closings)

    def observation(self, documents: Sequence[Document], ended: bool) -> Rendered:
        if not documents:
            return self._render(self.settings.no_results)
        limit = self.settings.max_document_tokens
        shown = []
        for n, document in enumerate(documents, start=1):
            text = document.text if limit is None else self.codec.cut(document.text, limit)
            shown.append(self.settings.document.format(n=n, title=document.title, text=text))
        return self._render(self.settings.document_separator.join(shown))

    def tool_result(self, text: str, ended: bool) -> Rendered:
        return self._render(text)

    def hint(self, action: Action, ended: bool) -> str:
        return self._fill(self.settings.hint)

    def _fill(self, text: str, **values: str) -> str:
        # Not str.format: a prompt may hold braces of its own.
        for name, value in {**self._names, **values}.items():
            text = text.replace("{" + name + "}", value)
        return text

    def _render(self, body: str) -> Rendered:
        head, _, tail = self._fill(self.settings.observation).partition("{documents}")
        return Rendered(head, body, tail)

    def _action(self, scanned: ScannedTurn) -> Action:
        if scanned.action is None:
            return Action(ActionType.INVALID, problem=Problem.NO_ACTION)
        text = clean_text(scanned.content)
        if scanned.action == self.settings.answer:
            return Action(ActionType.ANSWER, text=text)
        if not text:
            return Action(ActionType.INVALID, problem=Problem.EMPTY_QUERY)
        if scanned.action == self.settings.search:
            return Action(ActionType.SEARCH, query=text)
        parameter = next(iter(inspect.signature(self.tools[scanned.action]).parameters))
        return Action(ActionType.TOOL, name=scanned.action, arguments={parameter: text})

    def _valid(self, scanned: ScannedTurn, opened: str | None) -> bool:
        if opened == self.settings.answer or not self.settings.require_think:
            clean = not (scanned.malformed or scanned.stray or scanned.free or scanned.trailing)
            return clean and scanned.action is not None
        return scanned.well_formed
