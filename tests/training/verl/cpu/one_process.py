"""Rollouts, credit and updates through verl's own workers in one process, without Ray; prints what it saw as JSON.

    python one_process.py FOLDER OBJECTIVE

Per step: rollouts by verl's ``AgentLoopWorker`` and our agent loop, old log-probs and two updates by verl's FSDP2
engine over gloo, weights back to the sampler. For every update the loss of the engine and that of our objective, put
together from the same rollouts as the TRL path puts it together.
"""

# ruff: noqa: E402 - what verl reads while it is imported has to be set before
import asyncio
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ.update(
    OMP_NUM_THREADS="1",
    VERL_PLATFORM="cpu",
    VERL_ENGINE_DEVICE="cuda",
    VERL_USE_EXTERNAL_MODULES="cpu_platform",
    HF_HUB_OFFLINE="1",
    RANK="0",
    LOCAL_RANK="0",
    WORLD_SIZE="1",
    MASTER_ADDR="127.0.0.1",
    CUDA_VISIBLE_DEVICES="",
)

import numpy as np
import torch

torch.set_num_threads(1)

import verl  # noqa: F401  # the platform, then the plug-in
from hopworld import hopworld
from served_policy import ServedPolicy
from tensordict import TensorDict
from transformers import AutoModelForCausalLM
from verl import DataProto
from verl.experimental.agent_loop.agent_loop import AgentLoopWorker
from verl.trainer.config import CheckpointConfig
from verl.utils import tensordict_utils
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.config import FSDPEngineConfig, FSDPOptimizerConfig, HFModelConfig
from verl.workers.engine_workers import TrainingWorkerConfig
from verl.workers.utils.padding import response_from_nested

from sleuth.anchors.rows import Anchor, AnchorRow
from sleuth.data.questions import load_questions
from sleuth.data.rows import read_rows
from sleuth.objectives.aggregation import StepTotals
from sleuth.objectives.credit import assign_credit
from sleuth.objectives.tokens import Tokens
from sleuth.training.verl.agent_settings import search_settings
from sleuth.training.verl.check import composed
from sleuth.training.verl.credit import TRAJECTORY, credit_batch
from sleuth.training.verl.losses import SearchLoss, data_padded
from sleuth.training.verl.settings import ObjectiveSettings
from sleuth.training.verl.teacher_pass import VerlTeacher
from sleuth.training.verl.worker import SearchTrainingWorker

PROMPTS, GROUP, STEPS, MICRO = 4, 4, 2, 3
LOSS = "actor_rollout_ref.actor.policy_loss"


def nested(rows):
    return torch.nested.as_nested_tensor(list(rows), layout=torch.jagged)


def training_worker(model):
    precision = dict.fromkeys(("param_dtype", "reduce_dtype", "buffer_dtype"), "fp32")
    sizes = {"max_token_len_per_gpu": 8192, "infer_max_token_len_per_gpu": 8192}
    worker = SearchTrainingWorker(
        TrainingWorkerConfig(
            model_type="language_model",
            model_config=HFModelConfig(
                path=model,
                use_remove_padding=False,
                enable_gradient_checkpointing=False,
                override_config={"attn_implementation": "eager"},
            ),
            engine_config=FSDPEngineConfig(
                strategy="fsdp2",
                use_torch_compile=False,
                mixed_precision=precision,
                model_dtype="fp32",
                use_dynamic_bsz=False,
                micro_batch_size_per_gpu=MICRO,
                infer_micro_batch_size_per_gpu=1,
                **sizes,
            ),
            optimizer_config=FSDPOptimizerConfig(lr=1e-3, total_training_steps=10),
            checkpoint_config=CheckpointConfig(),
        )
    )
    worker.reset()
    return worker


def rows_of(questions):
    """What verl's data loader hands to the agent loops."""
    rows = [row.fields for row in read_rows(questions)][:PROMPTS]
    columns = {name: [row[name] for row in rows for _ in range(GROUP)] for name in rows[0]}
    columns["raw_prompt"] = columns.pop("prompt")
    columns["uid"] = [row["id"] for row in rows for _ in range(GROUP)]
    columns["session_id"] = list(range(GROUP)) * PROMPTS
    arrays = {}
    for name, values in columns.items():
        arrays[name] = np.empty(len(values), dtype=object)
        arrays[name][:] = values
    return DataProto.from_dict(tensors={"dummy": torch.zeros(PROMPTS * GROUP)}, non_tensors=arrays)


def as_fields(output, uids):
    """The agent loop's padded output as the nested fields that verl's trainer works on."""
    prompt_width = output.batch["prompts"].shape[1]
    attention = output.batch["attention_mask"].bool()
    before, behind = attention[:, :prompt_width], attention[:, prompt_width:]
    fields = {
        "prompts": nested(row[kept] for row, kept in zip(output.batch["prompts"], before, strict=True)),
        "responses": nested(row[kept] for row, kept in zip(output.batch["responses"], behind, strict=True)),
        "input_ids": nested(row[kept] for row, kept in zip(output.batch["input_ids"], attention, strict=True)),
        "position_ids": nested(torch.arange(int(kept.sum())) for kept in attention),
        "attention_mask": nested(torch.ones(int(kept.sum()), dtype=torch.long) for kept in attention),
    }
    for name in ("response_mask", "rollout_log_probs", "rm_scores"):
        fields[name] = nested(row[kept] for row, kept in zip(output.batch[name], behind, strict=True))
    fields["loss_mask"] = fields["response_mask"]
    data = TensorDict(fields, batch_size=len(uids))
    trajectories = output.non_tensor_batch[TRAJECTORY]
    tensordict_utils.assign_non_tensor_stack(data, "extra_fields", [{TRAJECTORY: line} for line in trajectories])
    tensordict_utils.assign_non_tensor_stack(data, "uid", list(uids))
    return data


class OneWorker:
    """A worker group of one, as the teacher sees it."""

    def __init__(self, worker):
        self.worker = worker

    def compute_log_prob(self, data):
        return self.worker.infer_batch(data)


def scored(worker, data):
    """(B, T) nested log-probs of the responses."""
    data = data.select(
        "prompts", "responses", "input_ids", "position_ids", "attention_mask", "response_mask", "loss_mask"
    )
    data = data.clone()
    lengths = data["input_ids"].offsets().diff().tolist()
    tensordict_utils.assign_non_tensor(
        data,
        temperature=1.0,
        global_batch_size=len(lengths),
        calculate_entropy=False,
        compute_loss=False,
        global_token_num=lengths,
    )
    return response_from_nested(worker.infer_batch(data)["log_probs"], data["response_mask"])


def expected_loss(objective, part, logp):
    """Our objective's loss of one update."""
    mask = data_padded(part, "response_mask").bool()
    rollouts = data_padded(part, "search_rollout_advantages")[:, 0]
    tokens = Tokens.build(
        torch.nested.to_padded_tensor(logp, 0),
        data_padded(part, "old_log_probs"),
        data_padded(part, "advantages"),
        mask,
        rollout_advantages=rollouts,
    )
    return objective.token_loss(tokens, StepTotals.of(mask, rollouts)).loss.sum().item()


async def main(folder, name):
    world = hopworld(folder)
    overrides = [
        *world.overrides,
        "trainer.v1.trainer_mode=search_sync",
        "algorithm.adv_estimator=search_objective",
        f"{LOSS}._target_=sleuth.training.verl.settings.SearchPolicyLossConfig",
        f"{LOSS}.loss_mode=search_objective",
        f"+{LOSS}.objective={name}",
    ]
    if "sspo" in name:
        anchors = folder / "anchors.jsonl"
        lines = [
            AnchorRow(q.id, q.question, tuple(Anchor(t, q.question) for t in q.supporting_titles[:1])).as_json()
            for q in load_questions(world.questions)
        ]
        anchors.write_text("".join(json.dumps(line) + "\n" for line in lines))
        overrides += [
            f"+actor_rollout_ref.rollout.custom.search.teacher.anchors={anchors}",
            "+actor_rollout_ref.rollout.custom.search.teacher.prompt="
            '{prompt: "{anchors} . {question}", attempt: "", anchor: "{explanation}", separator: " . "}',
        ]
    config = composed(["actor_rollout_ref.rollout.name=vllm", *overrides])
    settings = ObjectiveSettings.of(omega_conf_to_dataclass(config.actor_rollout_ref.actor), whole=True)
    objective = settings.resolve()
    worker = training_worker(world.model)
    worker.set_loss_fn(SearchLoss(settings))
    policy = ServedPolicy(AutoModelForCausalLM.from_pretrained(world.model, dtype=torch.float32).eval())
    loops = AgentLoopWorker(config, policy)
    teacher = None
    if objective.needs_teacher:
        search = search_settings(config.actor_rollout_ref.rollout)
        teacher = VerlTeacher(search, loops.tokenizer, config, OneWorker(worker), None)
    steps = []
    for number in range(STEPS):
        rows = rows_of(world.questions)
        output = await loops.generate_sequences(rows)
        data = as_fields(output, rows.non_tensor_batch["uid"])
        old = scored(worker, data)
        data["old_log_probs"] = old
        mask = data_padded(data, "response_mask").bool()
        gap = (data_padded(data, "old_log_probs") - data_padded(data, "rollout_log_probs"))[mask].abs().max().item()
        credited = credit_batch(objective, data, [False] * len(data), teacher)
        for key, values in credited.fields.items():
            data[key] = values
        ours = assign_credit(
            objective,
            torch.tensor([t.reward or 0.0 for t in credited.rollouts]),
            torch.arange(len(mask)) // GROUP,
            torch.tensor([not t.failed for t in credited.rollouts]),
            mask,
            credited.rollouts,
        )
        updates = []
        for rows_of_update in (range(6), range(6, 15)):
            part = tensordict_utils.index_select_tensor_dict(data, torch.tensor(list(rows_of_update)))
            wanted = expected_loss(objective, part, scored(worker, part))
            lengths = part["input_ids"].offsets().diff().tolist()
            tensordict_utils.assign_non_tensor(
                part, temperature=1.0, global_batch_size=len(lengths), calculate_entropy=False, global_token_num=lengths
            )
            metrics = tensordict_utils.get(worker.train_batch(part), "metrics")
            updates.append({"loss": metrics["loss"], "ours": wanted, "grad_norm": metrics["grad_norm"]})
        weights, _ = worker.engine.get_per_tensor_param()
        policy.update_weights({key: value.float() for key, value in weights}, number + 1)
        steps.append(
            {
                "reward": data_padded(data, "rm_scores").sum(-1).mean().item(),
                "sampler_gap": gap,
                "credit_gap": (credited.fields["advantages"].to_padded_tensor(0) - ours.tokens * mask)
                .abs()
                .max()
                .item(),
                "turns": max(len(t.policy_spans) for t in credited.rollouts),
                "documents": sum(len(s.documents) for t in credited.rollouts for s in t.spans),
                "updates": updates,
                "statistics": credited.statistics,
            }
        )
    print("RESULT " + json.dumps(steps))


if __name__ == "__main__":
    torch.distributed.init_process_group("gloo")
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
