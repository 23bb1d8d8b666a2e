"""A step's record and what the engine knows of it only later: the two come together here, for every engine loop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments


class StepCallback(TrainerCallback, ABC):
    """A callback whose steps have records. A subclass puts one together at the step's end, in ``self._record``.

    The engine logs the gradient's norm after that, once a step: then the record is complete.
    """

    _record: dict[str, Any]

    def __init__(self) -> None:
        self._record = {}

    @abstractmethod
    def step_logged(self, record: dict[str, Any], logs: dict[str, Any], control: TrainerControl) -> None:
        """A step is done.

        Args:
            record: as the step's end left it. ``logs``: the engine's, with ``grad_norm`` and ``learning_rate``.
        """

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if not self._record or logs is None or "grad_norm" not in logs:
            return
        record, self._record = self._record, {}
        self.step_logged(record, logs, control)
