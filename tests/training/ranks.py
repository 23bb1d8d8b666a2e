"""A process of a small training run, one step for every objective: run as ``python ranks.py OUT [NAME]...``, several at
once.

Rewards, failures and old log-probs are functions of a rollout's id, so that every objective has work to do.
"""

import hashlib
import math
import sys
from pathlib import Path

import torch

from sleuth.assembly import assemble
from sleuth.objectives.table import TABLE
from sleuth.recipes.loader import load_recipe
from sleuth.training.build import build_trainer
from sleuth.training.processes import Processes
from sleuth.training.progress import Progress
from sleuth.training.run_folder import RunFolder
from sleuth.types import Status

RECIPE = [
    "world.train={worlds: 4, questions: 40}",
    "world.dev={worlds: 1, questions: 8}",
    "world.test={worlds: 1, questions: 12}",
    "trainer.prompts=4",
    "trainer.group=4",
    "trainer.updates_per_batch=2",
    "trainer.steps=1",
    "trainer.eval_every=0",
    "trainer.max_failed_share=1.0",
    "trainer.kl_coefficient=0.0",
    "trainer.lr=1e-12",  # the weights stay: Adam would make whole steps of rounding
]
SETTINGS = {
    "dr_grpo": ["aggregation.max_length=64"],
    "dapo, copies": ["objective=dapo", "dapo.zero_variance=copy"],
    "by rollouts": ["objective=search_sapo+llds", "search_sapo.preset=released", "aggregation=seq_mean_token_mean"],
    "with a reference": ["objective=grpo", "trainer.kl_coefficient=0.1"],
    "sspo, copies": ["objective=sspo", "sspo.zero_variance=copy", "sspo.granularity=token", "trainer.micro_batch=2"],
    "sspo, adapters off": ["objective=sspo", "model_settings.lora=4", "teacher.weights=base"],
}


def names():
    """What is compared: every objective of the table, and some settings with denominators of their own."""
    return [*TABLE, *(name for name in SETTINGS if name not in TABLE)]


def recipe_of(name):
    own = SETTINGS.get(name, [])
    return load_recipe("laptop", [*RECIPE, *([f"objective={name}"] if name in TABLE else []), *own])


def judge(trajectories):
    """Rewards of 0, 1/2 or 1 and some failures, by the rollout's id; one group has equal rewards."""
    for t in trajectories:
        number = hashlib.md5(t.id.encode()).digest()
        first_group = t.group.startswith("1.0.")
        t.reward = 1.0 if first_group else number[0] % 3 / 2
        t.rewards = {"em": t.reward}
        if number[1] % 5 == 0:
            t.status, t.reward = Status.RETRIEVER_FAILED, None
        for n, span in enumerate(t.policy_spans):
            span.old_logprobs = list(span.logprobs)
            span.teacher_logprobs = [x - 0.3 * math.sin(n + i) for i, x in enumerate(span.logprobs)]


def one_step(name, folder, processes):
    """Loss and, for each update, the gradient (before it is clipped) of one step."""
    recipe = recipe_of(name)
    run = RunFolder(folder / f"{processes.count}-{processes.index}" / name.replace(" ", "-"))
    run.path.mkdir(parents=True, exist_ok=True)
    run.checkpoints.mkdir(exist_ok=True)
    parts = assemble(recipe, run.path)
    trainer = build_trainer(recipe, parts, run, Progress(recipe, quiet=True), processes)
    trainer._reward = judge
    gradients, records = [], []
    inner_batch = trainer._generate_and_score_completions

    def moved(inputs):
        out = inner_batch(inputs)
        columns = torch.arange(out["completion_ids"].size(1))
        out["old_per_token_logps"] = out["old_per_token_logps"] + 0.4 * torch.sin(7.0 * out["rows"][:, None] + columns)
        return out

    trainer._generate_and_score_completions = moved
    # Where the engine clips, it has the gradient first.
    clip = trainer.accelerator.clip_grad_norm_

    def clipped(parameters, limit, *more):
        parameters = list(parameters)
        gradients.append(torch.cat([p.grad.flatten().clone() for p in parameters if p.grad is not None]))
        return clip(parameters, limit, *more)

    trainer.accelerator.clip_grad_norm_ = clipped
    watch = trainer.callback_handler.callbacks[-1]
    watch.run.log = records.append
    trainer.train()
    return {"gradients": gradients, "record": records[0] if records else None}


def main(folder, wanted):
    torch.set_num_threads(1)
    processes = Processes.join()
    found = {name: one_step(name, folder, processes) for name in wanted or names()}
    if processes.main:
        torch.save(found, folder / f"{processes.count}.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
