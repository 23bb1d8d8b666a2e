"""``python -m benchmarks.search_e1 DIR [SEED]...``: Search-E1-style rounds against GRPO on the laptop recipe.

Each seed trains four arms from one policy:

* ``search_e1-exact``: two rounds, exact forward KL; ``search_e1-clip``: the same with each term clipped at 0.05. Both
  share the first round's reinforcement learning and pool.
* ``grpo``: as many updates as the exact rounds have in all, distillation included (equal gradient steps);
* ``grpo-compute``: that run, gone on with for as long as the exact rounds took (equal compute): their seconds, pool and
  distillation included, over the seconds of a step of theirs. Scoring counts nowhere.

Every result is scored on the 600 test questions, sampled and greedy; the stages of the rounds sampled only. Without
seeds: the tables of what is there. One thread a process: start several for several seeds. What is finished is kept.
"""

from __future__ import annotations

import json
import shutil
import sys
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
    """All arms of one seed; what is there already is not made again."""
    settings = [*BASE, f"model={home / 'policy'}", f"seed={seed}"]
    material = gather(load_recipe("laptop", settings), home)
    out = home / f"seed-{seed}"
    rounds = [*settings, *ROUNDS_SETTINGS]

    exact = out / "exact"
    told = _trained([*rounds, "search_e1.distill.clip=null"], exact, material)["rounds"]
    _score_arm(out / "search_e1-exact.json", _result(exact), material, told)
    steps = round(sum(r["rl"]["steps"] + r["distill"]["updates"] / UPDATES_A_STEP for r in told))
    spent = sum(sum(r["seconds"].values()) for r in told) / sum(r["seconds"]["rl"] for r in told)

    grpo = out / "grpo"
    _trained([*settings, f"trainer.steps={steps}"], grpo, material)
    _score_arm(out / "grpo.json", grpo / "checkpoints" / f"step-{steps}", material)
    more = max(round(spent * RL_STEPS * ROUNDS), steps)
    _trained([*settings, f"trainer.steps={more}", "trainer.keep_last=2"], grpo, material)
    _score_arm(out / "grpo-compute.json", grpo / "checkpoints" / f"step-{more}", material)

    clip = out / "clip"
    clipped = [*rounds, "search_e1.distill.clip=0.05"]
    if not clip.exists():
        _first_round_of(exact, clip, clipped)
    told = _trained(clipped, clip, material)["rounds"]
    _score_arm(out / "search_e1-clip.json", _result(clip), material, told)
    for folder in (exact, clip):
        for name, model in _stages(folder).items():
            _score_arm(out / f"{folder.name}-{name}.json", model, material, ways=("sampled",))


def _trained(settings: list[str], folder: Path, material: Material) -> dict[str, Any]:
    begun = RunFolder(folder).recipe.exists()
    return train(load_recipe("laptop", settings), folder, resume=begun, material=material, quiet=True)


def _first_round_of(done: Path, new: Path, settings: list[str]) -> None:
    """A run that is interrupted behind the first pool of ``done``."""
    shutil.copytree(done / "rounds" / "1" / "rl", new / "rounds" / "1" / "rl", symlinks=True)
    shutil.copytree(done / "rounds" / "1" / "pool", new / "rounds" / "1" / "pool")
    shutil.copyfile(done / "environment.json", new / "environment.json")
    RunFolder(new).checkpoints.mkdir()
    RunFolder(new).write_recipe(dump_recipe(load_recipe("laptop", settings)))


def _result(folder: Path) -> Path:
    return folder / json.loads((folder / "summary.json").read_text())["checkpoint"]


def _stages(folder: Path) -> dict[str, Path]:
    """The policy behind every stage but the last."""
    told = json.loads((folder / "summary.json").read_text())["rounds"]
    stages = {f"rl-{r['round']}": folder / r["rl"]["checkpoint"] for r in told}
    return stages | {f"distill-{r['round']}": folder / "checkpoints" / f"step-{r['steps'][1]}" for r in told[:-1]}


def _score_arm(
    file: Path,
    model: Path,
    material: Material,
    rounds: list[dict[str, Any]] | None = None,
    ways: tuple[str, ...] = ("sampled", "greedy"),
) -> None:
    if not file.is_file():
        steps = len(RunFolder(model.parent.parent).read_metrics())
        result = {**_scores(model, material, ways), "steps": steps, "rounds": rounds}
        file.write_text(json.dumps(result) + "\n")


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
    """Means over seeds with intervals, paired differences to GRPO, stages and pairs; of the seeds that are finished."""
    seeds = [folder for folder in sorted(home.glob("seed-*")) if (folder / f"clip-rl-{ROUNDS}.json").is_file()]
    results = {name: [_read(folder / f"{name}.json") for folder in seeds] for name in (*ARMS, *_STAGE_FILES)}
    results["start"] = [_read(home / "start.json")] * len(seeds)
    print(f"{', '.join(folder.name for folder in seeds)}; {len(results['start'][0]['sampled'])} questions\n")
    print("| arm | steps | sampled EM | greedy EM | searches |\n|---|--:|--:|--:|--:|")
    for arm in ("start", *ARMS):
        cells = results[arm]
        steps = f"{np.mean([c.get('steps', 0) for c in cells]):.1f}"
        ems = [_pooled([c[way] for c in cells]) for way in ("sampled", "greedy")]
        print(f"| {arm} | {steps} | {' | '.join(ems)} | {np.mean([c['sampled_searches'] for c in cells]):.2f} |")
    print("\n| difference | sampled EM | greedy EM |\n|---|--:|--:|")
    for arm in ("search_e1-exact", "search_e1-clip"):
        for base in ("grpo", "grpo-compute"):
            both = list(zip(results[base], results[arm], strict=True))
            cells = [_difference([(a[way], b[way]) for a, b in both]) for way in ("sampled", "greedy")]
            print(f"| {arm} − {base} | {' | '.join(cells)} |")
    print("\n| stage, sampled EM | exact | clip |\n|---|--:|--:|")
    for stage in _STAGES:
        row = [_pooled([c["sampled"] for c in results[f"{kind}-{stage}"]]) for kind in ("exact", "clip")]
        print(f"| {stage} | {' | '.join(row)} |")
    print()
    for arm in ("search_e1-exact", "search_e1-clip"):
        for i in range(ROUNDS):
            print(f"{arm}, round {i + 1}: {_pairs([c['rounds'][i] for c in results[arm]])}")
    seconds = [r["seconds"] for c in results["search_e1-exact"] for r in c["rounds"]]
    whole = sum(sum(s.values()) for s in seconds)
    print({stage: f"{sum(s[stage] for s in seconds) / whole:.0%} of the time" for stage in seconds[0]})


_STAGES = ("rl-1", "distill-1", "rl-2")
_STAGE_FILES = tuple(f"{kind}-{stage}" for kind in ("exact", "clip") for stage in _STAGES)


def _read(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text())


def _pairs(rounds: list[dict[str, Any]]) -> str:
    def mean(part: str, key: str) -> float:
        return float(np.mean([r[part][key] for r in rounds]))

    return (
        f"{mean('pairs', 'pairs'):.1f} pairs of {mean('pairs', 'questions'):.0f} questions, student wrong in "
        f"{mean('pairs', 'share_student_wrong'):.0%}, searches {mean('pairs', 'reference_searches'):.2f} against "
        f"{mean('pairs', 'student_searches'):.2f}, KL {mean('distill', 'kl_first'):.3f} to "
        f"{mean('distill', 'kl_last'):.3f}, clipped {mean('distill', 'clipped_first'):.2f}"
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
        run_seed(Path(home), int(seed))
    if not seeds:
        print_tables(Path(home))


if __name__ == "__main__":
    main()
