"""The teacher of self-distillation: the policy's own network with older, averaged or no trained weights.

The teacher has no module of its own. Its weights are swapped into the policy's for the length of a pass, so that both
are scored by the same kernels in the same precision, and only what training changes is ever copied: the adapters with
LoRA, all weights without. Whoever scores does so inside of :meth:`Teacher.scoring`::

    teacher = Teacher(model, "copy", every=50)
    for step in range(1, steps + 1):
        teacher.before_batch(step)
        with teacher.scoring():
            teacher_logp = score(model, privileged_inputs)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from sleuth.errors import UserError

TeacherWeights = Literal["copy", "ema", "base", "policy"]
"""Whose weights the teacher has: the policy's of some steps ago, their moving average, those without LoRA's adapters,
or the policy's own as they are before a batch's first update."""

FILE = "teacher.safetensors"
"""The teacher's own weights in a checkpoint; absent where it has none (``base``, ``policy``)."""


class Teacher:
    """The weights to score with, and when they follow the policy.

    Args:
        model: the policy in training (a PEFT model with LoRA). Its parameters that require a gradient are what the
            teacher differs in.
        weights: ``copy``: the policy's, taken over before step 1 and every ``every`` steps after it (arXiv 2608.12764,
            which has 50). ``ema``: the average that moves by ``rate`` towards the policy after each step (arXiv
            2601.20802, which has 0.05; with LoRA of the two factors, not of their product). ``base``: the model with
            LoRA's adapters off. ``policy``: the policy itself. The last two need no memory.
        every: steps between two copies; 0: never again after step 1.
        rate: 0 to 1.

    Raises:
        UserError: ``base`` without LoRA.
    """

    def __init__(self, model: nn.Module, weights: TeacherWeights = "copy", *, every: int = 50, rate: float = 0.05):
        if weights == "base" and not hasattr(model, "disable_adapter"):
            raise UserError(
                "teacher.weights=base is the model without its LoRA adapters, and there are none; set "
                "model_settings.lora, or keep the start model with teacher.weights=copy teacher.every=0"
            )
        self._model = model
        self._weights, self._every, self._rate = weights, every, rate
        self._own: dict[str, Tensor] | None = None

    @property
    def bytes(self) -> int:
        """Memory of the teacher's own weights."""
        return sum(x.numel() * x.element_size() for x in (self._own or {}).values())

    @torch.no_grad()
    def before_batch(self, step: int) -> bool:
        """Follow the policy, if it is time; call it once a step (from 1), before the step's first pass.

        Returns:
            Whether the teacher's weights were taken over from the policy anew.
        """
        if self._weights in ("base", "policy"):
            return False
        if self._own is None or (self._weights == "copy" and self._every and (step - 1) % self._every == 0):
            if step > 1 and self._own is None:
                raise RuntimeError(f"no teacher was saved before step {step}; it can't be made up afterwards")
            self._own = {name: p.detach().clone() for name, p in self._trained()}
            return True
        if self._weights == "ema":
            for name, p in self._trained():
                self._own[name].lerp_(p.detach(), self._rate)
        return False

    @contextmanager
    def scoring(self) -> Iterator[None]:
        """Within, the model has the teacher's weights, and no gradient is recorded. No update may be made within."""
        with torch.no_grad():
            if self._weights == "policy":
                yield
            elif self._weights == "base":
                with self._model.disable_adapter():  # type: ignore[operator]
                    yield
            else:
                self._swap()
                try:
                    yield
                finally:
                    self._swap()

    def check_whole(self) -> None:
        """Refuse weights of its own where no process has all of the policy's.

        Raises:
            UserError: as said.
        """
        if self._weights in ("copy", "ema"):
            raise UserError(
                f"teacher.weights={self._weights} keeps weights of its own, which a sharded model (FSDP, DeepSpeed) "
                "can't give it; set teacher.weights=policy, or base with LoRA"
            )

    def save(self, folder: Path) -> None:
        """Write the teacher's own weights into a checkpoint folder."""
        if self._own is not None:
            save_file({name: x.contiguous() for name, x in self._own.items()}, folder / FILE)

    def load(self, folder: Path) -> None:
        """Take the teacher's own weights from a checkpoint folder.

        Raises:
            UserError: the folder's belong to another model, or it has none.
        """
        if self._weights in ("base", "policy"):
            return
        file = folder / FILE
        if not file.is_file():
            raise UserError(f"{folder} has no {FILE}: it was not trained with teacher.weights={self._weights}")
        saved = load_file(file)
        shapes = {name: p.shape for name, p in self._trained()}
        if {name: x.shape for name, x in saved.items()} != shapes:
            raise UserError(f"{file} holds other weights than those that this run trains")
        self._own = {name: saved[name].to(p.device, p.dtype) for name, p in self._trained()}

    def _trained(self) -> Iterator[tuple[str, nn.Parameter]]:
        return ((name, p) for name, p in self._model.named_parameters() if p.requires_grad)

    def _swap(self) -> None:
        """Exchange weights and teacher's weights: pointers, no copies."""
        if self._own is None:
            raise RuntimeError("the teacher has no weights before its first before_batch()")
        for name, p in self._trained():
            p.data, self._own[name] = self._own[name], p.data
