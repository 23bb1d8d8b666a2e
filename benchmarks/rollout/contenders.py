"""Three ways to roll the same work out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any

import torch
from benchmarks.rollout.workload import CHAT_TEMPLATE, Workload
from datasets import Dataset
from transformers import LogitsProcessor, PreTrainedModel, PreTrainedTokenizerBase
from trl import GRPOConfig, GRPOTrainer

from sleuth.samplers.transformers import TransformersSampler
from sleuth.types import SampleRequest, SamplingParams, StopRule


@dataclass
class Cost:
    """What one contender spent.

    Attributes:
        seconds: of wall clock. ``cpu_seconds``: of all threads of the process.
        inside: of ``cpu_seconds``, those within the model's forward.
        sampled: tokens. ``computed``: tokens that went through the model, padding included.
    """

    seconds: float
    cpu_seconds: float
    inside: float
    sampled: int
    computed: int


@contextmanager
def _measured(model: PreTrainedModel) -> Iterator[Callable[[int], Cost]]:
    inside = 0.0
    computed = 0
    entered = 0.0

    def before(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        nonlocal computed, entered
        computed += (args[0] if args else kwargs["input_ids"]).numel()
        entered = time.process_time()

    def after(module: Any, args: tuple[Any, ...], output: Any) -> None:
        nonlocal inside
        inside += time.process_time() - entered

    hooks = [model.register_forward_pre_hook(before, with_kwargs=True), model.register_forward_hook(after)]
    wall, cpu = time.perf_counter(), time.process_time()
    try:
        yield lambda sampled: Cost(time.perf_counter() - wall, time.process_time() - cpu, inside, sampled, computed)
    finally:
        for hook in hooks:
            hook.remove()


def sleuth(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, work: Workload) -> Cost:
    """Sleuth's sampler: each turn computes its new tokens."""
    sampler = TransformersSampler(model)
    prompts, observations = work.prompts, [work.wrapped(row) for row in range(work.rollouts)]
    never = StopRule(lambda ids: False, frozenset(), frozenset())
    sampled = 0
    with _measured(model) as cost:
        contexts = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in prompts]
        for turn in range(work.turns):
            requests = [
                SampleRequest(row, ids, work.sampled, never, seed=1000 * turn + row) for row, ids in enumerate(contexts)
            ]
            for row, completion in enumerate(sampler.sample(requests, SamplingParams())):
                sampled += len(completion.ids)
                observation = tokenizer(observations[row], add_special_tokens=False)["input_ids"]
                contexts[row] = contexts[row] + completion.ids + observation
        sampler.release(range(work.rollouts))
        return cost(sampled)


def resend(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, work: Workload) -> Cost:
    """Decode what was sampled, append the observation as text, tokenise all of it again, generate from the start."""
    observations = [work.wrapped(row) for row in range(work.rollouts)]
    model.eval()
    sampled = 0
    with _measured(model) as cost:
        texts = list(work.prompts)
        for _ in range(work.turns):
            batch = tokenizer(texts, add_special_tokens=False, padding=True, padding_side="left", return_tensors="pt")
            with torch.no_grad():
                out = model.generate(
                    input_ids=batch["input_ids"],
                    attention_mask=batch["attention_mask"],
                    do_sample=True,
                    top_k=0,
                    top_p=1.0,
                    temperature=1.0,
                    max_new_tokens=work.sampled,
                    eos_token_id=None,
                    pad_token_id=tokenizer.pad_token_id,
                )
            new = out[:, batch["input_ids"].shape[1] :]
            sampled += new.numel()
            said = tokenizer.batch_decode(new, skip_special_tokens=False)
            texts = [text + more + seen for text, more, seen in zip(texts, said, observations, strict=True)]
        return cost(sampled)


def trl_tools(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, work: Workload) -> Cost:
    """TRL's tool loop with its ``qwen2_5`` template. Every turn is made to be a tool call of the length asked for."""
    shown = iter([])

    def search(query: str) -> str:
        """Search the corpus.

        Args:
            query: What to look for.

        Returns:
            The passages found.
        """
        return next(shown)

    tokenizer.chat_template = CHAT_TEMPLATE
    call = _tool_call(tokenizer, work.sampled)
    generate = model.generate

    def forced(**inputs: Any) -> torch.Tensor:
        return generate(**inputs, logits_processor=[_Forced(call, inputs["input_ids"].shape[1])])

    with TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            model=model,
            processing_class=tokenizer,
            reward_funcs=lambda completions, **_: [0.0] * len(completions),
            tools=[search],
            train_dataset=Dataset.from_list([{"prompt": m} for m in work.messages[:: work.group]]),
            args=GRPOConfig(
                output_dir=folder,
                per_device_train_batch_size=work.rollouts,
                num_generations=work.group,
                max_completion_length=work.turns * (work.sampled + work.observation + 50),
                max_tool_calling_iterations=work.turns - 1,
                bf16=False,
                gradient_checkpointing=False,
                use_cpu=True,
                report_to=[],
                save_strategy="no",
            ),
        )
        measured: list[Cost] = []
        inner = trainer._generate

        def timed(prompts: list[Any]) -> Any:
            with _measured(model) as cost:
                result = inner(prompts)
                measured.append(cost(sum(sum(mask) for mask in result[2])))
            return result

        trainer._generate = timed
        model.generate = forced
        shown = iter(work.observations * work.turns)
        try:
            model.train()
            trainer._generate_and_score_completions([{"prompt": m} for m in work.messages])
        finally:
            del model.generate
            model.eval()
    return measured[0]


class _Forced(LogitsProcessor):
    """Leaves one possible token a step: those of ``ids``, in order."""

    def __init__(self, ids: list[int], start: int):
        self.ids = ids
        self.start = start

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        token = self.ids[input_ids.shape[1] - self.start]
        kept = scores[:, token].clone()
        scores.fill_(float("-inf"))
        scores[:, token] = kept
        return scores


def _tool_call(tokenizer: PreTrainedTokenizerBase, length: int) -> list[int]:
    """A tool call of exactly ``length`` tokens, its end-of-turn token included."""
    for words in range(1, 4 * length):
        query = " ".join(["who", "was", "the", "parent", "of"][i % 5] for i in range(words))
        text = f'<tool_call>\n{{"name": "search", "arguments": {{"query": "{query}"}}}}\n</tool_call>'
        ids = [*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
        if len(ids) == length:
            return ids
    raise ValueError(f"no tool call has exactly {length} tokens; ask for more sampled tokens a turn")


CONTENDERS: dict[str, Callable[[PreTrainedModel, PreTrainedTokenizerBase, Workload], Cost]] = {
    "Sleuth": sleuth,
    "decode and resend": resend,
    "TRL tool loop": trl_tools,
}
