"""The agent's tags over an endpoint: the same prompt, actions and limits, but each turn a message of its own.

An endpoint gives text for messages, not ids for ids. What one assistant turn is in training is here several, with the
passages in user messages between them; so figures of the two ways are told apart by their name in every table.
"""

from __future__ import annotations

from sleuth.agent.episode import Limits
from sleuth.agent.scanner import TurnScanner
from sleuth.agent.tags import TagSettings
from sleuth.evaluation.methods.method import Budget, Dialogue, Find, Method, Write, show
from sleuth.samplers.writer import Message
from sleuth.types import PartKind, Question


def tags_over_chat(settings: TagSettings, limits: Limits) -> Method:
    """The method for a policy that talks in these tags within these limits."""
    names = {"think": settings.think, "search": settings.search}
    names |= {"information": settings.information, "answer": settings.answer}
    kinds = {settings.search: PartKind.QUERY, settings.answer: PartKind.ANSWER}
    scanner = TurnScanner(settings.think, kinds, environment=[settings.information])
    system = [] if settings.system is None else [Message("system", settings.system)]
    searches = limits.max_turns - 1 if limits.max_searches is None else limits.max_searches
    closings = tuple(scanner.closings)

    def filled(text: str, **values: str) -> str:
        for name, value in {**names, **values}.items():
            text = text.replace("{" + name + "}", value)
        return text

    def agent(question: Question, budget: Budget) -> Dialogue:
        messages = [*system, Message("user", filled(settings.prompt, question=question.question))]
        asked = 0
        for _ in range(limits.max_turns):
            written = yield Write(tuple(messages), limits.max_turn_tokens, closings)
            if not written.cut and _in_a_thought(written.text, settings.think):
                # It stopped at a tag that is only thought about: once more, to the end, and what is too much is cut.
                written = yield Write(tuple(messages), limits.max_turn_tokens)
            said = _closed(written.text, scanner, closings) if not written.cut else written.text
            turn = scanner.scan(said.encode("utf-8", errors="replace"))
            said = said.encode("utf-8", errors="replace")[: turn.end].decode(errors="replace")
            content = turn.content.decode(errors="replace").strip()
            if turn.action == settings.answer:
                return content
            if turn.action == settings.search and content and asked == searches:
                return None
            if turn.action == settings.search and content:
                asked += 1
                shown = show((yield Find(content)), budget)
                reply = filled(settings.observation, documents=shown).strip()
            else:
                reply = filled(settings.hint).strip()
            messages += [Message("assistant", said), Message("user", reply)]
        return None

    return agent


def _in_a_thought(text: str, think: str) -> bool:
    return text.count(f"<{think}>") > text.count(f"</{think}>")


def _closed(text: str, scanner: TurnScanner, closings: tuple[str, ...]) -> str:
    """``text`` with the closing tag that an endpoint keeps to itself when it stops there, where one completes it."""
    for closing in closings:
        if scanner.completes((text + closing).encode("utf-8", errors="replace")):
            return text + closing
    return text
