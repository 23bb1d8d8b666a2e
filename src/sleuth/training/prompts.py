"""Which row is trained on when: a function of the seed alone, so that a resumed run sees the unbroken run's rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from torch.utils.data import Sampler

from sleuth.seeds import derive_seed


class PromptSampler(Sampler[int]):
    """Row numbers for the whole run, as the engine's data loader consumes them.

    For each of ``steps`` batches, ``prompts`` rows, each ``group`` times in a row, the whole ``repeats`` times (the
    engine asks for the batch again for every part of it that it trains on). Rows come in a new order in each pass over
    the data; a batch may span two passes, so no row is left out. A row may be in one batch twice only where the data
    are fewer than a batch.

    Args:
        rows: number of rows of the training set, at least 1.
        size: rows that the engine takes as a batch, if it takes more than prompts × group: the last row again.
    """

    def __init__(
        self, rows: int, prompts: int, group: int, repeats: int, steps: int, seed: int, size: int | None = None
    ):
        if rows < 1:
            raise ValueError("no rows")
        self.rows, self.prompts, self.group, self.repeats, self.steps = rows, prompts, group, repeats, steps
        self.seed = seed
        self.size = size or prompts * group
        self._orders: dict[int, list[int]] = {}

    def __len__(self) -> int:
        return self.steps * self.size * self.repeats

    def __iter__(self) -> Iterator[int]:
        for step in range(1, self.steps + 1):
            batch = self.batch(step)
            batch += batch[-1:] * (self.size - len(batch))
            for _ in range(self.repeats):
                yield from batch

    def batch(self, step: int) -> list[int]:
        """The prompts × group rows of a step, from 1."""
        first = (step - 1) * self.prompts
        return [self._row(n) for n in range(first, first + self.prompts) for _ in range(self.group)]

    def _row(self, n: int) -> int:
        """The ``n``-th prompt of the run."""
        passed, place = divmod(n, self.rows)
        if passed not in self._orders:
            order = np.random.default_rng(derive_seed(self.seed, "pass", passed)).permutation(self.rows)
            self._orders = {p: o for p, o in self._orders.items() if p == passed - 1} | {passed: order.tolist()}
        return self._orders[passed][place]
