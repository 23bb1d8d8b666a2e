"""``python -m benchmarks.sspo MODEL -o DIR [--seeds 0,1,2,3,4] [--steps 25] [key=value …]``: sspo against grpo.

For each seed the laptop recipe twice from ``MODEL``: with ``sspo``, and with ``grpo`` at as many steps and then as many
more as the teacher's pass costs (by CPU time, which other work on the machine changes little). Each of the three is
scored on the test questions, sampled and greedy. A line of ``results.jsonl`` a run; those that are there are not made
again. ``python -m benchmarks.sspo --table DIR`` prints the tables of docs/methods/sspo.md.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from pathlib import Path
from typing import Any

from sleuth.assembly import Material, assemble, build_agent, build_sampler, gather
from sleuth.evaluation.score import evaluate, score
from sleuth.evaluation.statistics import bootstrap_interval
from sleuth.recipes.loader import load_recipe
from sleuth.training import run as training
from sleuth.training.trl import SearchGRPOTrainer
from sleuth.types import SamplingParams

SETTINGS = [
    "trainer.eval_every=0",
    "trainer.save_rollouts_every=0",
    "trainer.keep=last",
    "trainer.keep_last=2",
    "evaluation.enabled=false",
]
OF_SSPO = ("capped", "exempt", "weight", "amplified", "final_amplified", "gain/q05", "gain/q50", "gain/q95")


class TeacherClock:
    """CPU seconds of the teacher's passes."""

    def __init__(self) -> None:
        self.seconds = 0.0
        inner = SearchGRPOTrainer._teacher_scores

        def timed(trainer: Any, *args: Any, **kwargs: Any) -> Any:
            started = time.process_time()
            try:
                return inner(trainer, *args, **kwargs)
            finally:
                self.seconds += time.process_time() - started

        SearchGRPOTrainer._teacher_scores = timed  # type: ignore[method-assign]


def run_seed(model: str, out: Path, seed: int, steps: int, settings: list[str], material: Material) -> None:
    """Both runs of a seed."""
    done = {(r["arm"], r["seed"]) for r in read(out)}
    clock = TeacherClock()
    if ("sspo", seed) not in done:
        folder = out / f"sspo-{seed}"
        seconds = train(model, folder, "sspo", seed, steps, steps, settings, material)
        rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        told = {n: statistics.fmean(r[f"sspo/{n}"] for r in rows if f"sspo/{n}" in r) for n in OF_SSPO}
        told |= {"scored": statistics.fmean(r["teacher/scored"] for r in rows), "teacher": clock.seconds}
        save(out, "sspo", seed, steps, seconds, folder, settings, material, told)
    if ("grpo", seed) not in done:
        (sspo,) = (r for r in read(out) if (r["arm"], r["seed"]) == ("sspo", seed))
        share = sspo["teacher"] / sspo["seconds"]
        longer = steps + math.ceil(steps * share / (1 - share))
        folder = out / f"grpo-{seed}"
        seconds = train(model, folder, "grpo", seed, longer, steps, settings, material)
        save(out, "grpo", seed, steps, seconds * steps / longer, folder, settings, material, {})
        save(out, "grpo, equal compute", seed, longer, seconds, folder, settings, material, {})


def train(
    model: str, folder: Path, arm: str, seed: int, steps: int, every: int, settings: list[str], material: Material
) -> float:
    """CPU seconds of the training loop."""
    recipe = load_recipe(
        "laptop",
        [*SETTINGS, f"model={model}", f"seed={seed}", f"trainer.steps={steps}", f"trainer.save_every={every}",
         f"objective={arm}", *(s for s in settings if arm == "sspo" or not s.startswith(("sspo.", "teacher.")))],
    )  # fmt: skip
    spent = 0.0
    inner = SearchGRPOTrainer.train

    def timed(trainer: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal spent
        started = time.process_time()
        try:
            return inner(trainer, *args, **kwargs)
        finally:
            spent = time.process_time() - started

    SearchGRPOTrainer.train = timed  # type: ignore[method-assign]
    try:
        training.train(recipe, folder, quiet=True, material=material)
    finally:
        SearchGRPOTrainer.train = inner  # type: ignore[method-assign]
    return spent


def save(
    out: Path,
    arm: str,
    seed: int,
    steps: int,
    seconds: float,
    folder: Path,
    settings: list[str],
    material: Material,
    told: dict[str, float],
) -> None:
    """Score a checkpoint and add its line."""
    em = scores(str(folder / "checkpoints" / f"step-{steps}"), material)
    row = {"arm": arm, "seed": seed, "steps": steps, "seconds": seconds, "settings": settings, **told, **em}
    with (out / "results.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")
    print({k: v for k, v in row.items() if k not in ("sampled", "greedy")}, {k: mean(em[k]) for k in em}, flush=True)


def scores(model: str, material: Material) -> dict[str, list[float]]:
    """EM of each test question, sampled and greedy."""
    recipe = load_recipe("laptop", [f"model={model}"])
    parts = assemble(recipe, Path(model), material=material)
    agent = build_agent(parts, build_sampler(recipe, parts.model))
    found = {}
    for mode, temperature in (("sampled", 1.0), ("greedy", 0.0)):
        answers = evaluate(agent, parts.test, SamplingParams(temperature), seed=0, batch=300)
        found[mode] = [row.em or 0.0 for row in score(answers)]
    return found


def read(out: Path) -> list[dict[str, Any]]:
    file = out / "results.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def mean(values: list[float]) -> float:
    return round(statistics.fmean(values), 4)


def table(out: Path) -> None:
    """EM by arm with 95 % intervals (questions resampled, their scores averaged over seeds), and cost."""
    rows = read(out)
    for start in (r for r in rows if r["arm"] == "start"):
        cells = [interval([start[mode]]) for mode in ("sampled", "greedy")]
        print(f"| start | 0 | {' | '.join(cells)} | |")
    for arm in ("grpo", "grpo, equal compute", "sspo"):
        own = sorted((r for r in rows if r["arm"] == arm), key=lambda r: r["seed"])
        if not own:
            continue
        cells = [interval([r[mode] for r in own]) for mode in ("sampled", "greedy")]
        seconds = statistics.fmean(r["seconds"] / r["steps"] for r in own)
        steps = "–".join(str(x) for x in sorted({r["steps"] for r in own}))
        print(f"| {arm} ({len(own)} seeds) | {steps} | {' | '.join(cells)} | {seconds:.2f} |")
    sspo = {r["seed"]: r for r in rows if r["arm"] == "sspo"}
    for other in ("grpo", "grpo, equal compute"):
        pairs = [(sspo[r["seed"]], r) for r in rows if r["arm"] == other and r["seed"] in sspo]
        for mode in ("sampled", "greedy") if pairs else ():
            gaps = [[a - b for a, b in zip(s[mode], g[mode], strict=True)] for s, g in pairs]
            by_seed = ", ".join(f"{statistics.fmean(gap):+.3f}" for gap in gaps)
            print(f"sspo - {other}, {mode}: {interval(gaps)}; by seed {by_seed}")
    if sspo:
        shares = [r["teacher"] / r["seconds"] for r in sspo.values()]
        print(f"teacher's share of CPU time: {statistics.fmean(shares):.3f} ({min(shares):.3f}-{max(shares):.3f})")
        for name in (*OF_SSPO, "scored"):
            print(f"{name}: {statistics.fmean(r[name] for r in sspo.values()):.3f}")


def interval(by_seed: list[list[float]]) -> str:
    found = bootstrap_interval([statistics.fmean(values) for values in zip(*by_seed, strict=True)])
    return f"{found.mean:.3f} ({found.low:.3f} to {found.high:.3f})"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", nargs="?")
    parser.add_argument("settings", nargs="*")
    parser.add_argument("-o", "--output", type=Path, default=Path("runs/sspo"))
    parser.add_argument("--seeds", default="0,1,2,3,4")
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--table", type=Path)
    given = parser.parse_args()
    if given.table:
        table(given.table)
        return
    given.output.mkdir(parents=True, exist_ok=True)
    material = gather(load_recipe("laptop"), given.output)
    if not any(r["arm"] == "start" for r in read(given.output)):
        row = {"arm": "start", "seed": -1, "steps": 0, "seconds": 0.0, **scores(given.model, material)}
        with (given.output / "results.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")
        print("start", {k: mean(row[k]) for k in ("sampled", "greedy")}, flush=True)
    for seed in map(int, given.seeds.split(",")):
        run_seed(given.model, given.output, seed, given.steps, given.settings, material)


if __name__ == "__main__":
    main()
