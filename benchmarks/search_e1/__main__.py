"""``python -m benchmarks.search_e1 DIR [SEED]...``: Search-E1-style rounds against GRPO on the laptop recipe.

Each seed trains four arms from one policy and writes a line to ``DIR/results-SEED.json``:

* ``grpo``: as many updates as the rounds have in all, distillation included (equal gradient steps);
* ``grpo-compute``: that run, gone on with until it has taken as many CPU seconds as the rounds (equal compute; pool and
  distillation are paid for, scoring is not);
* ``search_e1-exact``: two rounds, exact forward KL; ``search_e1-clip``: the same with each term clipped at 0.05. Both
  share the first round's reinforcement learning and pool.

Every result is scored on the 600 test questions, sampled and greedy; the stages of the rounds sampled only. Without
seeds: the tables of what is there. One thread a process: start several for several seeds.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.search_e1.policy import make_policy

from sleuth.assembly import Material, assemble, build_agent, build_sampler, gather
from sleuth.evaluation.score import evaluate, score
from sleuth.recipes.loader import dump_recipe, load_recipe
from sleuth.training.run import train
from sleuth.training.run_folder import RunFolder
from sleuth.types import SamplingParams

RL_STEPS, ROUNDS, UPDATES_A_STEP = 8, 2, 8
DISTILL_BATCH, EPOCHS = 8, 2

BASE = [
    "search_e1.distill.teacher_question='{question} {reference} {question}'",
    "trainer.eval_every=0",
    "trainer.keep=last",
    "trainer.save_rollouts_every=0",
    "evaluation.enabled=false",
    "diagnosis.action=off",
]
ROUNDS_SETTINGS = [
    "schedule=search_e1",
    f"search_e1.rounds={ROUNDS}",
    f"trainer.steps={RL_STEPS}",
    "search_e1.pool.questions=64",
    f"search_e1.distill.batch={DISTILL_BATCH}",
    "search_e1.distill.micro_batch=8",
    f"search_e1.distill.epochs={EPOCHS}",
    "search_e1.distill.lora=16",
    "search_e1.distill.lr=1e-3",
    "search_e1.distill.save_every=0",
]
ARMS = ("grpo", "grpo-compute", "search_e1-exact", "search_e1-clip")


def run_seed(home: Path, seed: int) -> None:
    """All arms of one seed."""
    settings = [*BASE, f"model={home / 'policy'}", f"seed={seed}"]
    material = gather(load_recipe("laptop", settings), home)
    out = home / f"seed-{seed}"
    result: dict[str, Any] = {"seed": seed, "arms": {}}

    file = home / f"results-{seed}.json"
    rounds = [*settings, *ROUNDS_SETTINGS]

    exact = out / "exact"
    seconds = _timed([*rounds, "search_e1.distill.clip=null"], exact, material)
    result["arms"]["search_e1-exact"] = done = _rounds_arm(exact, material, seconds)
    steps = round(sum(done["updates"]) / UPDATES_A_STEP)

    grpo = out / "grpo"
    seconds = _timed([*settings, f"trainer.steps={steps}"], grpo, material)
    result["arms"]["grpo"] = _arm(grpo / f"checkpoints/step-{steps}", material, seconds, steps)
    more = max(round(steps * done["cpu"] / seconds), steps + 1)
    seconds += _timed([*settings, f"trainer.steps={more}"], grpo, material, resume=True)
    result["arms"]["grpo-compute"] = _arm(grpo / f"checkpoints/step-{more}", material, seconds, more)

    clip = out / "clip"
    clipped = [*rounds, "search_e1.distill.clip=0.05"]
    _first_round_of(exact, clip, clipped)
    seconds = _timed(clipped, clip, material, resume=True)
    result["arms"]["search_e1-clip"] = _rounds_arm(clip, material, seconds)
    file.write_text(json.dumps(result) + "\n")


def _timed(settings: list[str], folder: Path, material: Material, resume: bool = False) -> float:
    """Train; CPU seconds of this process, since wall clock on a shared machine says nothing."""
    started = time.process_time()
    train(load_recipe("laptop", settings), folder, resume=resume, material=material, quiet=True)
    return time.process_time() - started


def _first_round_of(done: Path, new: Path, settings: list[str]) -> None:
    """A run that is interrupted behind the first pool of ``done``."""
    shutil.copytree(done / "rounds" / "1" / "rl", new / "rounds" / "1" / "rl", symlinks=True)
    shutil.copytree(done / "rounds" / "1" / "pool", new / "rounds" / "1" / "pool")
    shutil.copyfile(done / "environment.json", new / "environment.json")
    RunFolder(new).checkpoints.mkdir()
    RunFolder(new).write_recipe(dump_recipe(load_recipe("laptop", settings)))


def _rounds_arm(folder: Path, material: Material, seconds: float) -> dict[str, Any]:
    summary = json.loads((folder / "summary.json").read_text())
    told = summary["rounds"]
    stages = {f"rl {r['round']}": _scores(folder / r["rl"]["checkpoint"], material, ("sampled",)) for r in told}
    for r in told[:-1]:
        stages[f"distill {r['round']}"] = _scores(
            folder / "checkpoints" / f"step-{r['steps'][1]}", material, ("sampled",)
        )
    return _arm(folder / summary["checkpoint"], material, seconds, summary["steps"]) | {
        "stages": stages,
        "pairs": [r["pairs"] for r in told],
        "distill": [r["distill"] for r in told],
        "seconds": [r["seconds"] for r in told],
        "updates": [{"updates": n} for r in told for n in (r["rl"]["steps"] * UPDATES_A_STEP, r["distill"]["updates"])],
    }


def _arm(model: Path, material: Material, seconds: float, steps: int) -> dict[str, Any]:
    return _scores(model, material, ("sampled", "greedy")) | {"cpu": seconds, "steps": steps}


def _scores(model: Path, material: Material, ways: tuple[str, ...]) -> dict[str, Any]:
    """0 or 1 for each test question."""
    recipe = load_recipe("laptop", [*BASE, f"model={model}"])
    parts = assemble(recipe, model, material=material)
    agent = build_agent(parts, build_sampler(recipe, parts.model))
    scores: dict[str, Any] = {}
    for way in ways:
        params = SamplingParams(1.0 if way == "sampled" else 0.0)
        rows = score(evaluate(agent, parts.test, params, seed=0, batch=300))
        scores[way] = [row.em for row in rows]
        scores[f"{way}_searches"] = sum(row.searches for row in rows) / len(rows)
    return scores


def print_tables(home: Path) -> None:
    """Means over seeds with intervals, and paired differences to GRPO."""
    results = [json.loads(f.read_text()) for f in sorted(home.glob("results-*.json"))]
    start = json.loads((home / "start.json").read_text())
    print(f"seeds: {[r['seed'] for r in results]}, {len(start['sampled'])} questions\n")
    print("| arm | steps | CPU s | sampled EM | greedy EM | searches |\n|---|--:|--:|--:|--:|--:|")
    for arm in ("start", *ARMS):
        cells = [start if arm == "start" else r["arms"][arm] for r in results]
        steps = "" if arm == "start" else f"{np.mean([c['steps'] for c in cells]):.1f}"
        cpu = "" if arm == "start" else f"{np.mean([c['cpu'] for c in cells]):.0f}"
        ems = [_pooled([c[way] for c in cells]) for way in ("sampled", "greedy")]
        print(
            f"| {arm} | {steps} | {cpu} | {' | '.join(ems)} | {np.mean([c['sampled_searches'] for c in cells]):.2f} |"
        )
    print("\n| difference | sampled EM | greedy EM |\n|---|--:|--:|")
    for arm in ("search_e1-exact", "search_e1-clip"):
        for base in ("grpo", "grpo-compute"):
            cells = [
                _difference([(r["arms"][base][way], r["arms"][arm][way]) for r in results])
                for way in ("sampled", "greedy")
            ]
            print(f"| {arm} − {base} | {' | '.join(cells)} |")
    print("\n| stage | exact | clip |\n|---|--:|--:|")
    for stage in ("rl 1", "distill 1", "rl 2"):
        row = [
            _pooled([r["arms"][f"search_e1-{a}"]["stages"][stage]["sampled"] for r in results])
            for a in ("exact", "clip")
        ]
        print(f"| {stage} | {' | '.join(row)} |")
    for arm in ("search_e1-exact", "search_e1-clip"):
        for i in range(ROUNDS):
            pairs = [r["arms"][arm]["pairs"][i] for r in results]
            dist = [r["arms"][arm]["distill"][i] for r in results]
            mean = lambda rows, key: np.mean([row[key] for row in rows])  # noqa: E731
            print(
                f"{arm} round {i + 1}: pairs {mean(pairs, 'pairs'):.1f} of {mean(pairs, 'questions'):.0f}, searches "
                f"{mean(pairs, 'reference_searches'):.2f} / {mean(pairs, 'student_searches'):.2f}, KL "
                f"{mean(dist, 'kl_first'):.3f} → {mean(dist, 'kl_last'):.3f}, clipped "
                f"{mean(dist, 'clipped_first'):.2f}, "
                f"gain {mean(dist, 'gain_first'):.3f} → {mean(dist, 'gain_last'):.3f}"
            )
    seconds = [s for r in results for s in r["arms"]["search_e1-exact"]["seconds"]]
    whole = sum(sum(s.values()) for s in seconds)
    print(
        "wall clock of the rounds:", {k: f"{sum(s[k] for s in seconds) / whole:.0%}" for k in ("rl", "pool", "distill")}
    )


def _pooled(seeds: list[list[float]]) -> str:
    """Mean over seeds; interval over seeds and questions, both resampled."""
    low, high = _resampled(np.array(seeds, dtype=float))
    return f"{np.mean(seeds):.3f} [{low:.3f}, {high:.3f}]"


def _difference(pairs: list[tuple[list[float], list[float]]]) -> str:
    each = np.array([np.array(after) - np.array(before) for before, after in pairs], dtype=float)
    low, high = _resampled(each)
    return f"{each.mean():+.3f} [{low:+.3f}, {high:+.3f}]"


def _resampled(values: np.ndarray, resamples: int = 2000) -> tuple[float, float]:
    rng = np.random.default_rng(0)
    seeds, questions = values.shape
    means = [
        values[rng.integers(seeds, size=seeds)][:, rng.integers(questions, size=questions)].mean()
        for _ in range(resamples)
    ]
    return tuple(np.quantile(means, [0.025, 0.975]))  # type: ignore[return-value]


def main() -> None:
    home, *seeds = sys.argv[1:]
    torch.set_num_threads(1)
    policy = Path(home) / "policy"
    if not (policy / "config.json").is_file():
        make_policy(policy, BASE)
    start = Path(home) / "start.json"
    if not start.is_file():
        material = gather(load_recipe("laptop", BASE), Path(home))
        start.write_text(json.dumps(_scores(policy, material, ("sampled", "greedy"))) + "\n")
    for seed in seeds:
        if not (Path(home) / f"results-{seed}.json").is_file():
            run_seed(Path(home), int(seed))
    if not seeds:
        print_tables(Path(home))


if __name__ == "__main__":
    main()
