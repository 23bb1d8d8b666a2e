"""Kills builds and changes at random moments (SIGKILL) and looks at what is left: whole, or said to be none.

    python -m benchmarks.retrieval.kill [--times 20] [--passages 3000]

Exits with 1 if anything else was found.
"""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from sleuth.errors import UserError
from sleuth.jsonl import write_jsonl
from sleuth.retrieval.build import IndexSettings, build_index
from sleuth.retrieval.index import open_index
from sleuth.types import SearchRequest

_BUILD = """
import sys
from pathlib import Path
from sleuth.retrieval.build import IndexSettings, build_index
print("go", flush=True)
build_index(sys.argv[1], Path(sys.argv[2]), IndexSettings(kind=sys.argv[3]))
"""
_ADD = """
import sys
from pathlib import Path
from sleuth.retrieval.changes import change_index
print("go", flush=True)
change_index(Path(sys.argv[2]), add=sys.argv[1], delete=["0", "1"])
"""


def rows(first: int, count: int) -> list[dict[str, str]]:
    return [
        {"id": str(n), "title": f"T{n}", "text": f"word{n} common " + "filler " * 40}
        for n in range(first, first + count)
    ]


def killed_after(seconds: float, source: str, *arguments: str) -> bool:
    """Run and kill; False if it was done before."""
    process = subprocess.Popen([sys.executable, "-c", source, *arguments], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(seconds)
    process.kill()
    return process.wait() != 0


def change(more: Path, folder: Path) -> None:
    subprocess.run([sys.executable, "-c", _ADD, str(more), str(folder)], check=True, stdout=subprocess.DEVNULL)


def finds(folder: Path, numbers: list[int]) -> set[int]:
    """Those of the passages that are found by their own word and have their own text."""
    index = open_index(folder)
    results = index.search([SearchRequest(f"word{n}") for n in numbers], 1)
    return {n for n, r in zip(numbers, results, strict=True) if r.documents and f"word{n} " in r.documents[0].text}


def builds(work: Path, times: int, passages: int, rng: random.Random) -> tuple[int, list[str]]:
    """(builds that were killed, what was wrong)."""
    corpus, folder, wrong, kills = work / "c.jsonl", work / "index", [], 0
    write_jsonl(corpus, rows(0, passages))
    started = time.monotonic()
    build_index(str(corpus), folder, IndexSettings(kind="tantivy"))
    length = time.monotonic() - started
    for n in range(times):
        kind = ("bm25", "tantivy")[n % 2]
        shutil.rmtree(folder, ignore_errors=True)
        kills += killed_after(rng.uniform(0, 1.3 * length), _BUILD, str(corpus), str(folder), kind)
        for attempt in ("after the kill", "built again"):
            try:
                missing = passages - len(finds(folder, list(range(passages))))
                if missing:
                    wrong.append(f"build {n}, {attempt}: {missing} passages are missing")
            except UserError as error:
                if "build" not in str(error) or attempt == "built again":
                    wrong.append(f"build {n}, {attempt}: {error}")
                build_index(str(corpus), folder, IndexSettings(kind=kind))  # type: ignore[arg-type]
    return kills, wrong


def changes(work: Path, times: int, passages: int, rng: random.Random) -> tuple[int, int, list[str]]:
    """(changes that were killed, of those how many were in force all the same, what was wrong)."""
    corpus, more, first, wrong = work / "c.jsonl", work / "more.jsonl", work / "first", []
    write_jsonl(corpus, rows(0, passages))
    write_jsonl(more, rows(passages, passages))
    build_index(str(corpus), first, IndexSettings(kind="tantivy"))
    shutil.copytree(first, work / "timed")
    started = time.monotonic()
    change(more, work / "timed")
    length = time.monotonic() - started
    old, new = set(range(passages)), set(range(2, 2 * passages))
    kills = in_force = 0
    for n in range(times):
        folder = work / "changed"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(first, folder)
        was_killed = killed_after(rng.uniform(0, length), _ADD, str(more), str(folder))
        kills += was_killed
        found = finds(folder, list(range(2 * passages)))
        in_force += was_killed and found == new
        if found not in (old, new):
            wrong.append(f"change {n}: {len(found)} passages are found, neither {len(old)} nor {len(new)}")
        if found == old:
            change(more, folder)
            if finds(folder, list(range(2 * passages))) != new:
                wrong.append(f"change {n}: not whole after it was made again")
    return kills, in_force, wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--passages", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        kills, wrong = builds(Path(one), args.times, args.passages, rng)
        print(f"builds: {args.times}, of them killed: {kills}", flush=True)
        changed, in_force, more_wrong = changes(Path(other), args.times, args.passages, rng)
        print(f"changes: {args.times}, of them killed: {changed}, and in force all the same: {in_force}")
    for line in (*wrong, *more_wrong):
        print(f"WRONG: {line}")
    sys.exit(1 if wrong or more_wrong else 0)


if __name__ == "__main__":
    main()
