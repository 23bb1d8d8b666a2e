"""What the agent loop does, among verl's settings: ``+actor_rollout_ref.rollout.custom.search.…``.

``protocol``, ``limits``, ``retriever`` and ``reward`` are a recipe's (docs/training.md); what verl has settings for
(lengths, model) is taken from there.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from pydantic import Field

from sleuth.agent.asynchronous import SharedRetriever
from sleuth.agent.codec import TokenCodec
from sleuth.agent.episode import Limits
from sleuth.agent.protocol import AgentProtocol
from sleuth.anchors.prompt import TeacherPrompt
from sleuth.assembly import build_protocol, build_retriever, build_tools
from sleuth.errors import UserError
from sleuth.recipes.schema import ProtocolSettings, Recipe, RetrieverSettings, Settings
from sleuth.recipes.validation import validated
from sleuth.rewards.reward import Reward, RewardSettings
from sleuth.training.verl.settings import plain
from sleuth.types import Tool

PLACE = "actor_rollout_ref.rollout.custom.search"
QUESTION_ID = "question_id"
"""In a rollout's ``extra``: the id of its row, since verl names groups itself."""


class VerlTeacherSettings(Settings):
    """The teacher of objectives that need one (``sspo``).

    Attributes:
        anchors: file of evidence for the training questions (``sleuth anchors build``).
        weights: ``policy``: the policy's own as they are before a batch's first update; ``reference``: the start
            model's, which verl keeps where ``actor.use_kl_loss`` is on (the paper's copy, never renewed).
        prompt: how question, wrong answer and evidence are put.
        max_context: tokens of prompt and rollout that the teacher reads; None: those of ``rollout.max_model_len``, or
            of prompt and response.
    """

    anchors: str
    weights: Literal["policy", "reference"] = "policy"
    prompt: TeacherPrompt = Field(default_factory=TeacherPrompt)
    max_context: int | None = Field(default=None, ge=2)


class SearchSettings(Settings):
    """Settings of :data:`PLACE`.

    Attributes:
        save_rollouts: (trainer ``search_sync``) folder for each step's rollouts file; None: none are written.
    """

    protocol: ProtocolSettings = Field(default_factory=ProtocolSettings)
    limits: Limits = Field(default_factory=Limits)
    retriever: RetrieverSettings = Field(default_factory=lambda: RetrieverSettings(kind="http"))
    reward: RewardSettings | str = Field(default_factory=RewardSettings)
    teacher: VerlTeacherSettings | None = None
    save_rollouts: str | None = None


@dataclass(frozen=True)
class LoopParts:
    """What all rollouts of a process share."""

    protocol: AgentProtocol
    limits: Limits
    retriever: SharedRetriever
    tools: dict[str, Tool]
    reward: Reward


def search_settings(rollout: Any) -> SearchSettings:
    """The settings among those of verl's ``actor_rollout_ref.rollout``, with verl's lengths as limits.

    Raises:
        UserError: an unknown or wrong setting, or a limit beyond verl's lengths.
    """
    custom = plain(rollout.get("custom", None) or {})
    given = dict(custom.get("search", None) or {})
    given["retriever"] = {"kind": "http", **(given.get("retriever") or {})}
    settings = validated(SearchSettings, given, where="verl", prefix=PLACE)
    limits = settings.limits
    longest = rollout.response_length
    if "max_tokens" in limits.model_fields_set and limits.max_tokens > longest:
        raise UserError(
            f"{PLACE}.limits.max_tokens={limits.max_tokens} is more than actor_rollout_ref.rollout.response_length="
            f"{longest}; set data.max_response_length to it"
        )
    tokens = min(limits.max_tokens, longest) if "max_tokens" in limits.model_fields_set else longest
    window = rollout.get("max_model_len", None) or rollout.prompt_length + longest
    context = min(value for value in (limits.max_context, window) if value)
    return settings.model_copy(
        update={"limits": limits.model_copy(update={"max_tokens": tokens, "max_context": context})}
    )


def loop_parts(settings: SearchSettings, tokenizer: Any) -> LoopParts:
    """The parts for these settings; made once a process, since every rollout is a new agent loop.

    Raises:
        UserError: a part that can't be built, or a retriever that doesn't answer.
    """
    return _parts(settings.model_dump_json(by_alias=True, exclude_unset=True), settings.limits, _Once(tokenizer))


class _Once:
    """A tokenizer as a key: verl gives every agent loop of a worker the same one."""

    def __init__(self, tokenizer: Any):
        self.tokenizer = tokenizer

    def __hash__(self) -> int:
        return id(self.tokenizer)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Once) and other.tokenizer is self.tokenizer


@lru_cache(maxsize=4)
def _parts(settings: str, limits: Limits, key: _Once) -> LoopParts:
    chosen = SearchSettings.model_validate(json.loads(settings))
    recipe = Recipe(
        name="verl",
        protocol=chosen.protocol,
        retriever=chosen.retriever,
        reward=chosen.reward,
        limits=limits,
    )
    retriever, _ = build_retriever(recipe)
    tools = build_tools(recipe, retriever)
    return LoopParts(
        protocol=build_protocol(recipe, TokenCodec(key.tokenizer), tools),
        limits=limits,
        retriever=SharedRetriever(retriever, calls=8 if chosen.retriever.kind == "http" else 1),
        tools=tools,
        reward=Reward(chosen.reward),
    )


def build_loop_protocol(settings: SearchSettings, tokenizer: Any) -> AgentProtocol:
    """The protocol alone, without a retriever: what the trainer needs to write a teacher's prompt."""
    recipe = Recipe(name="verl", protocol=settings.protocol)
    return build_protocol(recipe, TokenCodec(tokenizer), build_tools(recipe))
