"""Rollouts a second of two processes against one, by turns in one run: ``python -m benchmarks.ranks [KEY=VALUE …]``.

Each process has one thread. The load average is printed: on a machine that does something else the ratio says nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from sleuth.training.run_folder import RunFolder

STEPS, TURNS = 8, 3
SETTINGS = ["world.train.questions=2000", "trainer.eval_every=0", "evaluation.enabled=false", f"trainer.steps={STEPS}"]


def seconds(processes: int, folder: Path, settings: list[str]) -> list[tuple[float, float]]:
    """(rollout, update) of every step but the first, which builds indexes."""
    launcher = [
        "torch.distributed.run",
        "--rdzv-backend=c10d",
        "--rdzv-endpoint=localhost:0",
        "--nproc-per-node=2",
        "-m",
    ]
    subprocess.run(
        [
            *(sys.executable, "-m", *(launcher if processes == 2 else [])),
            *("sleuth.cli", "train", "laptop", *SETTINGS, *settings, "-o", str(folder)),
        ],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return [(r["seconds/rollout"], r["seconds/update"]) for r in RunFolder(folder).read_metrics()[1:]]


def main() -> None:
    found: dict[int, list[tuple[float, float]]] = {1: [], 2: []}
    with tempfile.TemporaryDirectory() as name:
        for turn in range(TURNS):
            for processes in found:
                found[processes] += seconds(processes, Path(name) / f"{turn}-{processes}", sys.argv[1:])
    print(f"load average at the end: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print("| processes | rollout s | update s | step s |\n|--:|--:|--:|--:|")
    steps = {}
    for processes, rows in found.items():
        steps[processes] = median(a + b for a, b in rows)
        rollout, update = (median(row[part] for row in rows) for part in (0, 1))
        print(f"| {processes} | {rollout:.2f} | {update:.2f} | {steps[processes]:.2f} |")
    print(f"two processes do {steps[1] / steps[2]:.2f} times the rollouts of one in the same time")


if __name__ == "__main__":
    main()
