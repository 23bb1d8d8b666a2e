"""Makes reports of 8 and of 5,000 rollouts, opens both in headless Chromium in turn, and prints one beside the other.

    python -m benchmarks.report

The rollouts are the example's, over and over; with ``--passage N`` every passage gets N more characters of its own,
since the example's are a few words each.
"""

from __future__ import annotations

import argparse
import copy
import random
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from sleuth.report.sources import find_source
from sleuth.report.write import write_report
from sleuth.rollouts import read_rollouts, write_rollouts
from sleuth.types import Trajectory

EXAMPLE = Path("examples/replay/rollouts.jsonl")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
ROLLOUTS = 5000
OPENED = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passage", type=int, default=400, help="characters added to each passage")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        few = _report(folder, list(read_rollouts(EXAMPLE)), "few")
        many = _report(folder, _many(arguments.passage), "many")
        times, cpu = _open([few, many])
    for what, unit, (few_times, many_times) in (
        ("until rows are drawn", "s", times),
        ("CPU of the page", "CPU s", cpu),
    ):
        print(
            f"opening, {what}, median of {OPENED}: 8 rollouts {few_times:.2f} {unit}, "
            f"{ROLLOUTS:,} {many_times:.2f} {unit}, {many_times / few_times:.1f} times as much"
        )


def _many(characters: int) -> list[Trajectory]:
    example = list(read_rollouts(EXAMPLE))
    words = [word for rollout in example for span in rollout.spans for word in span.text.split()]
    draw = random.Random(0)
    out = []
    for step in range(1, ROLLOUTS // len(example) + 1):
        for rollout in copy.deepcopy(example):
            rollout.step = step
            for span in rollout.spans:
                for document in span.documents:
                    more = " ".join(draw.choices(words, k=characters // 5))
                    span.text = span.text.replace(document.text, f"{document.text} {more}", 1)
                    document.text = f"{document.text} {more}"
            out.append(rollout)
    return out


def _report(folder: Path, rollouts: list[Trajectory], name: str) -> Path:
    write_rollouts(folder / f"{name}.jsonl.zst", rollouts)
    file = folder / f"{name}.html"
    began = time.process_time()
    data = write_report(find_source(folder / f"{name}.jsonl.zst"), file)
    took = time.process_time() - began
    shown = len(data["rollouts"]["rows"])
    print(
        f"{shown:,} of {len(rollouts):,} rollouts: {file.stat().st_size / 1e6:.1f} MB, made in {took:.1f} CPU seconds"
    )
    return file


def _open(files: list[Path]) -> tuple[list[float], list[float]]:
    """Of each file the median seconds until the first rows are drawn, and the CPU seconds of its page's process."""
    from playwright.sync_api import sync_playwright

    times: dict[Path, list[float]] = {file: [] for file in files}
    cpu: dict[Path, list[float]] = {file: [] for file in files}
    with sync_playwright() as playwright:
        browser: Any = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        for _ in range(OPENED):
            for file in files:
                page = browser.new_page()
                session = page.context.new_cdp_session(page)
                session.send("Performance.enable", {"timeDomain": "threadTicks"})
                began = time.perf_counter()
                page.goto(file.as_uri())
                page.wait_for_selector(".rows tbody tr")
                times[file].append(time.perf_counter() - began)
                metrics = session.send("Performance.getMetrics")["metrics"]
                cpu[file].append(next(m["value"] for m in metrics if m["name"] == "ProcessTime"))
                page.close()
        browser.close()
    return [statistics.median(times[file]) for file in files], [statistics.median(cpu[file]) for file in files]


if __name__ == "__main__":
    main()
