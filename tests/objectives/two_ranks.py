"""What one of two processes does with its half of a step; a module of its own, so that a new process can import it."""

import torch
import torch.distributed as dist
from batches import batch

from sleuth.objectives import resolve
from sleuth.objectives.aggregation import StepTotals
from sleuth.objectives.tokens import Tokens

OBJECTIVES = {
    "grpo": ("grpo", {}, "token_mean"),
    "by rollouts": ("gspo", {}, "seq_mean_token_mean"),
    "by length": ("dr_grpo", {"aggregation": {"max_length": 9}}, None),
    "protected tokens": ("search_sapo+llds", {"search_sapo": {"preset": "released"}}, "token_mean"),
}
ROWS = ((0, 1, 4), (2, 3, 5, 6))
"""Which rows of the step each rank has: not equally many."""


class Shift(torch.nn.Module):
    """A policy of one weight a column, which moves that column's log-probs."""

    def __init__(self, length):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(length, dtype=torch.float64))

    def forward(self, logp):
        return logp + self.weight


def step_loss(policy, objective, rows, totals):
    """This part of the step's loss, with gradient."""
    logp, old, a, mask = batch(5, rows=7)
    rows = list(rows)
    tokens = Tokens.build(policy(logp.detach()[rows]), old[rows], a[rows], mask[rows])
    return objective.token_loss(tokens, totals).loss.sum()


def totals_of(rows):
    _, _, a, mask = batch(5, rows=7)
    return StepTotals.of(mask[list(rows)], a[list(rows)])


def run(rank, folder):
    """Write to ``folder`` what this rank found: its totals and, by objective, the gradient and the summed loss."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    totals = totals_of(ROWS[rank]).all_reduce()
    found = {}
    for name, (parts, parameters, aggregation) in OBJECTIVES.items():
        policy = Shift(9)
        loss = step_loss(policy, resolve(parts, parameters, aggregation), ROWS[rank], totals)
        loss.backward()
        value, grad = loss.detach(), policy.weight.grad
        dist.all_reduce(value)
        dist.all_reduce(grad)
        found[name] = (grad, value)
    uncounted = StepTotals.of(torch.ones(1, 2)).all_reduce()
    try:
        StepTotals.of(torch.ones(1, 2), torch.ones(1) if rank else None).all_reduce()
        refused = ""
    except ValueError as error:
        refused = str(error)
    torch.save((totals, found, uncounted, refused), f"{folder}/{rank}.pt")
    dist.destroy_process_group()
