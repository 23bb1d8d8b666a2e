"""Makes rollouts.jsonl: two questions, four rollouts each, with all log-probs that an objective may ask for."""

import sys
import tempfile
from pathlib import Path

import torch

from sleuth.assembly import Parts, assemble, build_agent, build_sampler
from sleuth.objectives import resolve
from sleuth.objectives.aggregation import StepTotals
from sleuth.objectives.tokens import Tokens
from sleuth.recipes.loader import load_recipe
from sleuth.rollouts import write_rollouts
from sleuth.seeds import derive_seed
from sleuth.types import SamplingParams, SpanKind, Trajectory, group_trajectories

GROUPS, GROUP, UPDATES, LR = 2, 4, 6, 3e-4
WORLD = "world={train: {worlds: 20, questions: 60}, dev: {worlds: 2, questions: 8}, test: {worlds: 2, questions: 6}}"


def log_probs(model: torch.nn.Module, trajectory: Trajectory, prompt: list[int] | None = None) -> torch.Tensor:
    """(T,) of ``completion_ids`` behind the rollout's prompt or another one, with gradient."""
    prompt = prompt or trajectory.prompt_ids
    ids = torch.tensor([prompt + trajectory.completion_ids])
    logits = model(input_ids=ids).logits[0, len(prompt) - 1 : -1].float()
    return logits.log_softmax(-1).gather(1, ids[0, len(prompt) :, None])[:, 0]


def teachers_prompt(parts: Parts, trajectory: Trajectory) -> list[int]:
    """The rollout's prompt with its question's evidence, as passages, between the first token and the question."""
    passages = {document.id: document for document in parts.retriever.corpus.documents}
    evidence = [passages[name] for name in trajectory.extra["supporting_ids"]]
    text = parts.protocol.observation(evidence, ended=False).text
    first, *question = trajectory.prompt_ids
    return [first, *parts.tokenizer.encode(text, add_special_tokens=False), *question]


def keep(field: str, trajectory: Trajectory, values: torch.Tensor) -> None:
    """Put the values of policy tokens into that field of their spans."""
    at = -len(trajectory.prompt_ids)
    for span in trajectory.spans:
        if span.kind is SpanKind.POLICY:
            setattr(span, field, [round(x, 5) for x in values[at : at + len(span.ids)].tolist()])
        at += len(span.ids)


def main(target: Path) -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        parts = assemble(load_recipe("laptop", [WORLD]), Path(folder), splits=["train"])
        agent = build_agent(parts, build_sampler(parts.recipe, parts.model))
        questions = [q for q in parts.train for _ in range(GROUP)]
        rollouts = agent.answer(
            questions,
            SamplingParams(),
            seeds=[derive_seed(1, "example", i) for i in range(len(questions))],
            ids=[f"{q.id}-{i % GROUP}" for i, q in enumerate(questions)],
            step=1,
        )
    parts.reward(rollouts)
    # Groups that carry signal, of rollouts that took more than one turn.
    mixed = [
        group.trajectories
        for group in group_trajectories(rollouts)
        if len({t.reward for t in group}) > 1 and all(len(t.policy_spans) > 1 for t in group)
    ]
    batch = [t for group in mixed[:GROUPS] for t in group]
    model = parts.model.eval()
    with torch.no_grad():
        old = [log_probs(model, t) for t in batch]
        teacher = [log_probs(model, t, teachers_prompt(parts, t)) for t in batch]
    for t, values, informed in zip(batch, old, teacher, strict=True):
        t.extra = {}
        keep("old_logprobs", t, values)
        keep("ref_logprobs", t, values)  # at the first step the start model is the policy itself
        if t.reward < 1:
            keep("teacher_logprobs", t, informed)
        for span in t.spans:
            span.logprobs = span.logprobs and [round(x, 5) for x in span.logprobs]

    objective = resolve("grpo")
    pad = torch.nn.utils.rnn.pad_sequence
    mask = pad([torch.tensor(t.completion_mask, dtype=torch.bool) for t in batch], batch_first=True)
    rewards = torch.tensor([t.reward for t in batch])
    groups = torch.arange(len(batch)) // GROUP
    advantages = objective.advantages(rewards, groups, torch.ones(len(batch), dtype=torch.bool))
    optimiser = torch.optim.AdamW(model.parameters(), lr=LR)
    for _ in range(UPDATES):
        logp = pad([log_probs(model, t) for t in batch], batch_first=True)
        tokens = Tokens.build(logp, pad(old, batch_first=True), advantages, mask)
        optimiser.zero_grad()
        objective.token_loss(tokens, StepTotals.of(mask, advantages)).loss.sum().backward()
        optimiser.step()
    with torch.no_grad():
        for t in batch:
            keep("new_logprobs", t, log_probs(model, t))
    write_rollouts(target, batch)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "rollouts.jsonl")
