"""A vLLM server that samples for a trainer: it is given the LoRA adapters in training whenever they have changed.

Adapters go through a folder that both see, by vLLM's own calls to load and unload them while it runs, so that nothing
but HTTP and a file system is needed. The base model must be the one that the trainer has.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from sleuth.errors import UserError
from sleuth.samplers.vllm import VLLMSampler, VLLMSettings
from sleuth.types import Completion, SampleRequest, SamplingParams


class ServerSettings(VLLMSettings):
    """A server that samples for a trainer; ``model`` is the base model's name there.

    Attributes:
        adapters: folder that the server sees under the same path; None: ``adapters`` in the run folder.
        max_weight: importance weights between trainer and sampler are cut there, from above.
    """

    adapters: str | None = None
    max_weight: float = Field(default=2.0, gt=0)


class ServedPolicy(VLLMSampler):
    """A :class:`~sleuth.samplers.vllm.VLLMSampler` of the policy as it is at every call.

    Args:
        folder: for the adapters, as the server sees it.

    Attributes:
        policy: the PEFT model in training; set before the first call.
    """

    settings: ServerSettings
    policy: Any = None

    def __init__(self, settings: ServerSettings, folder: Path):
        super().__init__(settings)
        self._folder = folder.absolute()
        self._numbers = itertools.count(1)
        self._served: str | None = None
        self._weights: list[float] = []

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
        """One turn of each conversation, from the weights as they are now.

        Raises:
            UserError: as :meth:`VLLMSampler.sample`, or the server can't load adapters.
            RunFailed: it can't be reached any more.
        """
        self._bring_up_to_date()
        return super().sample(requests, params)

    def _bring_up_to_date(self) -> None:
        weights = self._fingerprint()
        if self._served is not None and weights == self._weights:
            return
        # A name of its own for each version, also over restarts: the server keeps prefixes by the adapter's name.
        name = f"sleuth-{os.getpid()}-{next(self._numbers)}"
        folder = self._folder / name
        self.policy.save_pretrained(str(folder))
        try:
            self._call("/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(folder)})
        except UserError as error:
            raise UserError(
                f"{error}. It must be started with --enable-lora, --max-lora-rank of at least model_settings.lora and "
                f"VLLM_ALLOW_RUNTIME_LORA_UPDATING=True, and see the folder {self._folder}"
            ) from None
        before, self._served = self._served, name
        self.model, self._weights = name, weights
        if before is not None:
            self._call("/v1/unload_lora_adapter", {"lora_name": before})
            shutil.rmtree(self._folder / before)

    def _fingerprint(self) -> list[float]:
        """Sum and sum of squares of every trained tensor. torch's own counters miss what a fused optimiser writes."""
        import torch

        trained = [p.detach().double() for p in self.policy.parameters() if p.requires_grad]
        return torch.stack([x for p in trained for x in (p.sum(), p.square().sum())]).tolist()
