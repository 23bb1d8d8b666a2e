"""Build, load, search and serve, each measured; both servers in one run over the same index.

    python -m benchmarks.retrieval --corpus passages.jsonl.gz --questions nq.jsonl.gz
    python -m benchmarks.retrieval --generated 1000000 --kinds tantivy

Prints what it found, and writes it to ``--json FILE``. CPU seconds are the process's own; other work on the machine
moves wall clock, so the two servers take turns and only their ratios are worth much.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.retrieval import generated
from benchmarks.retrieval.load import Load, run_clients, send_batch
from benchmarks.retrieval.overhead import beyond_the_engine
from benchmarks.retrieval.processes import Server

from sleuth.jsonl import read_jsonl, write_jsonl
from sleuth.retrieval.index import IndexRetriever, open_index
from sleuth.types import SearchRequest

_BUILD = """
import json, resource, sys, time
from pathlib import Path
from sleuth.retrieval.build import IndexSettings, build_index
started = time.monotonic()
build_index(sys.argv[1], Path(sys.argv[2]), IndexSettings(kind=sys.argv[3]))
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps({"seconds": time.monotonic() - started, "cpu": used.ru_utime + used.ru_stime,
                  "peak_mb": used.ru_maxrss / 1000}))
"""

_LOAD = """
import json, sys, time
started, cpu = time.monotonic(), time.process_time()
from sleuth.retrieval.index import open_index
from sleuth.types import SearchRequest
imported = time.process_time()
index = open_index(sys.argv[1])
index.search([SearchRequest(sys.argv[2])], 3)
print(json.dumps({"first_answer_cpu": time.process_time() - imported, "seconds": time.monotonic() - started}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", help="passages, in any form that sleuth index reads")
    parser.add_argument("--questions", help="JSONL with a question a row")
    parser.add_argument("--generated", type=int, help="make so many passages instead")
    parser.add_argument("--kinds", default="bm25,tantivy")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=8.0, help="of load on each server in each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where indexes are made and kept; default: a temporary folder")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if (args.corpus is None) == (args.generated is None):
        parser.error("give --corpus or --generated")
    folder = args.folder or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    try:
        corpus, queries = inputs(args, folder)
        report: dict[str, Any] = {"machine": machine(), "queries": len(queries)}
        for kind in args.kinds.split(","):
            report[kind] = measure(kind, corpus, queries, folder / kind, args)
            print(json.dumps({kind: report[kind]}, indent=2), flush=True)
        if args.json:
            args.json.write_text(json.dumps(report, indent=2) + "\n")
    finally:
        if args.folder is None:
            shutil.rmtree(folder)


def inputs(args: argparse.Namespace, folder: Path) -> tuple[str, list[str]]:
    if args.generated is None:
        rows = [row["question"] for _, row in read_jsonl(args.questions)]
        return args.corpus, rows[:2048]
    file = folder / f"generated-{args.generated}.jsonl"
    if not file.exists():
        write_jsonl(file, generated.passages(args.generated))
    return str(file), generated.queries(2048, args.generated)


def measure(kind: str, corpus: str, queries: list[str], folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if not folder.exists():
        found["build"] = child(_BUILD, corpus, str(folder), kind)
    found["disk_mb"] = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file()) / 1e6
    found["load"] = child(_LOAD, str(folder), queries[0])
    index = open_index(folder)
    found["passages"] = len(index)
    found["engine"] = engine(index, queries)
    found["beyond_the_engine"] = beyond_the_engine(folder, queries)
    expected = {q: first(index, q) for q in queries}
    found["serving"] = serving(folder, queries, expected, found["engine"]["single_cpu_ms"], args)
    return found


def child(source: str, *arguments: str) -> dict[str, float]:
    done = subprocess.run([sys.executable, "-c", source, *arguments], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def first(index: IndexRetriever, query: str) -> str | None:
    documents = index.search([SearchRequest(query)], 3)[0].documents
    return documents[0].id if documents else None


def engine(index: IndexRetriever, queries: list[str]) -> dict[str, float]:
    """CPU seconds a query, rows and scores alone."""
    index.rows(queries[:8], 3)
    batch, single = [], []
    for _ in range(3):
        cpu = time.process_time()
        index.rows(queries[:512], 3)
        batch.append((time.process_time() - cpu) / len(set(queries[:512])))
        cpu = time.process_time()
        for query in queries[:256]:
            index.rows([query], 3)
        single.append((time.process_time() - cpu) / 256)
    return {"batch_cpu_ms": 1000 * min(batch), "single_cpu_ms": 1000 * min(single), "batch_per_cpu_s": 1 / min(batch)}


def serving(
    folder: Path, queries: list[str], expected: dict[str, str | None], engine_ms: float, args: argparse.Namespace
) -> dict[str, Any]:
    """Rounds in which the servers take turns."""
    servers = {
        "ours": Server.ours(folder),
        "plain": Server.plain(folder),
        "plain_as_installed": Server.plain(folder, "--as-installed"),
    }
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in servers}
    try:
        for server in servers.values():
            run_clients(server.host, server.port, queries, expected, clients=args.clients, seconds=1.0)
        for _ in range(args.rounds):
            for name, server in servers.items():
                before = server.cpu_seconds()
                load = run_clients(
                    server.host, server.port, queries, expected, clients=args.clients, seconds=args.seconds
                )
                singles = server.cpu_seconds() - before
                wall = min(send_batch(server.host, server.port, queries[:512]) for _ in range(4))
                rounds[name].append(numbers(load, singles, wall))
        memory = {name: server.megabytes() for name, server in servers.items()}
    finally:
        for server in servers.values():
            server.stop()
    middle = {
        name: {key: statistics.median(row[key] for row in rows) for key in rows[0]} | {"rss_mb": memory[name]}
        for name, rows in rounds.items()
    }
    ratios = {name: compared(middle["ours"], middle[name], engine_ms) for name in servers if name != "ours"}
    return {**middle, "ratios": ratios, "rounds": rounds}


def compared(ours: dict[str, float], other: dict[str, float], engine_ms: float) -> dict[str, float]:
    """Ours to the other's; ``bound``: the throughput, if serving cost us nothing at all beyond the engine."""
    return {
        "throughput": ours["per_second"] / other["per_second"],
        "throughput_a_cpu_second": other["cpu_ms"] / ours["cpu_ms"],
        "p99": ours["p99_ms"] / other["p99_ms"],
        "cpu_beyond_the_engine": (ours["cpu_ms"] - engine_ms) / (other["cpu_ms"] - engine_ms),
        "bound": other["cpu_ms"] / engine_ms,
    }


def numbers(load: Load, singles: float, wall: float) -> dict[str, float]:
    return {
        "per_second": load.per_second,
        "p50_ms": load.p50,
        "p99_ms": load.p99,
        "wrong": load.wrong,
        "cpu_ms": 1000 * singles / load.requests,
        "batch512_wall_ms": 1000 * wall,
    }


def machine() -> dict[str, Any]:
    return {"cpu": platform.processor() or platform.machine(), "cores": os.cpu_count(), "load": os.getloadavg()}


if __name__ == "__main__":
    main()
