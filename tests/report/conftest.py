"""Runs to report on, made from the example's real rollouts, and a browser to open reports in."""

from __future__ import annotations

import copy
import json
import math
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sleuth.recipes.loader import dump_recipe, load_recipe
from sleuth.rollouts import read_rollouts, write_rollouts
from sleuth.types import Trajectory

EXAMPLE = Path(__file__).parents[2] / "examples" / "replay" / "rollouts.jsonl"

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def example() -> list[Trajectory]:
    """Eight real rollouts of two questions, with old and new log-probs."""
    return list(read_rollouts(EXAMPLE))


def batch(example: list[Trajectory], step: int) -> list[Trajectory]:
    """The example's rollouts as those of a step."""
    rollouts = copy.deepcopy(example)
    for rollout in rollouts:
        rollout.step = step
        rollout.id = f"{step}-{rollout.id}"
        rollout.group = f"{step}-{rollout.group}"
    return rollouts


def record(step: int) -> dict[str, Any]:
    """A step's metrics: a reward that rises and then falls, while the ratios of query tokens drift apart."""
    drift = max(0, step - 12) / 10
    out: dict[str, Any] = {
        "step": step,
        "reward": 0.4 + 0.03 * step if step < 16 else 0.05,
        "loss": 0.01 * math.sin(step),
        "entropy": 0.6 - 0.01 * step,
        "entropy/query": 0.8,
        "grad_norm": 0.3 * math.exp(3 * drift),
        "lr": 1e-4,
        "advantage/pos_mass": 0.4,
        "advantage/neg_mass": 0.38,
        "my_own_component": 0.5,
    }
    for sign in ("pos", "neg"):
        for split in ("", "think/", "query/", "turn1/", "turn6+/"):
            wide = (0.1 + drift) * (2 if "query" in split else 1)
            out |= {f"ratio/{sign}/{split}{stat}": math.exp(size * wide) for stat, size in QUANTILES.items()}
            out[f"ratio/{sign}/{split}below_0.5"] = 0.01 * drift
    return out


QUANTILES = {"min": -4, "q01": -2, "q05": -1, "q50": 0, "q95": 1, "q99": 2, "max": 3, "mean": 0}


@pytest.fixture
def run_folder(tmp_path: Path, example: list[Trajectory]) -> Path:
    """A finished run of 20 steps, with the rollouts of steps 1 and 2, and an alarm that names two of them."""
    return make_run(tmp_path / "collapse", example)


def make_run(folder: Path, example: list[Trajectory]) -> Path:
    (folder / "rollouts").mkdir(parents=True)
    (folder / "recipe.yaml").write_text(dump_recipe(load_recipe("laptop", ["trainer.steps=20"])))
    write_lines(folder / "metrics.jsonl", [record(step) for step in range(1, 21)])
    for step in (1, 2):
        write_rollouts(folder / "rollouts" / f"step-{step:06d}.jsonl.zst", batch(example, step))
    alarm = {
        "level": "dead",
        "rule": "mine",
        "statistic": "ratio/pos/query/q01",
        "value": 0.1,
        "limit": 0.5,
        "step": 2,
        "since": 1,
        "where": {"sign": "pos", "kind": "query", "turn": None},
        "rollouts": [f"2-{example[0].id}", f"2-{example[1].id}"],
        "advice": "Lower trainer.lr.",
        "action": "stop",
    }
    write_lines(folder / "alarms.jsonl", [alarm])
    (folder / "environment.json").write_text(json.dumps({"versions": {"torch": "9.9.9"}, "seed": 7}))
    summary = {"objective": "grpo", "seed": 7, "steps": 20, "seconds": 12.0, "questions": 4}
    (folder / "summary.json").write_text(json.dumps(summary | {"em_before": 0.25, "em_after": 0.5}))
    return folder


def write_lines(file: Path, rows: list[dict[str, Any]]) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


# A browser -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Headless Chromium. Of this module alone: while it runs, no other test may start an event loop."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (extra: dev)")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("no Chromium on this machine; on Debian: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield running
        running.close()


@dataclass
class Opened:
    """A report in the browser. ``trouble``: what a good report never causes."""

    page: Any
    trouble: list[str] = field(default_factory=list)

    def found(self) -> str:
        """How many rollouts pass the filters, as the page says it."""
        self.page.wait_for_function("!document.querySelector('.found').textContent.startsWith('Searching')")
        return self.page.inner_text(".found")

    def asked(self) -> str:
        return self.page.inner_text(".detail .where")

    def go(self, section: str) -> None:
        self.page.evaluate(f"location.hash = '#{section}'")
        self.page.wait_for_selector(f"body[data-section={section.split('/')[0]}]")


@pytest.fixture
def open_report(browser: Any) -> Iterator[Callable[..., Opened]]:
    """``open_report(file, "rollouts", width=…, scheme=…)``; at the end nothing may have gone wrong in any page."""
    opened: list[tuple[Opened, Any]] = []

    def open_it(file: Path, section: str = "", *, width: int = 1400, scheme: str = "light") -> Opened:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page = context.new_page()
        page.set_default_timeout(20_000)
        report = Opened(page)
        trouble = report.trouble
        page.on("console", lambda message: trouble.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: trouble.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (trouble.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda asked: None if asked.url.startswith("file:") else trouble.append(asked.url))
        page.goto(f"{file.as_uri()}#{section}")
        page.wait_for_selector("html[data-ready]")
        opened.append((report, context))
        return report

    yield open_it
    for _, context in opened:
        context.close()
    assert [report.trouble for report, _ in opened if report.trouble] == []
