"""A process of some distillation stages: run as ``python ranks.py OUT``, several at once."""

import sys
from pathlib import Path

import torch
from accelerate import Accelerator
from test_distill import recipe, views

from sleuth.training.processes import Processes
from sleuth.training.run_folder import RunFolder
from sleuth.training.search_e1.distill import run_stage
from sleuth.world.tiny import make_tiny_model, make_tiny_tokenizer

CASES = {
    "adapters": [],
    "all weights": ["search_e1.distill.lora=null"],
    "by rollouts": ["search_e1.distill.aggregation=seq_mean_token_mean", "search_e1.distill.micro_batch=2"],
    "large passes": ["search_e1.distill.micro_batch=4"],
    "clipped": ["search_e1.distill.clip=0.05"],
}
"""Two epochs of 5 pairs in updates of 4, 4 and 2: three processes have to fill up."""


def stage(name, folder, processes):
    """Gradients before they are clipped, records and the weights at the end of a stage."""
    gradients = []
    clip = Accelerator.clip_grad_norm_

    def clipped(self, parameters, limit, *more):
        parameters = list(parameters)
        gradients.append(torch.cat([p.grad.flatten().clone() for p in parameters if p.grad is not None]))
        return clip(self, parameters, limit, *more)

    Accelerator.clip_grad_norm_ = clipped
    pairs = [views(i, prompt=3 + i % 3, reference=4 + i, response=8 - i % 4) for i in range(5)]
    # Adam makes whole steps of rounding: a rate that moves weights by more than that would hide what differs.
    settings = [
        "search_e1.distill.micro_batch=1",
        "search_e1.distill.batch=4",
        "search_e1.distill.lr=1e-6",
        "search_e1.distill.save_every=1",
    ]
    model = run_stage(
        recipe(*settings, *CASES[name]),
        make_tiny_model(0),
        make_tiny_tokenizer(),
        pairs,
        folder,
        seed=5,
        processes=processes,
    )
    Accelerator.clip_grad_norm_ = clip
    return {
        "gradients": gradients,
        "records": RunFolder(folder).read_metrics(),
        "checkpoints": RunFolder(folder).checkpoint_steps(),
        "weights": {n: p.detach().clone() for n, p in model.named_parameters()},
    }


def main(folder):
    torch.set_num_threads(1)
    processes = Processes.join()
    found = {name: stage(name, folder / f"{processes.count}" / name.replace(" ", "-"), processes) for name in CASES}
    if processes.main:
        torch.save(found, folder / f"{processes.count}.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
