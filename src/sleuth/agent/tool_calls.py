"""Native tool calls: JSON in ``<tool_call>`` tags, the environment's side through the tokenizer's chat template.

The form of Qwen2.5/Qwen3 and Hermes. The policy's turn stops at ``</tool_call>``; the end-of-turn token and everything
else that the template puts between two turns is written by the environment, so it is never trained. The conversation is
only ever appended to: sampled ids are not rendered again, and a template that would drop earlier reasoning (Qwen3's)
gets no chance to, so the policy keeps seeing what it was trained on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from sleuth.agent.codec import TokenCodec
from sleuth.agent.protocol import AgentProtocol, ParsedTurn, Rendered, clean_text, completed_tokens
from sleuth.agent.scanner import ScannedTurn, TurnScanner, token_parts
from sleuth.errors import UserError
from sleuth.types import Action, ActionType, Document, PartKind, Problem, Question, Span, SpanKind, StopRule, Tool

PROMPT = """\
Answer the question below. You can look things up with the tool `search`, once a turn and as often as you need. Reason \
between <think> and </think> before each call. As soon as you know, give the answer alone, in as few words as possible, \
between <answer> and </answer>: for example <answer> Lake Victoria </answer>.
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

_POLICY, _BODY = "Sleuth-policy-turn", "Sleuth-environment-body"


class ToolCallSettings(BaseModel):
    """Settings of the tool-call protocol; texts as in :class:`sleuth.agent.tags.TagSettings`."""

    model_config = ConfigDict(extra="forbid")

    prompt: str = PROMPT
    system: str | None = None
    prepend_think: bool = False
    require_think: bool = False
    document: str = "Doc {n}(Title: {title}) {text}"
    document_separator: str = "\n"
    no_results: str = "Nothing was found for this query."
    hint: str = (
        "This was not a valid action. Call the tool `search`, or give the answer between <answer> and </answer>."
    )
    max_document_tokens: int | None = Field(default=None, ge=1)


class ToolCallProtocol(AgentProtocol):
    """See the module.

    Raises:
        UserError: the tokenizer has no chat template, or one that doesn't show tool messages.
    """

    def __init__(
        self, codec: TokenCodec, settings: ToolCallSettings | None = None, tools: Mapping[str, Tool] | None = None
    ):
        super().__init__(codec, tools)
        self.settings = settings or ToolCallSettings()
        if codec.chat_template is None:
            raise UserError("protocol tool_calls: this tokenizer has no chat template; use protocol.kind=tags")
        self._schemas = [SEARCH_SCHEMA]
        if self.tools:
            from transformers.utils import get_json_schema

            self._schemas += [get_json_schema(tool) for tool in self.tools.values()]
        self._tool = self._between("tool")
        self._user = self._between("user")
        self._scanner = TurnScanner(
            "think", {"tool_call": PartKind.QUERY, "answer": PartKind.ANSWER}, ["tool_response"]
        )
        self._ends = [codec.decode([i]).encode() for i in codec.end_ids]
        self._triggers = frozenset(codec.ids_containing(b">"))

    def prompt(self, question: Question) -> Span:
        text = self._render(
            self._messages(self.settings.prompt.replace("{question}", question.question)), add_generation_prompt=True
        )
        return Span(SpanKind.PROMPT, self.codec.encode(text), text)

    def opening(self, last: bool) -> tuple[str, str | None]:
        if last:
            return "<answer>", "answer"
        return ("<think>", "think") if self.settings.prepend_think else ("", None)

    def parse(self, ids: Sequence[int], opened: str | None) -> ParsedTurn:
        pieces = self.codec.pieces(ids)
        scanned = self._scanner.scan(b"".join(pieces), opened, self._ends)
        tokens = completed_tokens(pieces, scanned)
        action = self._action(scanned)
        clean = not (scanned.malformed or scanned.stray or scanned.free or scanned.trailing)
        thought = scanned.thoughts == 1 if self.settings.require_think else scanned.thoughts <= 1
        return ParsedTurn(
            action=action,
            tokens=tokens,
            parts=token_parts(pieces[:tokens], scanned.stretches),
            valid=clean and action.type is not ActionType.INVALID and (thought or opened == "answer"),
            malformed=scanned.malformed,
            trailing=scanned.trailing,
        )

    def stop_rule(self, opened: str | None) -> StopRule:
        def complete(ids: Sequence[int]) -> bool:
            return self._scanner.scan(b"".join(self.codec.pieces(ids)), opened).action is not None

        return StopRule(complete, self._triggers, self.codec.end_ids, ("</tool_call>", "</answer>"))

    def observation(self, documents: Sequence[Document], ended: bool) -> Rendered:
        limit = self.settings.max_document_tokens
        shown = [
            self.settings.document.format(
                n=n, title=d.title, text=d.text if limit is None else self.codec.cut(d.text, limit)
            )
            for n, d in enumerate(documents, start=1)
        ]
        body = self.settings.document_separator.join(shown) if shown else self.settings.no_results
        return self.tool_result(body, ended)

    def tool_result(self, text: str, ended: bool) -> Rendered:
        head, tail = self._tool
        return Rendered(self._without_end(head) if ended else head, text, tail)

    def hint(self, action: Action, ended: bool) -> str:
        head, tail = self._user
        return (self._without_end(head) if ended else head) + self.settings.hint + tail

    def _messages(self, content: str) -> list[dict[str, str]]:
        system = [{"role": "system", "content": self.settings.system}] if self.settings.system is not None else []
        return [*system, {"role": "user", "content": content}]

    def _render(self, messages: list[dict[str, str]], add_generation_prompt: bool) -> str:
        return self.codec.tokenizer.apply_chat_template(
            messages, tools=self._schemas, tokenize=False, add_generation_prompt=add_generation_prompt
        )

    def _between(self, role: str) -> tuple[str, str]:
        """What the template writes between a policy turn and a message of ``role``, and between that and the next turn."""
        messages = [*self._messages("q"), {"role": "assistant", "content": _POLICY}, {"role": role, "content": _BODY}]
        text = self._render(messages, add_generation_prompt=True)
        head, found, tail = text.partition(_POLICY)[2].partition(_BODY)
        if not found or _BODY in tail:
            raise UserError(
                f"protocol tool_calls: this chat template doesn't show {role!r} messages; use protocol.kind=tags"
            )
        return head, tail

    def _without_end(self, head: str) -> str:
        # The policy closed its turn itself: what the template writes for that must not stand there twice.
        for end in sorted((e.decode() for e in self._ends), key=len, reverse=True):
            if end and head.startswith(end):
                return head[len(end) :]
        return head

    def _action(self, scanned: ScannedTurn) -> Action:
        if scanned.action is None:
            return Action(ActionType.INVALID, problem=Problem.NO_ACTION)
        text = clean_text(scanned.content)
        if scanned.action == "answer":
            return Action(ActionType.ANSWER, text=text)
        try:
            call = json.loads(text)
            name, arguments = call["name"], call.get("arguments", {})
            arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return Action(ActionType.INVALID, problem=Problem.MALFORMED_CALL)
        if not isinstance(arguments, dict):
            return Action(ActionType.INVALID, problem=Problem.MALFORMED_CALL)
        if name == "search":
            query = arguments.get("query")
            if not isinstance(query, str):
                return Action(ActionType.INVALID, problem=Problem.MALFORMED_CALL)
            query = query.replace("\x00", "\ufffd").strip()
            if not query:
                return Action(ActionType.INVALID, problem=Problem.EMPTY_QUERY)
            return Action(ActionType.SEARCH, query=query)
        if name not in self.tools:
            return Action(ActionType.INVALID, problem=Problem.UNKNOWN_TOOL)
        return Action(ActionType.TOOL, name=name, arguments=arguments)
