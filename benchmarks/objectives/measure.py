"""Time as medians of interleaved rounds, memory as the allocator saw it."""

from __future__ import annotations

import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

Step = Callable[[], None]


def rounds(steps: dict[str, Step], count: int, seed: int = 0) -> dict[str, list[float]]:
    """CPU seconds of every step in every round, by name.

    Each round runs all of them once in an order of its own, so that whatever else the machine does meets all alike.
    The first round warms up and is not counted.
    """
    rng = random.Random(seed)
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(count + 1):
        order = list(steps)
        rng.shuffle(order)
        for name in order:
            start = time.process_time()
            steps[name]()
            if number:
                seconds[name].append(time.process_time() - start)
    return seconds


def ratio(seconds: list[float], base: list[float]) -> float:
    """Median over the rounds of one step's time by the base's in the same round."""
    return statistics.median(a / b for a, b in zip(seconds, base, strict=True))


def peak_bytes(step: Step) -> int:
    """The most bytes of tensors alive at once beyond those alive before, as torch's allocator counts them."""
    step()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
            step()
        recorded.export_chrome_trace(str(path))
        events = [e for e in json.loads(path.read_text())["traceEvents"] if e.get("name") == "[memory]"]
    alive = peak = 0
    for event in sorted(events, key=lambda e: e["ts"]):
        alive += event["args"]["Bytes"]
        peak = max(peak, alive)
    return peak


def one_thread() -> None:
    """Set torch to one thread: ratios of many threads are ratios of how well they share."""
    torch.set_num_threads(1)
