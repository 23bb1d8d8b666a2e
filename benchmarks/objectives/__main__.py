"""``python -m benchmarks.objectives``: the tables of docs/objectives.md, section Cost."""

from __future__ import annotations

import argparse
import statistics
from functools import partial

import torch
import trl
from benchmarks.objectives.measure import one_thread, peak_bytes, ratio, rounds
from benchmarks.objectives.trl_loss import TRLLoss, inputs_of
from benchmarks.objectives.workload import Workload
from torch import Tensor

from sleuth.objectives import TABLE, resolve
from sleuth.objectives.aggregation import StepTotals
from sleuth.objectives.compose import Objective
from sleuth.objectives.tokens import Tokens

COMBINED = ["search_sapo+reference_kl+entropy", "signbalance+gspo+search_sapo"]
BASE = "TRL, `grpo`"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.objectives", description=__doc__)
    parser.add_argument("--rows", type=int, default=64, help="rollouts (default 64)")
    parser.add_argument("--length", type=int, default=4096, help="tokens of a row (default 4096)")
    parser.add_argument("--rounds", type=int, default=40, help="rounds that are counted (default 40)")
    arguments = parser.parse_args()
    one_thread()
    work = Workload.make(arguments.rows, arguments.length)
    print(
        f"Log-probs of shape ({arguments.rows}, {arguments.length}), {work.mask.float().mean():.0%} of them the "
        f"policy's; fp32, one thread, {arguments.rounds} rounds; torch {torch.__version__}, TRL {trl.__version__}.\n"
    )
    losses(work, arguments.rounds)
    print()
    batches(work, arguments.rounds)


def losses(work: Workload, count: int) -> None:
    """Loss and backward of every objective, by TRL's."""
    steps = {
        BASE: partial(_trl, work, TRLLoss()),
        "TRL, `grpo` with a reference KL": partial(_trl, work, TRLLoss(beta=0.001)),
        "bare clip, no checks, no metrics": partial(_bare, work),
    }
    named = ["grpo", *(name for name, entry in TABLE.items() if entry.slot in ("surrogate", "term")), *COMBINED]
    for name in named:
        steps[f"`{name}`"] = partial(_ours, work, resolve(name))
    seconds = rounds(steps, count)
    memory = {name: peak_bytes(step) for name, step in steps.items()}
    print("| loss + backward | ms | time / TRL's | peak MiB | memory / TRL's |")
    print("|---|--:|--:|--:|--:|")
    for name in steps:
        print(
            f"| {name} | {statistics.median(seconds[name]) * 1e3:.1f} | {ratio(seconds[name], seconds[BASE]):.2f} "
            f"| {memory[name] / 2**20:.1f} | {memory[name] / memory[BASE]:.2f} |"
        )


def batches(work: Workload, count: int) -> None:
    """What runs once a rollout batch: advantages of rollouts, and reshapes over trajectories."""
    lengths = work.mask.sum(-1)
    valid = torch.ones(len(lengths), dtype=torch.bool)
    mask = work.mask.bool()
    steps = {}
    for name, entry in TABLE.items():
        given = {"aggregation": {"max_length": mask.shape[1]}} if entry.aggregation == "sum_over_max_length" else {}
        if entry.slot == "advantage":
            objective = resolve(name, given)
            steps[f"`{name}`"] = partial(objective.advantages, work.rewards, work.groups, valid, lengths)
        if entry.slot == "reshape":
            objective = resolve(name)
            steps[f"`{name}`"] = partial(objective.reshape, work.advantages, mask, work.trajectories, work.groups)
    released = resolve("calibadv", {"calibadv": {"preset": "released"}})
    steps["`calibadv`, `preset=released`"] = partial(
        released.reshape, work.advantages, mask, work.trajectories, work.groups
    )
    seconds = rounds(steps, count)
    print("| once a rollout batch | ms |")
    print("|---|--:|")
    for name in steps:
        print(f"| {name} | {statistics.median(seconds[name]) * 1e3:.1f} |")


def _ours(work: Workload, objective: Objective) -> None:
    logp = work.logp.detach().requires_grad_()
    entropy = work.entropy.detach().requires_grad_(objective.needs_entropy)
    tokens = Tokens.build(
        logp,
        work.old_logp,
        work.advantages,
        work.mask,
        work.ref_logp if objective.kl_coefficient else None,
        entropy=entropy if objective.needs_entropy else None,
    )
    objective.token_loss(tokens, StepTotals.of(work.mask, work.advantages)).loss.sum().backward()


def _trl(work: Workload, loss: TRLLoss) -> None:
    logp = work.logp.detach().requires_grad_()
    loss(logp, work.entropy, inputs_of(work.old_logp, work.advantages, work.mask, work.ref_logp)).backward()


def _bare(work: Workload) -> None:
    logp = work.logp.detach().requires_grad_()
    ratio = (logp - work.old_logp).exp()
    advantages: Tensor = work.advantages[:, None]
    loss = -torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
    ((loss * work.mask).sum() / work.mask.sum()).backward()


if __name__ == "__main__":
    main()
