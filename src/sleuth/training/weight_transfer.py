"""Whole weights to a vLLM server, by vLLM's own transfer over NCCL, through TRL.

TRL gathers what FSDP or DeepSpeed has sharded, one tensor at a time, announces it over HTTP and broadcasts it. The
trainer needs vLLM too, since the two sides of the transfer are vLLM's.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from sleuth.errors import RunFailed, UserError
from sleuth.samplers.served_policy import ServerSettings

START = (
    """VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --weight-transfer-config '{"backend": "nccl"}' """
    "--logprobs-mode processed_logprobs"
)


class WeightTransfer:
    """A :class:`~sleuth.samplers.served_policy.Delivery`; made by all processes together.

    Args:
        policy: the model in training. ``accelerator``: its trainer's.
        agreement: makes one process's error the end of all.

    Raises:
        UserError: this machine has no vLLM, or the server takes no weights.
    """

    def __init__(
        self,
        settings: ServerSettings,
        policy: Any,
        accelerator: Any,
        tokenizer: Any,
        agreement: Callable[[], AbstractContextManager[None]] = nullcontext,
    ):
        self._settings, self._agreement = settings, agreement
        with agreement():
            self._generation = self._connect(policy, accelerator, tokenizer)

    def _connect(self, policy: Any, accelerator: Any, tokenizer: Any) -> Any:
        from trl.generation.vllm_generation import VLLMGeneration

        settings = self._settings
        try:
            return VLLMGeneration(
                model=policy,
                accelerator=accelerator,
                processing_class=tokenizer,
                mode="server",
                server_base_url=settings.url.rstrip("/"),
                server_timeout=settings.timeout,
                group_port=settings.group_port,
            )
        except ImportError:
            raise UserError(
                "sampling.server without model_settings.lora sends whole weights, and vLLM does that on both sides; "
                "pip install 'trl[vllm]' here too, or train adapters with model_settings.lora=16"
            ) from None
        except Exception as error:  # TRL raises plain ones for what a server answers
            raise UserError(
                f"sampling.server.url={settings.url} takes no weights ({_line(error)}); start it with {START}"
            ) from error

    def deliver(self) -> str:
        """All of the weights; the server forgets the prefixes that it keeps.

        Raises:
            RunFailed: the transfer broke.
        """
        with self._agreement():
            try:
                self._generation.sync_weights()
            except Exception as error:
                raise RunFailed(
                    f"the weights could not be sent to {self._settings.url} ({_line(error)}); look at the server, "
                    "start it again, and go on with --resume"
                ) from error
        return self._settings.model


def _line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]
