"""Kills training runs at random moments (SIGKILL), resumes each, and compares with the unbroken run, bit by bit.

    OMP_NUM_THREADS=1 python -m benchmarks.survival [--kills 50] [--aimed 10] [--seed 0]

Exits with 1 if anything was found that isn't the unbroken run's.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.survival.kills import Found, Lives, kill_and_resume, unbroken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50, help="at moments drawn evenly from the run's length")
    parser.add_argument("--aimed", type=int, default=10, help="more of them, while a checkpoint is written")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    started = time.monotonic()

    def progress(line: str) -> None:
        print(f"{time.monotonic() - started:6.0f} s  {line}", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        lives = Lives()
        seconds = unbroken(lives, work / "unbroken")
        print(f"unbroken run: {seconds:.1f} s", flush=True)
        wrong = []
        for kind, kills, aim in (("random", args.kills, None), ("aimed", args.aimed, "checkpoint")):
            if not kills:
                continue
            found = kill_and_resume(lives, work / "unbroken", work / kind, kills, seconds, rng, aim=aim, say=progress)
            print(line_of(kind, found), flush=True)
            wrong += found.wrong
    for line in wrong:
        print(f"WRONG: {line}")
    print(f"{time.monotonic() - started:.0f} s in all")
    sys.exit(1 if wrong else 0)


def line_of(kind: str, found: Found) -> str:
    """What a series of kills came to, in one line."""
    moments = ", ".join(f"{n} {moment}" for moment, n in found.moments.most_common())
    return (
        f"{kind}: {found.kills} kills in {found.runs} runs ({moments}); most steps lost by one: {found.most_lost}; "
        f"differences from the unbroken run: {len(found.wrong)}"
    )


if __name__ == "__main__":
    main()
