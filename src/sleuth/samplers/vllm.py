"""Sampling from a vLLM server: token ids in, ids and log-probs out, over its own ``/v1/completions``.

The server does the batching and keeps prefixes (``--enable-prefix-caching``, its default), so that every turn's context
costs its new tokens only. It stops on texts and on end tokens; whether a closing tag really closes an action is asked
here, token by token, and a turn that was stopped inside a thought goes on. Needs vLLM 0.10.2 or newer, which returns
token ids. The log-probs of such a server are computed by other kernels than a trainer's: old log-probs stay the
trainer's own.
"""

from __future__ import annotations

import os
import time
from collections.abc import Hashable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from sleuth.errors import RunFailed, UserError
from sleuth.seeds import derive_seed
from sleuth.types import Completion, SampleRequest, SamplingParams, StopReason, StopRule

_AGAIN = frozenset({408, 429, 500, 502, 503, 504})


class VLLMSettings(BaseModel):
    """How a server is asked.

    Attributes:
        url: of the server, without ``/v1``.
        model: its name there.
        key_variable: environment variable with the key for ``Authorization: Bearer``; without one none is sent.
        logprobs_mode: the server's ``--logprobs-mode``: ``raw`` are those of the model at temperature 1, ``processed``
            those that were sampled from.
        timeout: seconds of one call. ``attempts``: calls made for one turn's text, the first included.
        concurrency: calls at the same time; the server queues what it can't batch.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str
    model: str
    key_variable: str = "VLLM_API_KEY"
    logprobs_mode: Literal["raw", "processed"] = "raw"
    timeout: float = Field(default=600.0, gt=0)
    attempts: int = Field(default=4, ge=1)
    concurrency: int = Field(default=256, ge=1)


class VLLMSampler:
    """A :class:`~sleuth.types.Sampler` in front of a server; holds nothing, since the server keeps the prefixes.

    The draw depends on the request's seed and on what else is in the server's batch, as far as its kernels round
    differently with the batch.

    Raises:
        UserError: httpx isn't installed.
    """

    def __init__(self, settings: VLLMSettings):
        try:
            import httpx
        except ImportError:
            raise UserError("a vLLM server is asked with httpx; pip install 'sleuth[http]'") from None
        key = os.environ.get(settings.key_variable)
        self.settings = settings
        self.model = settings.model
        self._client = httpx.Client(
            base_url=settings.url.rstrip("/"),
            timeout=settings.timeout,
            headers={"authorization": f"Bearer {key}"} if key else {},
            limits=httpx.Limits(max_connections=settings.concurrency),
        )

    def sample(self, requests: Sequence[SampleRequest], params: SamplingParams) -> list[Completion]:
        """One turn of each conversation, in the order of the requests.

        Raises:
            UserError: the server refuses, is too old, or states other log-probs than ``params`` needs.
            RunFailed: it can't be reached any more.
        """
        self._check(params)
        with ThreadPoolExecutor(max_workers=min(self.settings.concurrency, max(len(requests), 1))) as pool:
            return list(pool.map(lambda request: self._turn(request, params), requests))

    def release(self, keys: Iterable[Hashable]) -> None:
        """Nothing: the server drops the prefixes that it has no room for."""

    def _check(self, params: SamplingParams) -> None:
        if self.settings.logprobs_mode == "processed":
            check_processed(params)
        elif params.temperature not in (0.0, 1.0):
            raise UserError(
                f"sampling.temperature={params.temperature:g}: vLLM's raw log-probs are those of temperature 1; "
                "start it with --logprobs-mode processed_logprobs and set logprobs_mode=processed"
            )

    def _turn(self, request: SampleRequest, params: SamplingParams) -> Completion:
        turn = OpenTurn(request)
        while (done := turn.add(*self._complete(turn, params))) is None:
            pass
        return done

    def _complete(self, turn: OpenTurn, params: SamplingParams) -> tuple[list[int], list[float]]:
        stop = turn.request.stop
        body = {
            "model": self.model,
            "prompt": turn.context,
            "max_tokens": turn.room,
            "temperature": params.temperature,
            "top_p": params.top_p,
            "top_k": params.top_k,
            "seed": turn.seed,
            "logprobs": 0,
            "return_token_ids": True,
            "stop": list(stop.strings),
            "include_stop_str_in_output": True,
            "stop_token_ids": sorted(stop.end_ids),
            "ignore_eos": True,
            "skip_special_tokens": False,
            "add_special_tokens": False,
        }
        choice = self.call("/v1/completions", body).json()["choices"][0]
        ids = choice.get("token_ids")
        stated = (choice.get("logprobs") or {}).get("token_logprobs")
        if ids is None or stated is None or len(ids) != len(stated):
            raise UserError(f"{self.settings.url} returns no token ids with log-probs; use vLLM 0.10.2 or newer")
        return ids, [float(x) if x is not None else float("nan") for x in stated]

    def call(self, path: str, body: dict[str, Any]) -> Any:
        """The server's answer to a POST, asked again where that may help.

        Raises:
            UserError: it refuses. RunFailed: it gives no answer.
        """
        import httpx

        reason = ""
        for attempt in range(self.settings.attempts):
            if attempt:
                time.sleep(min(0.5 * 2**attempt, 30.0))
            try:
                answer = self._client.post(path, json=body)
            except httpx.HTTPError as error:
                reason = type(error).__name__
                continue
            if answer.status_code == 200:
                return answer
            reason = f"status {answer.status_code}: {' '.join(answer.text.split())[:160]}"
            if answer.status_code not in _AGAIN:
                raise UserError(f"{self.settings.url} refuses the request ({reason}); check url, model and context")
        raise RunFailed(
            f"the vLLM server {self.settings.url} gave no answer in {self.settings.attempts} calls ({reason})"
        )


class OpenTurn:
    """A turn that vLLM writes in one call or several: it stops at tags as text, and one in a thought ends no turn."""

    def __init__(self, request: SampleRequest):
        self.request = request
        self._ids: list[int] = []
        self._logprobs: list[float] = []
        self._calls = 0

    @property
    def context(self) -> list[int]:
        """What stands before the next token."""
        return self.request.ids + self._ids

    @property
    def room(self) -> int:
        return self.request.max_new_tokens - len(self._ids)

    @property
    def seed(self) -> int:
        """Of the next call, within what vLLM takes."""
        seed = self.request.seed if not self._calls else derive_seed(self.request.seed, "goes on", self._calls)
        return seed & 0x7FFFFFFF

    def add(self, ids: Sequence[int], logprobs: Sequence[float]) -> Completion | None:
        """Take over what a call gave; the turn, if it is over.

        Raises:
            RunFailed: no token came.
        """
        start, room = len(self._ids), self.room
        self._calls += 1
        self._ids += ids[:room]
        self._logprobs += logprobs[:room]
        for end in range(start + 1, len(self._ids) + 1):
            if (reason := _reason(self._ids[:end], self.request.stop)) is not None:
                return Completion(self._ids[:end], self._logprobs[:end], reason)
        if not self.room:
            return Completion(self._ids, self._logprobs, StopReason.LENGTH)
        if not ids:
            raise RunFailed(f"vLLM gave no token for a context of {len(self.request.ids)}")
        return None


def check_processed(params: SamplingParams) -> None:
    """Refuse log-probs of a distribution that was cut.

    Raises:
        UserError: so it is.
    """
    if params.temperature and (params.top_p < 1 or params.top_k):
        raise UserError(
            "top_p and top_k: vLLM's processed log-probs are those after the cut, and training needs those of the "
            "full distribution; set top_p=1 and top_k=0"
        )


def _reason(ids: Sequence[int], stop: StopRule) -> StopReason | None:
    """Why a turn ends with the last of these ids, if it does."""
    if ids[-1] in stop.end_ids:
        return StopReason.END_OF_TURN
    if ids[-1] in stop.trigger_ids and stop.complete(ids):
        return StopReason.ACTION
    return None
