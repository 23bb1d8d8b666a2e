"""Fuzzes parsers and graders: python -m benchmarks.fuzzing --inputs 10000000 --engine atheris

Engines: ``atheris`` (``pip install atheris``; by coverage of Sleuth's code), ``hypothesis``, ``random``.
All drive the targets of :mod:`benchmarks.fuzzing.targets` by strings of bytes. A target that raises is a finding: its
input is printed and kept, once for each place that raised, and the run goes on; exit code 1 in the end.

    python -m benchmarks.fuzzing --growth           # time of inputs that repeat a piece, four times as long each
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.fuzzing import SHARES

_LONGEST = 96
"""Bytes of an input; about as many pieces of text."""


@dataclass(slots=True)
class Tally:
    """What became of a target's inputs. ``findings``: place that raised → its first input; ``slowest``: seconds."""

    target: str
    inputs: int = 0
    findings: dict[str, str] = field(default_factory=dict)
    slowest: float = 0.0
    slowest_input: str = ""

    def run(self, check: Callable[[bytes], None], data: bytes) -> None:
        self.inputs += 1
        start = time.perf_counter()
        try:
            check(data)
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{type(error).__name__} at {Path(frame.filename).name}:{frame.lineno} {frame.line}"
            if place not in self.findings:
                self.findings[place] = data.hex()
                print(f"{self.target}: {place}: {str(error)[:200]}\n  input {data.hex()}", flush=True)
        taken = time.perf_counter() - start
        if taken > self.slowest:
            self.slowest, self.slowest_input = taken, data.hex()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--inputs", type=int, default=100_000, help="over all targets")
    parser.add_argument("--engine", choices=["atheris", "hypothesis", "random"], default="random")
    parser.add_argument("--target", action="append", help="only this one; may be repeated")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, help="add a JSON line for each target to this file")
    parser.add_argument("--growth", action="store_true", help="no fuzzing: how time grows with repeated pieces")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.growth:
        from benchmarks.fuzzing.growth import report

        return report(given.target)
    names = given.target or list(SHARES)
    whole = sum(SHARES[name] for name in names)
    code = 0
    for name in names:
        count = -(-given.inputs * SHARES[name] // whole)
        if given.engine == "atheris" and not given.here:
            # It ends the process that it runs in, so that each target has its own.
            command = [sys.executable, "-m", "benchmarks.fuzzing", "--here", "--engine", "atheris", "--target", name]
            command += ["--inputs", str(count), "--seed", str(given.seed)]
            command += ["--output", str(given.output)] if given.output else []
            code |= subprocess.run(command).returncode
            continue
        code |= _fuzz(name, given.engine, count, given.seed, given.output)
    return code


def _fuzz(name: str, engine: str, count: int, seed: int, output: Path | None) -> int:
    start = time.perf_counter()
    tally = Tally(name)

    def finish() -> int:
        row = {
            "target": name,
            "engine": engine,
            "seed": seed,
            "inputs": tally.inputs,
            "seconds": round(time.perf_counter() - start, 1),
            "findings": tally.findings,
            "slowest_ms": round(1000 * tally.slowest, 2),
            "slowest_input": tally.slowest_input,
        }
        print(
            f"{name:13s} {tally.inputs:>10,} inputs, {row['seconds']:>7} s, {len(tally.findings)} findings", flush=True
        )
        if output is not None:
            with output.open("a") as file:
                file.write(json.dumps(row) + "\n")
        return 1 if tally.findings else 0

    if engine == "atheris":
        _atheris(name, count, seed, tally, finish)
    check = _target(name)
    if engine == "hypothesis":
        _hypothesis(check, count, seed, tally)
    else:
        for data in random_inputs(seed, count):
            tally.run(check, data)
    return finish()


def _target(name: str) -> Callable[[bytes], None]:
    from benchmarks.fuzzing.targets import TARGETS

    return TARGETS[name]


def random_inputs(seed: int, count: int) -> Iterator[bytes]:
    """Random bytes, most of them short; a third are earlier ones with a part changed, repeated or taken away."""
    import random

    rng = random.Random(seed)
    kept: list[bytes] = [b""]
    for number in range(count):
        data = rng.randbytes(min(int(rng.expovariate(1 / 14)), _LONGEST))
        if number % 3 == 0:
            old = kept[rng.randrange(len(kept))]
            at, end = sorted((rng.randrange(len(old) + 1), rng.randrange(len(old) + 1)))
            data = old[:at] + (data[:3], old[at:end] * 2, b"")[rng.randrange(3)] + old[end:]
            data = data[:_LONGEST]
        if len(kept) < 1_000:
            kept.append(data)
        else:
            kept[rng.randrange(1_000)] = data
        yield data


def _hypothesis(check: Callable[[bytes], None], count: int, seed: int, tally: Tally) -> None:
    import hypothesis
    from hypothesis import strategies as st

    settings: Any = hypothesis.settings(
        max_examples=count, database=None, deadline=None, suppress_health_check=list(hypothesis.HealthCheck)
    )

    @hypothesis.seed(seed)
    @settings
    @hypothesis.given(st.binary(max_size=_LONGEST))
    def go(data: bytes) -> None:
        tally.run(check, data)

    go()


def _atheris(name: str, count: int, seed: int, tally: Tally, finish: Callable[[], int]) -> None:
    """Never returns: libFuzzer ends the process after its runs, from which ``finish`` is called in the last one."""
    import os

    import atheris

    with atheris.instrument_imports(include=["sleuth.rewards", "sleuth.agent", "sleuth.data", "sleuth.evaluation"]):
        check = _target(name)

    def one(data: bytes) -> None:
        tally.run(check, data)
        if tally.inputs >= count:
            os._exit(finish())

    atheris.Setup(
        [sys.argv[0], f"-seed={seed + 1}", f"-max_len={_LONGEST}", "-print_final_stats=0", "-verbosity=0"], one
    )
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
