"""``python -m benchmarks.sizing``: memory, passes and rollouts as planned and as measured on this CPU, as a table.

Each measurement is a process of its own with one thread; seconds are CPU time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

PASSES = (("30M", 4, 256), ("60M", 4, 256), ("SmolLM2-135M", 2, 256), ("SmolLM2-135M", 1, 1024))


def _run(*arguments: str) -> dict:
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        # Blocks from 64 KiB on go back to the system when they are freed, so that the peak is what was in use.
        env={**os.environ, "OMP_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": "65536"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def _row(what: str, measured: float, planned: float, unit: str) -> str:
    return f"| {what} | {measured:,.2f} {unit} | {planned:,.2f} {unit} | {planned / measured - 1:+.0%} |"


def main() -> None:
    print("| what | measured | planned | error |\n|---|--:|--:|--:|")
    for name, rows, tokens in PASSES:
        found = _run("benchmarks.sizing.passes", name, str(rows), str(tokens))
        measured, planned = found["measured"], found["planned"]
        what = f"{name}, {rows} × {tokens} tokens"
        print(_row(f"peak memory of a step, {what}", measured["bytes"] / 1e9, planned["bytes"] / 1e9, "GB"))
        rate = f"{found['rate'] / 1e9:,.0f} GFLOP/s"
        print(_row(f"update, {what} ({rate})", measured["seconds"], planned["seconds"], "s"), flush=True)
    found = _run("benchmarks.sizing.rollouts")
    measured = sum(step["measured"] for step in found["steps"]) / len(found["steps"])
    planned = sum(step["planned"] for step in found["steps"]) / len(found["steps"])
    print(_row("rollouts of `laptop`, 128 a step", measured, planned, "s"))


if __name__ == "__main__":
    main()
