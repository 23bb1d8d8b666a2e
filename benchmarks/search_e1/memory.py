"""``python -m benchmarks.search_e1.memory [LAYERS] [TOKENS]``: peak memory of a distillation update and a plain step.

A model of SmolLM2-135M's shape (vocabulary 49,152, width 576), random weights, few layers; one rollout of so many
tokens, all of them the policy's; the teacher's context has as many again in front. Each case is a process of its own;
its figure is the peak of its resident memory less what it was before the model was made. fp32, one thread, CPU.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import sys
from typing import Any

CASES = ("plain, all weights", "distillation, all weights", "plain, LoRA", "distillation, LoRA")


def measure(case: str, layers: int, tokens: int) -> float:
    """MiB above the start, at the peak of one update: forward, backward, AdamW."""
    import torch
    from trl.trainer.utils import add_fused_lm_head

    from sleuth.training.search_e1.distill import Row, _with_adapters, collate, distillation_loss
    from sleuth.training.search_e1.settings import DistillSettings
    from sleuth.training.search_e1.views import Views
    from sleuth.training.teacher import Teacher

    torch.set_num_threads(1)
    torch.manual_seed(0)
    before = _resident()
    settings = DistillSettings(clip=None, lora=64 if "LoRA" in case else None)
    model: Any = _model(layers, tokens)
    if case.startswith("plain"):
        add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    model = _with_adapters(model, settings)
    ids = torch.randint(49152, (2 * tokens,)).tolist()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-6)
    for p in model.parameters():
        p.grad = torch.zeros_like(p) if p.requires_grad else None
    optimizer.step()  # so that its state is there before the update that is measured
    optimizer.zero_grad()
    if case.startswith("plain"):
        labels = torch.tensor([[-100, *ids[1:tokens]]])
        out = model(input_ids=torch.tensor([ids[:tokens]]), labels=labels, fused_lm_head=True)
        loss = -out.log_probs.mean()
    else:
        teacher = Teacher(model, "base" if settings.lora else "copy", every=0)
        teacher.before_batch(1)
        response = ids[1:tokens]
        views = Views(ids[:1], ids[tokens:], response, [True] * len(response), ("s", "r"))
        batch = collate([Row(views, 1 / len(response))], 0)
        result = distillation_loss(model, teacher, batch, settings)
        loss = (result.loss * batch["weights"]).sum()
    loss.backward()
    optimizer.step()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before


def _model(layers: int, tokens: int) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=49152,
            hidden_size=576,
            intermediate_size=1536,
            num_hidden_layers=layers,
            num_attention_heads=9,
            num_key_value_heads=3,
            max_position_embeddings=4 * tokens,
            tie_word_embeddings=True,
        )
    )


def _resident() -> float:
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def main() -> None:
    layers, tokens = (int(a) for a in [*sys.argv[1:3], *("2", "2048")[len(sys.argv[1:3]) :]])
    import trl.trainer.utils  # noqa: F401 (once, for the processes to come)

    import sleuth.training.search_e1.distill  # noqa: F401

    context = multiprocessing.get_context("fork")
    found: dict[str, float] = {}
    for case in CASES:
        with context.Pool(1) as process:
            found[case] = process.apply(measure, (case, layers, tokens))
        print(f"{case}: {found[case]:,.0f} MiB", flush=True)
    print(f"\n{layers} layers, {tokens:,} tokens, vocabulary 49,152\n")
    print("| | plain step | distillation | |\n|---|--:|--:|--:|")
    for what in ("all weights", "LoRA"):
        plain, ours = found[f"plain, {what}"], found[f"distillation, {what}"]
        print(f"| {what} | {plain:,.0f} MiB | {ours:,.0f} MiB | {ours / plain:.2f} |")


if __name__ == "__main__":
    main()
