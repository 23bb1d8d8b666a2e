"""verl's agent loop ``search_tags``: one Episode, sampled by verl's servers.

Sampling stops at tokens, never at text: verl's servers have no tokenizer. They stop at every token that can close an
action, the Episode's own rule decides whether it did, and if not sampling goes on behind it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import numpy as np
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput

from sleuth.agent.asynchronous import SamplingAborted, run_episode
from sleuth.agent.episode import Episode, NeedTokens
from sleuth.data.forms import question_of
from sleuth.data.rows import Row
from sleuth.errors import UserError
from sleuth.rollouts import to_dict
from sleuth.training.verl.agent_settings import QUESTION_ID, loop_parts, search_settings
from sleuth.training.verl.credit import TRAJECTORY
from sleuth.types import Completion, Question, StopReason, Trajectory

_COLUMNS = ("id", "question", "golden_answers", "data_source", "corpus", "supporting_titles", "reward_model")
_SCORES = ("em", "f1", "cover_em", "format", "searches")


class SearchTagsLoop(AgentLoopBase):
    """See the module; its settings are :class:`sleuth.training.verl.agent_settings.SearchSettings`."""

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> AgentLoopOutput:
        """One rollout of the row's question.

        A rollout whose retriever failed has no policy token in its mask: Sleuth's advantages and every loss leave it
        out, and ``failed`` counts it.

        Raises:
            UserError: the row holds no question, or its prompt is longer than ``data.max_prompt_length``.
        """
        parts = loop_parts(search_settings(self.rollout_config), self.tokenizer)
        group = str(row.get("uid", uuid4().hex))
        episode = Episode(
            question_of_row(row),
            parts.protocol,
            parts.limits,
            id=f"{group}-{row.get('session_id', uuid4().hex)}",
            group=group,
            step=int(row.get("global_steps", 0)),
        )
        prompt = len(episode.trajectory.spans[0].ids)
        if prompt > self.rollout_config.prompt_length:
            raise UserError(
                f"question {episode.question.id}: its prompt has {prompt} tokens; set data.max_prompt_length to that "
                "or more"
            )
        turns = _ServerTurns(self.server_manager, sampling_params, request=uuid4().hex)
        start = time.monotonic()
        trajectory = await run_episode(episode, turns, parts.retriever, parts.tools)
        elapsed = time.monotonic() - start
        trajectory.extra[QUESTION_ID] = episode.question.id
        parts.reward([trajectory])
        return self._output(trajectory, turns, elapsed)

    def _output(self, trajectory: Trajectory, turns: _ServerTurns, elapsed: float) -> AgentLoopOutput:
        # verl wants at least one token of a response; that of an empty rollout counts for nothing.
        ids = trajectory.completion_ids or [self.tokenizer.pad_token_id]
        mask = trajectory.completion_mask or [0]
        if trajectory.failed:
            mask = [0] * len(ids)
        scores = {name: float(trajectory.rewards.get(name, 0.0)) for name in _SCORES}
        return AgentLoopOutput(
            prompt_ids=trajectory.prompt_ids,
            response_ids=ids,
            response_mask=mask,
            response_logprobs=(trajectory.completion_logprobs or [0.0]) if turns.has_log_probs else None,
            reward_score=trajectory.reward or 0.0,
            num_turns=1 + len(trajectory.spans[1:]),
            metrics=AgentLoopMetrics(generate_sequences=turns.seconds, tool_calls=elapsed - turns.seconds),
            extra_fields={
                TRAJECTORY: json.dumps(to_dict(trajectory)),
                "reward_extra_info": {**scores, "failed": float(trajectory.failed)},
                "min_global_steps": turns.min_global_steps,
                "max_global_steps": turns.max_global_steps,
            },
        )


class _ServerTurns:
    """Turns of one rollout by verl's servers (:data:`sleuth.agent.asynchronous.TurnSampler`).

    Attributes:
        seconds: spent waiting for the servers.
        has_log_probs: whether they give log-probs (``rollout.calculate_log_probs``).
        min_global_steps, max_global_steps: of the weights that sampled the first and the last turn.
    """

    def __init__(self, server: Any, params: Mapping[str, Any], request: str):
        self._server, self._params, self._request = server, dict(params), request
        self.seconds = 0.0
        self.has_log_probs = True
        self.min_global_steps: int | None = None
        self.max_global_steps: int | None = None

    async def __call__(self, need: NeedTokens) -> Completion:
        stop = need.stop
        halts = sorted(stop.trigger_ids | stop.end_ids)
        ids: list[int] = []
        log_probs: list[float] = []
        while True:
            left = need.max_new_tokens - len(ids)
            start = time.monotonic()
            out = await self._server.generate(
                request_id=self._request,
                prompt_ids=need.ids + ids,
                sampling_params={**self._params, "max_tokens": left, "stop_token_ids": halts},
            )
            self.seconds += time.monotonic() - start
            self._note(out)
            ids += out.token_ids
            log_probs += out.log_probs or [float("nan")] * len(out.token_ids)
            if (reason := _why_stopped(ids, need)) is not None:
                return Completion(ids, log_probs, reason)
            if out.stop_reason in ("aborted", "abort"):
                raise SamplingAborted("verl's server aborted the request")
            if not out.token_ids:  # an engine that hides the end-of-turn token it stopped at
                return Completion(ids, log_probs, StopReason.END_OF_TURN)
            if ids[-1] not in stop.trigger_ids:  # the server's own context limit
                return Completion(ids, log_probs, StopReason.LENGTH)

    def _note(self, out: Any) -> None:
        self.has_log_probs &= out.log_probs is not None
        first, last = (out.extra_fields.get(name) for name in ("min_global_steps", "max_global_steps"))
        if self.min_global_steps is None:
            self.min_global_steps = first
        self.max_global_steps = last if last is not None else self.max_global_steps


def _why_stopped(ids: list[int], need: NeedTokens) -> StopReason | None:
    if not ids:
        return None
    if ids[-1] in need.stop.end_ids:
        return StopReason.END_OF_TURN
    if ids[-1] in need.stop.trigger_ids and need.stop.complete(ids):
        return StopReason.ACTION
    return StopReason.LENGTH if len(ids) >= need.max_new_tokens else None


def question_of_row(row: Mapping[str, Any]) -> Question:
    """The question of a row of verl's data set: ``sleuth data convert --to verl``'s, or any parquet for Search-R1.

    Raises:
        UserError: it holds none.
    """
    fields = {name: _plain(row[name]) for name in (*_COLUMNS, "extra_info") if name in row}
    if "raw_prompt" in row:
        fields["prompt"] = _plain(row["raw_prompt"])
    return question_of(Row(fields, f"verl's row {row.get('index', '?')}", int(row.get("index", 0) or 0)))


def _plain(value: Any) -> Any:
    """numpy's arrays, which data loaders make of lists, as lists again."""
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
