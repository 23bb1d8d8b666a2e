"""A vLLM server that samples for a trainer: it is sent the weights in training whenever they have changed."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from sleuth.errors import UserError
from sleuth.samplers.following import Follower
from sleuth.samplers.vllm import VLLMSampler, VLLMSettings
from sleuth.types import Completion, SampleRequest, SamplingParams


class ServerSettings(VLLMSettings):
    """A server that samples for a trainer; ``model`` is the base model's name there.

    Attributes:
        adapters: folder that the server sees under the same path; None: ``adapters`` in the run folder.
        group_port: where whole weights go, from the first process's machine; without LoRA.
        max_weight: importance weights between trainer and sampler are cut there, from above.
    """

    adapters: str | None = None
    group_port: int = Field(default=51216, ge=1, le=65535)
    max_weight: float = Field(default=2.0, gt=0)


class ServedPolicy(VLLMSampler):
    """A :class:`~sleuth.samplers.vllm.VLLMSampler` of the policy in training. :meth:`follow` comes first."""

    settings: ServerSettings

    def __init__(self, settings: ServerSettings):
        super().__init__(settings)
        self._follower: Follower | None = None

    def follow(self, follower: Follower) -> None:
        """Sample from the model that this follower watches, as it is at every call; or, where several processes train,
        at the last :meth:`refresh`, which all of them call together."""
        self._follower = follower

    def check_server(self) -> None:
        """Whether the server is there and has the base model.

        Raises:
            UserError: not so.
        """
        import httpx

        url = self.settings.url
        try:
            answer = self._client.get("/v1/models")
            answer.raise_for_status()
            names = [model["id"] for model in answer.json()["data"]]
        except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"sampling.server.url={url}: no vLLM server answers ({type(error).__name__})") from None
        if self.settings.model not in names:
            there = ", ".join(names) or "nothing"
            raise UserError(f"sampling.server.model={self.settings.model}: {url} serves {there}; write one of these")

    def sample(self, requests: Sequence[SampleRequest], params: SamplingParams) -> list[Completion]:
        """One turn of each conversation.

        Raises:
            UserError: as :meth:`VLLMSampler.sample`, or the server can't take weights.
            RunFailed: it can't be reached any more.
        """
        if self._follower is None or self._follower.alone:
            self.refresh()
        return super().sample(requests, params)

    def refresh(self) -> None:
        """Send the weights if they aren't the ones that the server has."""
        if self._follower is None:
            raise ValueError("a served policy has no model to follow yet")
        self.model = self._follower.refresh() or self.model


class AdapterFolder:
    """LoRA adapters through a folder that both see, by vLLM's own calls to load and unload them while it runs.

    Nothing but HTTP and a file system is needed. The server's base model must be the trainer's.

    Args:
        policy: the PEFT model in training, whole in the first process.
        folder: as the server sees it.
        server: whose calls are used.
        from_main: gives all processes what the first one computes; it alone writes.
    """

    def __init__(
        self,
        policy: Any,
        folder: Path,
        server: VLLMSampler,
        from_main: Callable[[Callable[[], str]], str] = lambda compute: compute(),
    ):
        self._policy, self._folder, self._server, self._from_main = policy, folder.absolute(), server, from_main
        self._numbers = itertools.count(1)
        self._served: str | None = None

    def deliver(self) -> str:
        """A new adapter, and the one before is unloaded.

        Raises:
            UserError: the server can't load adapters.
        """
        return self._from_main(self._replace)

    def _replace(self) -> str:
        # A name of its own for each version, also over restarts: the server keeps prefixes by the adapter's name.
        name = f"sleuth-{os.getpid()}-{next(self._numbers)}"
        folder = self._folder / name
        self._policy.save_pretrained(str(folder))
        try:
            self._server.call("/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(folder)})
        except UserError as error:
            raise UserError(
                f"{error}. It must be started with --enable-lora, --max-lora-rank of at least model_settings.lora and "
                f"VLLM_ALLOW_RUNTIME_LORA_UPDATING=True, and see the folder {self._folder}"
            ) from None
        before, self._served = self._served, name
        if before is not None:
            self._server.call("/v1/unload_lora_adapter", {"lora_name": before})
            shutil.rmtree(self._folder / before)
        return name
