"""Search-R1's way of talking: thoughts, queries and answers in tags, all in one assistant turn (arXiv 2503.09516, §3).

    <think> … </think> <search> query </search> <information> passages </information> … <answer> … </answer>

Names, prompt and texts are settings: SAPO's variant is ``information="documents"``; ``prepend_think`` lets the
environment open every thought (CalibAdv's released set-up).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field, model_validator

from sleuth.agent.chat import ChatTemplate
from sleuth.agent.codec import TokenCodec, valid_text
from sleuth.agent.passages import PassageSettings
from sleuth.agent.protocol import AgentProtocol, ParsedTurn, Rendered, clean_text
from sleuth.agent.reader import TurnReader
from sleuth.agent.scanner import ScannedTurn, TurnScanner
from sleuth.errors import UserError
from sleuth.types import Action, ActionType, Document, PartKind, Problem, Question, Span, SpanKind, StopRule, Tool

PROMPT = """\
Find the answer to a question with the help of a search engine. Work in turns. Each turn starts with your reasoning \
between <{think}> and </{think}>, followed by exactly one action. To look something up, write a short query between \
<{search}> and </{search}>; passages from the search engine then appear between <{information}> and </{information}>. \
Search again as often as you need. As soon as you know, give the answer alone, in as few words as possible, between \
<{answer}> and </{answer}>: for example <{answer}> Lake Victoria </{answer}>.
Question: {question}"""


class TagSettings(PassageSettings):
    """Settings of the tag protocol. Texts may use the tag names as ``{think}``, ``{search}``, ….

    Attributes:
        prompt: must contain ``{question}``.
        system: system message, used with a chat template only.
        chat: render the prompt through the tokenizer's chat template; None: if it has one.
        chat_template_kwargs: more variables for the chat template, e.g. ``enable_thinking: false``.
        prepend_think: the environment opens the thought of every turn.
        require_think: a well-formed turn has exactly one thought before its action; otherwise at most one.
        observation: must contain ``{documents}``, once.
    """

    think: str = "think"
    search: str = "search"
    information: str = "information"
    answer: str = "answer"
    prompt: str = PROMPT
    system: str | None = None
    chat: bool | None = None
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
    prepend_think: bool = False
    require_think: bool = True
    observation: str = "\n\n<{information}>{documents}</{information}>\n\n"
    hint: str = (
        "\nThis was not a valid action. Write a query between <{search}> and </{search}>, "
        "or the final answer between <{answer}> and </{answer}>.\n"
    )

    @model_validator(mode="after")
    def _usable(self) -> TagSettings:
        names = [self.think, self.search, self.information, self.answer]
        for name in names:
            if not _TAG_NAME.fullmatch(name):
                raise ValueError(f"{name!r} can't be a tag name: use letters, digits, '_', '-', '.'")
        if len({name.casefold() for name in names}) < len(names):
            raise ValueError(f"think, search, information and answer need four different names, not {names}")
        if "{question}" not in self.prompt:
            raise ValueError("prompt must contain {question}")
        if self.observation.count("{documents}") != 1:
            raise ValueError("observation must contain {documents} once")
        return self


_TAG_NAME = re.compile(r"[\w.-]+")


class TagProtocol(AgentProtocol):
    """See the module. A tool ``calc`` is called by ``<calc> text </calc>``; its first parameter gets the text.

    All turns are one assistant turn, which goes on behind an observation. If the policy ends that turn by an
    end-of-turn token and a chat template is in use, a hint comes as the next user message.

    Raises:
        UserError: a tool's name is taken or no tag name, or it has no parameter to get the text; ``chat`` without a
            chat template.
    """

    def __init__(self, codec: TokenCodec, settings: TagSettings | None = None, tools: Mapping[str, Tool] | None = None):
        super().__init__(codec, tools)
        s = self.settings = settings or TagSettings()
        self._names = {"think": s.think, "search": s.search, "information": s.information, "answer": s.answer}
        self._parameters = {name: self._first_parameter(name, tool) for name, tool in self.tools.items()}
        kinds = {s.search: PartKind.QUERY, s.answer: PartKind.ANSWER} | dict.fromkeys(self.tools, PartKind.QUERY)
        scanner = TurnScanner(s.think, kinds, environment=[s.information])
        self._reader = TurnReader(codec, scanner, self._action, s.require_think)
        chat = s.chat if s.chat is not None else codec.chat_template is not None
        self._chat = ChatTemplate(codec, s.system, settings=s.chat_template_kwargs) if chat else None
        head, _, tail = self._fill(s.observation).partition("{documents}")
        self._information = head, tail
        self._hint = self._fill(s.hint)
        self._hint_message = self._hint
        if self._chat is not None:
            head, tail = self._chat.between("user")
            self._hint_message = self._chat.without_end(head) + self._hint.strip() + self._own_thought(tail)

    def prompt(self, question: Question) -> Span:
        asked = valid_text(question.question)
        text = self._fill(self.settings.prompt, question=asked)
        if self._chat is not None:
            text = self._own_thought(self._chat.prompt(text))
        return Span(SpanKind.PROMPT, self.codec.encode_start(text, bos=self._chat is None, foreign=asked.strip()), text)

    def opening(self, last: bool) -> tuple[str, str | None]:
        if last:
            return f"<{self.settings.answer}>", self.settings.answer
        if self.settings.prepend_think:
            return f"<{self.settings.think}>", self.settings.think
        return "", None

    def parse(self, ids: Sequence[int], opened: str | None) -> ParsedTurn:
        return self._reader.read(ids, opened)

    def write_turn(self, thought: str, action: Action, last: bool = False) -> str:
        s = self.settings
        _, opened = self.opening(last)
        if opened == s.answer:
            return f" {action.text} </{s.answer}>"
        name, content = (s.search, action.query) if action.type is ActionType.SEARCH else (s.answer, action.text)
        turn = f" {thought} </{s.think}> <{name}> {content} </{name}>"
        return turn if opened == s.think else f"<{s.think}>{turn}"

    def stop_rule(self, opened: str | None) -> StopRule:
        return self._reader.stop_rule(opened)

    def observation(self, documents: Sequence[Document], ended: bool) -> Rendered:
        return self.tool_result(self.settings.show(documents, self.codec), ended)

    def tool_result(self, text: str, ended: bool) -> Rendered:
        head, tail = self._information
        return Rendered(head, text, tail)

    def hint(self, action: Action, ended: bool) -> str:
        return self._hint_message if ended else self._hint

    def _own_thought(self, text: str) -> str:
        # A template for reasoning models opens the first thought itself. Here a thought is the policy's to open, or
        # prepend_think's; opened twice it would never be closed.
        return re.sub(rf"<{re.escape(self.settings.think)}>\s*$", "", text)

    def _fill(self, text: str, **values: str) -> str:
        # Not str.format: a prompt may hold braces of its own.
        for name, value in {**self._names, **values}.items():
            text = text.replace("{" + name + "}", value)
        return text

    def _first_parameter(self, name: str, tool: Tool) -> str:
        if name.casefold() in {taken.casefold() for taken in self._names.values()}:
            raise UserError(f"tool {name!r}: this name is one of the protocol's own tags; rename the tool or the tag")
        if not _TAG_NAME.fullmatch(name):
            raise UserError(f"tool {name!r}: no tag can have this name; use letters, digits, '_', '-', '.'")
        parameters = list(inspect.signature(tool).parameters)
        if not parameters:
            raise UserError(f"tool {name!r}: it needs one parameter, which gets the text between its tags")
        return parameters[0]

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
        return Action(ActionType.TOOL, name=scanned.action, arguments={self._parameters[scanned.action]: text})
