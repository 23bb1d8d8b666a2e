"""What a tokenizer's chat template writes around the turns of a conversation, as text.

A conversation is only ever appended to: the template is asked once what stands between a policy turn and the next
message, never to render again what was sampled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from sleuth.agent.codec import TokenCodec
from sleuth.errors import UserError

_POLICY, _BODY = "Sleuth-policy-turn", "Sleuth-environment-body"


class ChatTemplate:
    """The chat template of ``codec``'s tokenizer.

    Args:
        system: system message of every conversation; None: whatever the template does without one.
        tools: JSON schemas of the tools that the template shows.
        settings: more variables for the template, e.g. ``enable_thinking``.

    Raises:
        UserError: there is no template.
    """

    def __init__(
        self,
        codec: TokenCodec,
        system: str | None = None,
        tools: Sequence[dict[str, Any]] | None = None,
        settings: Mapping[str, Any] | None = None,
    ):
        if codec.chat_template is None:
            raise UserError("this tokenizer has no chat template; use protocol.kind=tags with settings.chat=false")
        self._codec = codec
        self._system = [] if system is None else [{"role": "system", "content": system}]
        self._tools = list(tools) if tools else None
        self._settings = dict(settings or {})
        self.prompt = lru_cache(maxsize=256)(self._prompt)
        """User message → text of the whole prompt, up to where the policy's first turn starts."""
        # Longest first: one end token may be the start of another.
        ends = {codec.decode([i]).strip() for i in codec.end_ids}
        self._ends = sorted(ends - {""}, key=len, reverse=True)

    def between(self, role: str) -> tuple[str, str]:
        """What stands between a policy turn and a message of ``role``, and between that message and the next turn.

        Raises:
            UserError: the template doesn't show such messages.
        """
        turns = [{"role": "assistant", "content": _POLICY}, {"role": role, "content": _BODY}]
        text = self.render([{"role": "user", "content": "q"}, *turns], add_generation_prompt=True)
        head, found, tail = text.partition(_POLICY)[2].partition(_BODY)
        if not found or _BODY in tail:
            raise UserError(f"this chat template doesn't show {role!r} messages; use protocol.kind=tags")
        return head, tail

    def without_end(self, head: str) -> str:
        """``head`` behind a turn that the policy ended itself: the end token must not stand there twice."""
        for end in self._ends:
            if head.startswith(end):
                return head[len(end) :]
        return head

    def render(self, messages: Sequence[dict[str, Any]], add_generation_prompt: bool = False) -> str:
        """``messages`` behind the system message, as the template writes them.

        Raises:
            UserError: the template refuses them.
        """
        try:
            return self._codec.tokenizer.apply_chat_template(
                [*self._system, *messages],
                tools=self._tools,
                tokenize=False,
                add_generation_prompt=add_generation_prompt,
                **self._settings,
            )
        except Exception as error:  # a template is a program: it raises what it likes
            said = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise UserError(
                f"this tokenizer's chat template refuses the conversation ({said}); use protocol.kind=tags"
            ) from error

    def _prompt(self, user: str) -> str:
        return self.render([{"role": "user", "content": user}], add_generation_prompt=True)
