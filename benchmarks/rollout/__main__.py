"""Command line: see ``python -m benchmarks.rollout --help``."""

from __future__ import annotations

import argparse
import logging
import os
import platform
import sys
import warnings

import torch
import transformers
import trl
from benchmarks.rollout.contenders import CONTENDERS, Cost
from benchmarks.rollout.workload import Workload

from sleuth.errors import UserError
from sleuth.models import load_model, load_tokenizer


def main() -> int:
    arguments = _arguments()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    try:
        model, tokenizer = load_model(arguments.model), load_tokenizer(arguments.model)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    print(
        f"{arguments.model}, {sum(p.numel() for p in model.parameters()) / 1e6:.1f} M parameters, fp32; "
        f"{arguments.questions} questions x {arguments.group} rollouts, {arguments.sampled} tokens sampled a turn, "
        f"observations of {arguments.observation} tokens; torch {torch.__version__}, {torch.get_num_threads()} threads "
        f"of {os.cpu_count()} cores ({platform.machine()}), transformers {transformers.__version__}, "
        f"TRL {trl.__version__}.\n"
    )
    print("| turns | | sampled | computed | seconds | CPU-s | sampled / CPU-s | outside the model | CPU-s / Sleuth's |")
    print("|--:|---|--:|--:|--:|--:|--:|--:|--:|", flush=True)
    for turns in arguments.turns:
        costs: dict[str, Cost] = {}
        for name in arguments.contenders:
            # A fresh model for each: a trainer leaves its marks on the one that it gets.
            model = load_model(arguments.model).eval()
            work = Workload(
                tokenizer, arguments.questions, arguments.group, turns, arguments.sampled, arguments.observation
            )
            costs[name] = cost = CONTENDERS[name](model, tokenizer, work)
            ratio = f"{cost.cpu_seconds / costs['Sleuth'].cpu_seconds:.2f}" if "Sleuth" in costs else ""
            print(
                f"| {turns} | {name} | {cost.sampled} | {cost.computed} | {cost.seconds:.1f} | {cost.cpu_seconds:.1f} "
                f"| {cost.sampled / cost.cpu_seconds:.1f} | {1 - cost.inside / cost.cpu_seconds:.1%} | {ratio} |",
                flush=True,
            )
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.rollout",
        description="Compare the cost of multi-turn rollouts: Sleuth, decode-and-resend, TRL's tool loop.",
    )
    parser.add_argument(
        "--model", default="models/smollm2-135m", help="folder or hub name (`sleuth model get smollm2-135m` makes one)"
    )
    parser.add_argument("--turns", type=_numbers, default=[1, 2, 4, 8], help="numbers of turns (default 1,2,4,8)")
    parser.add_argument("--questions", type=int, default=2, help="different questions in the batch (default 2)")
    parser.add_argument("--group", type=int, default=2, help="rollouts of each question (default 2)")
    parser.add_argument("--sampled", type=int, default=40, help="tokens sampled a turn (default 40)")
    parser.add_argument("--observation", type=int, default=500, help="tokens of an observation (default 500)")
    parser.add_argument("--threads", type=int, help="of torch (default: torch's own choice)")
    parser.add_argument(
        "--contenders", nargs="+", choices=list(CONTENDERS), default=list(CONTENDERS), help="who takes part"
    )
    return parser.parse_args()


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


if __name__ == "__main__":
    sys.exit(main())
