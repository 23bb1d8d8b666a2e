"""``python -m benchmarks.objectives``: the tables of docs/objectives.md, section Cost."""

from __future__ import annotations

import argparse
import statistics
from functools import partial

import torch
import trl
from benchmarks.objectives.measure import Step, one_thread, peak_bytes, ratio, rounds
from benchmarks.objectives.model_step import model_step
from benchmarks.objectives.trl_loss import TRLLoss, inputs_of
from benchmarks.objectives.workload import Workload
from torch import Tensor

from sleuth.objectives import TABLE, resolve
from sleuth.objectives.aggregation import StepTotals
from sleuth.objectives.compose import Objective
from sleuth.objectives.credit import assign_credit
from sleuth.objectives.tokens import Tokens

COMBINED = ["search_sapo+reference_kl+entropy", "signbalance+gspo+search_sapo"]
BASE = "TRL, `grpo`"
STEP_LENGTH = 256
"""Tokens of a row in the whole step: passes of a model over long rows would take hours here and hide any loss."""


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
    losses(work, Workload.make(arguments.rows, STEP_LENGTH), arguments.rounds)
    print()
    batches(work, arguments.rounds)


def losses(work: Workload, short: Workload, count: int) -> None:
    """Loss and backward of every objective, by TRL's; and of a step of the smallest model with ``short``, by TRL's."""
    steps = contenders(work)
    seconds = rounds(steps, count)
    memory = {name: peak_bytes(step) for name, step in steps.items()}
    model = model_step(len(short.mask), STEP_LENGTH)
    in_step = {name: statistics.median(times) for name, times in rounds(contenders(short), count).items()}
    around = statistics.median(rounds({"model": model}, 3)["model"])
    print(f"A step of the tiny policy takes {around:.2f} s without its loss, on ({len(short.mask)}, {STEP_LENGTH}).\n")
    print("| loss + backward | ms | time / TRL's | peak MiB | memory / TRL's | whole step / TRL's |")
    print("|---|--:|--:|--:|--:|--:|")
    for name in steps:
        whole = (around + in_step[name]) / (around + in_step[BASE])
        print(
            f"| {name} | {statistics.median(seconds[name]) * 1e3:.1f} | {ratio(seconds[name], seconds[BASE]):.2f} "
            f"| {memory[name] / 2**20:.1f} | {memory[name] / memory[BASE]:.2f} | {whole:.4f} |"
        )


def contenders(work: Workload) -> dict[str, Step]:
    """TRL's loss, the least that a clipped loss can be, and every objective that has a loss of its own, by name."""
    steps: dict[str, Step] = {
        BASE: partial(_trl, work, TRLLoss()),
        "TRL, `grpo` with a reference KL": partial(_trl, work, TRLLoss(beta=0.001)),
        "bare clip: no checks, no metrics": partial(_bare, work),
    }
    for name in ["grpo", *(n for n, entry in TABLE.items() if entry.slot in ("surrogate", "term")), *COMBINED]:
        steps[f"`{name}`"] = partial(_ours, work, resolve(name))
    return steps


def batches(work: Workload, count: int) -> None:
    """What runs once a rollout batch: advantages of rollouts, and of tokens over trajectories."""
    named = {f"`{name}`": (name, {}) for name, entry in TABLE.items() if entry.slot in ("advantage", "reshape")}
    named["`calibadv`, `preset=released`"] = ("calibadv", {"calibadv": {"preset": "released"}})
    steps: dict[str, Step] = {}
    for shown, (name, parameters) in named.items():
        sums = TABLE[name].aggregation == "sum_over_max_length"
        lengths = {"aggregation": {"max_length": work.mask.shape[1]}} if sums else {}
        steps[shown] = partial(_credit, work, resolve(name, {**parameters, **lengths}))
    seconds = rounds(steps, count)
    print("| once a rollout batch | ms |")
    print("|---|--:|")
    for name in steps:
        print(f"| {name} | {statistics.median(seconds[name]) * 1e3:.1f} |")


def _credit(work: Workload, objective: Objective) -> None:
    valid = torch.ones(len(work.mask), dtype=torch.bool)
    assign_credit(objective, work.rewards, work.groups, valid, work.mask, work.trajectories)


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
