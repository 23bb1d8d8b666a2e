"""Native tool calls: JSON in ``<tool_call>`` tags, the environment's side through the tokenizer's chat template.

The form of Qwen2.5/Qwen3 and Hermes. The policy's turn stops at ``</tool_call>``; the end-of-turn token and everything
else that the template puts between two turns is written by the environment, so it is never trained. The conversation
is only ever appended to: sampled ids are not rendered again. A template that would drop earlier reasoning (Qwen3's)
gets no chance to: every later turn sees, and is trained behind, all that the policy sampled.
"""

from __future__ import annotations

import inspect
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field, field_validator

from sleuth.agent.chat import ChatTemplate
from sleuth.agent.codec import TokenCodec, valid_text
from sleuth.agent.passages import PassageSettings
from sleuth.agent.protocol import AgentProtocol, ParsedTurn, Rendered, clean_text
from sleuth.agent.reader import TurnReader
from sleuth.agent.scanner import ScannedTurn, TurnScanner
from sleuth.errors import UserError
from sleuth.types import Action, ActionType, Document, PartKind, Problem, Question, Span, SpanKind, StopRule, Tool

PROMPT = """\
Answer the question below. You can look things up with the tool `search`, once a turn and as often as you need. \
Reason between <think> and </think> before each call. As soon as you know, give the answer alone, in as few words as \
possible, between <answer> and </answer>: for example <answer> Lake Victoria </answer>.
Question: {question}"""

SEARCH_SCHEMA: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Find passages in the document collection.",
        "parameters": {
            "type": "object",
            "properties": {"query": {"type": "string", "description": "What to look for."}},
            "required": ["query"],
        },
    },
}


class ToolCallSettings(PassageSettings):
    """Settings of the tool-call protocol.

    Attributes:
        prompt, system, chat_template_kwargs, prepend_think, require_think: as in
            :class:`sleuth.agent.tags.TagSettings`.
        hint: the text of a user message.
    """

    prompt: str = PROMPT
    system: str | None = None
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
    prepend_think: bool = False
    require_think: bool = False
    hint: str = (
        "This was not a valid action. Call the tool `search`, or give the answer between <answer> and </answer>."
    )

    @field_validator("prompt")
    @classmethod
    def _asks(cls, value: str) -> str:
        if "{question}" not in value:
            raise ValueError("must contain {question}")
        return value


class ToolCallProtocol(AgentProtocol):
    """See the module.

    Raises:
        UserError: the tokenizer has no chat template, or one that writes calls in another form or doesn't show tool
            messages; a tool without type hints or docstring, or one called ``search``.
    """

    def __init__(
        self, codec: TokenCodec, settings: ToolCallSettings | None = None, tools: Mapping[str, Tool] | None = None
    ):
        super().__init__(codec, tools)
        s = self.settings = settings or ToolCallSettings()
        self._signatures = {name: inspect.signature(tool) for name, tool in self.tools.items()}
        schemas = [SEARCH_SCHEMA, *(_schema(name, tool) for name, tool in self.tools.items())]
        self._chat = ChatTemplate(codec, s.system, schemas, s.chat_template_kwargs)
        self._refuse_other_forms()
        self._tool = self._chat.between("tool")
        self._user = self._chat.between("user")
        scanner = TurnScanner("think", {"tool_call": PartKind.QUERY, "answer": PartKind.ANSWER}, ["tool_response"])
        self._reader = TurnReader(codec, scanner, self._action, s.require_think)
        # Templates for reasoning models open the thought of every turn themselves.
        self._template_thinks = self._chat.prompt("q").rstrip().endswith("<think>")

    def prompt(self, question: Question) -> Span:
        asked = valid_text(question.question)
        text = self._chat.prompt(self.settings.prompt.replace("{question}", asked))
        return Span(SpanKind.PROMPT, self.codec.encode_start(text, bos=False, foreign=asked.strip()), text)

    def opening(self, last: bool) -> tuple[str, str | None]:
        if last:
            return ("</think>\n\n<answer>" if self._template_thinks else "<answer>"), "answer"
        if self._template_thinks:
            return "", "think"
        return ("<think>", "think") if self.settings.prepend_think else ("", None)

    def parse(self, ids: Sequence[int], opened: str | None) -> ParsedTurn:
        return self._reader.read(ids, opened)

    def write_turn(self, thought: str, action: Action, last: bool = False) -> str:
        _, opened = self.opening(last)
        if opened == "answer":
            return f" {action.text} </answer>"
        if action.type is ActionType.SEARCH:
            call = json.dumps({"name": "search", "arguments": {"query": action.query}}, ensure_ascii=False)
            acted = f"<tool_call>\n{call}\n</tool_call>"
        else:
            acted = f"<answer> {action.text} </answer>"
        turn = f" {thought} </think>\n{acted}"
        return turn if opened == "think" else f"<think>{turn}"

    def stop_rule(self, opened: str | None) -> StopRule:
        return self._reader.stop_rule(opened)

    def observation(self, documents: Sequence[Document], ended: bool) -> Rendered:
        return self.tool_result(self.settings.show(documents, self.codec), ended)

    def tool_result(self, text: str, ended: bool) -> Rendered:
        head, tail = self._tool
        return Rendered(self._chat.without_end(head) if ended else head, text, tail)

    def hint(self, action: Action, ended: bool) -> str:
        head, tail = self._user
        return (self._chat.without_end(head) if ended else head) + self.settings.hint + tail

    def _refuse_other_forms(self) -> None:
        """The template must teach the form that we read: what it makes of a call has to come back as that call."""
        call = {"type": "function", "function": {"name": "search", "arguments": {"query": "Sleuth-query"}}}
        shown = self._chat.render(
            [
                {"role": "user", "content": "q"},
                {"role": "assistant", "content": "", "tool_calls": [call]},
                {"role": "tool", "content": "found"},
            ]
        )
        calls = re.findall(r"<tool_call>(.*?)</tool_call>", shown, re.DOTALL)
        if not any(self._call(text).query == "Sleuth-query" for text in calls):
            raise UserError(
                "protocol tool_calls: this chat template doesn't write calls as JSON in <tool_call> tags; "
                "use protocol.kind=tags"
            )

    def _action(self, scanned: ScannedTurn) -> Action:
        if scanned.action is None:
            return Action(ActionType.INVALID, problem=Problem.NO_ACTION)
        text = clean_text(scanned.content)
        return Action(ActionType.ANSWER, text=text) if scanned.action == "answer" else self._call(text)

    def _call(self, text: str) -> Action:
        """The call that the JSON ``text`` asks for. Arguments may be an object or, as some models write, its text."""
        malformed = Action(ActionType.INVALID, problem=Problem.MALFORMED_CALL)
        try:
            call = json.loads(text)
            name, arguments = call["name"], call.get("arguments", {})
            arguments = _storable(json.loads(arguments) if isinstance(arguments, str) else arguments)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return malformed
        if not isinstance(name, str) or not isinstance(arguments, dict):
            return malformed
        if name == "search":
            query = arguments.get("query")
            if not isinstance(query, str):
                return malformed
            if not query.strip():
                return Action(ActionType.INVALID, problem=Problem.EMPTY_QUERY)
            return Action(ActionType.SEARCH, query=query.strip())
        if name not in self.tools:
            return Action(ActionType.INVALID, problem=Problem.UNKNOWN_TOOL)
        try:
            self._signatures[name].bind(**arguments)
        except TypeError:  # the policy's mistake, not the tool's
            return malformed
        return Action(ActionType.TOOL, name=name, arguments=arguments)


def _schema(name: str, tool: Tool) -> dict[str, Any]:
    from transformers.utils import get_json_schema

    if name == "search":
        raise UserError("tool 'search': this is the name of the retriever's own tool; call yours something else")
    try:
        schema = get_json_schema(tool)
    except Exception as error:
        said = " ".join(str(error).split())
        raise UserError(f"tool {name!r}: it needs type hints and a docstring with an Args section ({said})") from error
    schema["function"]["name"] = name
    return schema


def _storable(value: Any) -> Any:
    """``value`` as any JSON file can hold it.

    Raises:
        ValueError: it holds a number that JSON has no form for (NaN, infinity).
    """
    if isinstance(value, str):
        return valid_text(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is no JSON number")
    if isinstance(value, list):
        return [_storable(item) for item in value]
    if isinstance(value, dict):
        return {valid_text(key): _storable(item) for key, item in value.items()}
    return value
