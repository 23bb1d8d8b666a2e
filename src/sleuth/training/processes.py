"""The processes of one run: what they tell each other, and how they end together.

``torchrun`` or ``accelerate launch`` starts one process a GPU. All of them run the same program. The first (``main``)
alone writes the run folder and talks to the user. What is decided from files, clocks or signals is decided by it and
told to the others, so that no two processes ever go different ways; what is computed from the batch is computed by all
from the same rollouts.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
import torch.distributed as dist
from torch import nn

from sleuth.agent.agent import SearchAgent
from sleuth.errors import INTERRUPTED, OtherProcess, RunFailed, RunStopped, UserError
from sleuth.types import Question, Sampler, SamplingParams, Trajectory

T = TypeVar("T")


@runtime_checkable
class Refreshed(Protocol):
    """A sampler elsewhere, such as :class:`~sleuth.samplers.served_policy.ServedPolicy`."""

    def refresh(self) -> None:
        """Take over the weights of the moment, if they have changed; all processes call it together."""
        ...


TIMEOUT = timedelta(hours=2)
"""How long a process waits for the others before it gives up: longer than any batch's rollouts may take."""


@dataclass(frozen=True, slots=True)
class Processes:
    """One process and its place among the others; :meth:`alone` is an ordinary run.

    Every method is collective: all processes call it at the same point.

    Attributes:
        index: from 0. ``count``: how many there are.
    """

    index: int = 0
    count: int = 1

    @classmethod
    def join(cls) -> Processes:
        """The processes that the launcher started; joins their group at the first call."""
        count = int(os.environ.get("WORLD_SIZE", "1"))
        if count == 1:
            return cls()
        if not dist.is_initialized():
            from accelerate import PartialState

            PartialState(cpu=not torch.cuda.is_available(), timeout=TIMEOUT)
        return cls(dist.get_rank(), dist.get_world_size())

    @property
    def main(self) -> bool:
        return self.index == 0

    # What they tell each other ------------------------------------------------------------------------------------

    def exchange(self, mine: T) -> list[T]:
        """Every process's object, in the order of the processes."""
        if self.count == 1:
            return [mine]
        everyone: list[Any] = [None] * self.count
        dist.all_gather_object(everyone, mine)
        return everyone

    def collect(self, mine: T) -> list[T]:
        """As :meth:`exchange`, for the main process alone; the others get an empty list."""
        if self.count == 1:
            return [mine]
        everyone: list[Any] | None = [None] * self.count if self.main else None
        dist.gather_object(mine, everyone)
        return everyone or []

    def from_main(self, decide: Callable[[], T]) -> T:
        """What the main process decides; it alone calls ``decide``."""
        if self.count == 1:
            return decide()
        with self.agreement():
            told = [decide() if self.main else None]
        dist.broadcast_object_list(told, src=0)
        return told[0]  # type: ignore[return-value]

    def any(self, mine: bool) -> bool:
        """Whether it is so in some process."""
        return any(self.exchange(mine))

    def share(self, n: int) -> slice:
        """This process's part of ``n`` things in a row; parts differ by one at most."""
        return slice(n * self.index // self.count, n * (self.index + 1) // self.count)

    # How they end -------------------------------------------------------------------------------------------------

    @contextmanager
    def agreement(self) -> Iterator[None]:
        """Leaves the block in all processes or in none: an error of one becomes the end of all.

        Raises:
            OtherProcess: another process has an error and says it.
        """
        if self.count == 1:
            yield
            return
        error: BaseException | None = None
        try:
            yield
        except OtherProcess:
            raise
        except Exception as raised:
            error = raised
        codes = self.exchange(None if error is None else _exit_code(error))
        first = next((i for i, code in enumerate(codes) if code is not None), None)
        if first is None:
            return
        if first == self.index:
            assert error is not None
            raise error
        raise OtherProcess(codes[first] or 1)

    @contextmanager
    def told_once(self) -> Iterator[None]:
        """What all processes raise alike is said by the main one; what one of them raises alone, by itself.

        Raises:
            OtherProcess: the main one says it; or the connection to another process broke, which is said here.
        """
        try:
            yield
        except (RunFailed, RunStopped) as error:
            if self.main:
                raise
            raise OtherProcess(_exit_code(error)) from None
        except RuntimeError as error:
            if self.count == 1 or not _lost_contact(error):
                raise
            # At once: the launcher is about to end this process too.
            print(
                f"sleuth: process {self.index} of {self.count} lost contact with another one, which was killed or "
                "whose machine is gone; start the run again with --resume, with as many processes as there are now",
                file=sys.stderr,
                flush=True,
            )
            raise OtherProcess(1) from None

    # Rollouts -----------------------------------------------------------------------------------------------------

    def spread(self, agent: SearchAgent, model: nn.Module) -> SearchAgent:
        """An agent whose :meth:`~sleuth.agent.agent.SearchAgent.answer` all processes call together.

        Each answers its share of the questions; all get all trajectories, the same as from one process.
        """
        return agent if self.count == 1 else _SpreadAgent(agent, model, self)


class _SpreadAgent(SearchAgent):
    """See :meth:`Processes.spread`."""

    __slots__ = ("_agent", "_model", "_processes")

    def __init__(self, agent: SearchAgent, model: nn.Module, processes: Processes):
        super().__init__(agent.protocol, agent.limits, agent.sampler, agent.retriever, agent.tools)
        self._agent, self._model, self._processes = agent, model, processes

    def answer(
        self,
        questions: Sequence[Question],
        params: SamplingParams,
        *,
        seeds: Sequence[int],
        ids: Sequence[str] | None = None,
        groups: Sequence[str] | None = None,
        step: int = 0,
        on_turn: Any = None,
    ) -> list[Trajectory]:
        mine = self._processes.share(len(questions))
        refresh(self.sampler)
        with self._processes.agreement(), whole_weights(self._model):
            answers = self._agent.answer(
                questions[mine],
                params,
                seeds=seeds[mine],
                ids=None if ids is None else ids[mine],
                groups=None if groups is None else groups[mine],
                step=step,
                on_turn=on_turn,
            )
        return [t for part in self._processes.exchange(answers) for t in part]


def refresh(sampler: Sampler) -> None:
    """A sampler that isn't the model in training gets the weights of the moment; collective."""
    if isinstance(sampler, Refreshed):
        sampler.refresh()


@contextmanager
def whole_weights(model: nn.Module) -> Iterator[None]:
    """Within, a model that FSDP2 has sharded has all its weights in every process, and its forwards wait for nobody.

    Rollouts of different processes take different numbers of forwards, and a sharded forward is a collective: without
    this they would wait for each other for ever. Costs the memory of the whole weights. Anything else is left as it is.
    """
    from torch.distributed.fsdp import FSDPModule

    sharded = [module for module in model.modules() if isinstance(module, FSDPModule)]
    for module in sharded:
        module.set_reshard_after_forward(False, recurse=False)
        module.unshard()
    try:
        yield
    finally:
        for module in sharded:
            module.reshard()
            module.set_reshard_after_forward(True, recurse=False)


def is_main() -> bool:
    """Whether this is the process that talks to the user; known without joining the others."""
    return os.environ.get("RANK", "0") == "0"


_LOST = ("Connection closed by peer", "Connection reset by peer", "NCCL", "Broken pipe", "connection timeout")


def _lost_contact(error: RuntimeError) -> bool:
    return isinstance(error, dist.DistError) or any(sign in str(error) for sign in _LOST)


def _exit_code(error: BaseException) -> int:
    return 2 if isinstance(error, UserError) else INTERRUPTED if isinstance(error, RunStopped) else 1
