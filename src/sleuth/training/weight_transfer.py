"""Weights to vLLM through TRL: to a server by vLLM's own transfer over NCCL, or into an engine in this process.

TRL gathers what FSDP or DeepSpeed has sharded, one tensor at a time, and merges adapters. The trainer needs vLLM too:
the two sides of a transfer are vLLM's.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from sleuth.errors import RunFailed, UserError
from sleuth.samplers.colocated_policy import ColocatedSettings
from sleuth.samplers.served_policy import ServerSettings

START = (
    """VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --weight-transfer-config '{"backend": "nccl"}' """
    "--logprobs-mode processed_logprobs"
)

Agreement = Callable[[], AbstractContextManager[None]]


class WeightTransfer:
    """A :class:`~sleuth.samplers.following.Delivery` through TRL; made by all processes together.

    Args:
        generation: TRL's end. ``name``: what the engine is asked for.
        agreement: makes one process's error the end of all.
    """

    def __init__(self, generation: Any, name: str, agreement: Agreement):
        self._generation, self._name, self._agreement = generation, name, agreement

    @classmethod
    def to_server(cls, settings: ServerSettings, trainer: Any, agreement: Agreement) -> WeightTransfer:
        """To a server that has the trainer's base model.

        Raises:
            UserError: this machine has no vLLM, or the server takes no weights.
        """
        with agreement():
            try:
                generation = _generation(
                    trainer,
                    mode="server",
                    server_base_url=settings.url.rstrip("/"),
                    server_timeout=settings.timeout,
                    group_port=settings.group_port,
                )
            except ImportError:
                raise UserError(
                    "sampling.server without model_settings.lora sends whole weights, and vLLM does that on both "
                    "sides; pip install 'trl[vllm]' here too, or train adapters with model_settings.lora=16"
                ) from None
            except Exception as error:  # TRL raises plain ones for what a server answers
                raise UserError(
                    f"sampling.server.url={settings.url} takes no weights ({_line(error)}); start it with {START}"
                ) from error
        return cls(generation, settings.model, agreement)

    @classmethod
    def into_engine(cls, settings: ColocatedSettings, trainer: Any, agreement: Agreement) -> WeightTransfer:
        """Into an engine that is started here, from the trainer's base model.

        Raises:
            UserError: this machine has no vLLM, or the engine doesn't start.
        """
        with agreement():
            try:
                generation = _generation(
                    trainer,
                    mode="colocate",
                    gpu_memory_utilization=settings.memory,
                    max_model_length=settings.max_length,
                )
            except ImportError:
                raise UserError(
                    "sampling.colocated needs vLLM; pip install 'trl[vllm]', or leave it out and the model in training "
                    "samples by itself"
                ) from None
            except Exception as error:
                raise UserError(
                    f"sampling.colocated: vLLM doesn't start here ({_line(error)}); give it another share of the GPU "
                    "with sampling.colocated.memory, or a bound with sampling.colocated.max_length"
                ) from error
        return cls(generation, "", agreement)

    @property
    def engine(self) -> Any:
        """The ``vllm.LLM`` that :meth:`into_engine` has started."""
        return self._generation.llm

    def deliver(self) -> str:
        """All of the weights; vLLM forgets the prefixes that it keeps.

        Raises:
            RunFailed: the transfer broke.
        """
        with self._agreement():
            try:
                self._generation.sync_weights()
            except Exception as error:
                raise RunFailed(
                    f"the weights could not be brought to vLLM ({_line(error)}); look at it, start it again if it is a "
                    "server, and go on with --resume"
                ) from error
        return self._name


def _generation(trainer: Any, **settings: Any) -> Any:
    from trl.generation.vllm_generation import VLLMGeneration

    return VLLMGeneration(
        model=trainer.model, accelerator=trainer.accelerator, processing_class=trainer.processing_class, **settings
    )


def _line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]
