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
    """

    def __init__(self, rows: int, prompts: int, group: int, repeats: int, steps: int, seed: int):
        if rows < 1:
            raise ValueError("no rows")
        self.rows, self.prompts, self.group, self.repeats, self.steps = rows, prompts, group, repeats, steps
        self.seed = seed

    def __len__(self) -> int:
        return self.steps * self.prompts * self.group * self.repeats

    def __iter__(self) -> Iterator[int]:
        stream = self._stream()
        for _ in range(self.steps):
            batch = [next(stream) for _ in range(self.prompts)]
            for _ in range(self.repeats):
                for row in batch:
                    yield from [row] * self.group

    def _stream(self) -> Iterator[int]:
        passed = 0
        while True:
            order = np.random.default_rng(derive_seed(self.seed, "pass", passed)).permutation(self.rows)
            yield from (int(row) for row in order)
            passed += 1
