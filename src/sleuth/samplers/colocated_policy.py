"""vLLM in the trainer's own process and on its GPU: each process has an engine that samples its share."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from sleuth.samplers.following import Follower
from sleuth.samplers.vllm import OpenTurn, check_processed
from sleuth.types import Completion, SampleRequest, SamplingParams


class ColocatedSettings(BaseModel):
    """vLLM beside the model in training.

    Attributes:
        memory: share of the GPU's memory that the engine takes, its copy of the weights included.
        max_length: longest context with its answer, in tokens; None: the model's own.
        max_weight: importance weights between trainer and sampler are cut there, from above.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    memory: float = Field(default=0.3, gt=0, lt=1)
    max_length: int | None = Field(default=None, ge=1)
    max_weight: float = Field(default=2.0, gt=0)


class ColocatedPolicy:
    """A :class:`~sleuth.types.Sampler` of the policy in training. :meth:`follow` comes first."""

    def __init__(self, settings: ColocatedSettings):
        self.settings = settings
        self._engine: Any = None
        self._follower: Follower | None = None

    def follow(self, follower: Follower, engine: Any) -> None:
        """Sample by this engine, a ``vllm.LLM``, from the weights that the follower gives it."""
        self._follower, self._engine = follower, engine

    def refresh(self) -> None:
        """Load the weights if they aren't the ones that the engine has."""
        if self._follower is None:
            raise ValueError("a colocated policy has no model to follow yet")
        self._follower.refresh()

    def sample(self, requests: Sequence[SampleRequest], params: SamplingParams) -> list[Completion]:
        """One turn of each conversation, in the order of the requests.

        Raises:
            UserError: ``top_p`` or ``top_k`` cut the distribution. RunFailed: the engine gives no token.
        """
        check_processed(params)
        if self._follower is None or self._follower.alone:
            self.refresh()
        turns = [OpenTurn(request) for request in requests]
        done: dict[int, Completion] = {}
        while len(done) < len(turns):
            left = [n for n in range(len(turns)) if n not in done]
            for n, (ids, logprobs) in zip(left, self._complete([turns[n] for n in left], params), strict=True):
                completion = turns[n].add(ids, logprobs)
                if completion is not None:
                    done[n] = completion
        return [done[n] for n in range(len(turns))]

    def release(self, keys: Iterable[Hashable]) -> None:
        """Nothing: the engine drops the prefixes that it has no room for."""

    def _complete(
        self, turns: Sequence[OpenTurn], params: SamplingParams
    ) -> list[tuple[Sequence[int], Sequence[float]]]:
        from vllm import SamplingParams as EngineParams

        settings = [
            EngineParams(
                max_tokens=turn.room,
                temperature=params.temperature,
                top_p=params.top_p,
                top_k=params.top_k,
                seed=turn.seed,
                logprobs=0,
                stop=list(turn.request.stop.strings),
                include_stop_str_in_output=True,
                stop_token_ids=sorted(turn.request.stop.end_ids),
                ignore_eos=True,
                skip_special_tokens=False,
            )
            for turn in turns
        ]
        prompts = [{"prompt_token_ids": turn.context} for turn in turns]
        answers = (answer.outputs[0] for answer in self._engine.generate(prompts, settings, use_tqdm=False))
        return [
            (
                list(answer.token_ids),
                [stated[token].logprob for token, stated in zip(answer.token_ids, answer.logprobs, strict=True)],
            )
            for answer in answers
        ]
