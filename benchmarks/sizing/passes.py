"""Memory and time of an optimiser step of random weights, in a process of its own: ``python -m … SHAPE ROWS TOKENS``.

Forward through TRL's head, backward and AdamW, as the trainer does them; one thread; prints JSON. Seconds are CPU time,
so that other work on the machine changes little.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from sleuth.sizing.devices import Device, Shares
from sleuth.sizing.lengths import MeasuredLengths, PlannedTurn
from sleuth.sizing.memory import MemorySettings, activations, held, logits, total
from sleuth.sizing.schedule import Cluster, Searches, Work, play
from sleuth.sizing.shapes import SHAPES, Shape

SMALL = {
    "30M": Shape(8, 512, 1408, 8, 2, 64, 8192, tied=True, biases=True),
    "60M": Shape(12, 640, 1728, 10, 2, 64, 8192, tied=False, biases=True),
}
"""Shapes of Qwen2's kind that a CPU can train."""


def model_of(shape: Shape) -> Any:
    """A Llama or Qwen2 of that shape with random weights."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(
        "qwen2" if shape.biases else "llama",
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.inner,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.key_value_heads,
        num_hidden_layers=shape.layers,
        tie_word_embeddings=shape.tied,
    )
    return AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")


def matmul_rate(shape: Shape, tokens: int) -> float:
    """Operations a second of the MLP's matrix product at this many tokens."""
    a, b = torch.randn(tokens, shape.hidden), torch.randn(shape.hidden, shape.inner)
    best = float("inf")
    for _ in range(5):
        started = time.process_time()
        for _ in range(4):
            a @ b
        best = min(best, (time.process_time() - started) / 4)
    return 2 * tokens * shape.hidden * shape.inner / best


def _status(key: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    raise KeyError(key)


def measured(shape: Shape, rows: int, tokens: int) -> dict[str, float]:
    """Bytes at the peak beyond those before the model, and CPU seconds of a step."""
    from trl.trainer.utils import add_fused_lm_head

    def steps(shape: Shape, rows: int, tokens: int) -> list[float]:
        ids = torch.randint(0, shape.vocabulary, (rows, tokens))
        model = model_of(shape)
        add_fused_lm_head(model, outputs=("log_probs", "entropy"))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)
        seconds = []
        for step in range(3):
            if step == 1:  # the first makes the optimiser's state
                Path("/proc/self/clear_refs").write_text("5")  # from here on the peak is counted anew
            started = time.process_time()
            out = model(input_ids=ids, attention_mask=torch.ones_like(ids), labels=ids, fused_lm_head=True)
            (-out.log_probs.mean()).backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
            seconds.append(time.process_time() - started)
        return seconds

    # Code and buffers that come with the first use are none of the model's.
    steps(replace(shape, layers=1, hidden=64, inner=64, heads=1, key_value_heads=1, vocabulary=100), 1, 8)
    before = _status("VmRSS")
    seconds = steps(shape, rows, tokens)
    return {"bytes": _status("VmHWM") - before, "seconds": min(seconds[1:])}


def planned(shape: Shape, rows: int, tokens: int, rate: float) -> dict[str, float]:
    """The same of the plan, for a device that multiplies at ``rate``."""
    settings = MemorySettings(weights=4, compute=4)
    size = total(held(shape.parameters, shape, settings))
    size += activations(shape, rows * tokens, settings) + logits(shape, rows * tokens, kernel=False)
    device = Device("this CPU", 0, flops=2 * rate, bandwidth=1e10, link=1, network=1)  # its rate is that of 32 bits
    cluster = Cluster(1, device, Shares(training=1, reading=1), "trainer", sharded=False, cache=1e30)
    lengths = MeasuredLengths(1, [[PlannedTurn(tokens - 1, 0)]])
    times = play(shape, Work(1, rows, weights=4, compute=4), lengths, Searches(0), cluster)
    return {"bytes": size, "seconds": times.update}


def main() -> None:
    torch.set_num_threads(1)
    name, rows, tokens = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    shape = {**SHAPES, **SMALL}[name]
    rate = matmul_rate(shape, rows * tokens)
    found = measured(shape, rows, tokens)
    print(json.dumps({"measured": found, "planned": planned(shape, rows, tokens, rate), "rate": rate}))


if __name__ == "__main__":
    main()
