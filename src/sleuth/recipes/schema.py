"""What a recipe may say: one typed field a setting, unknown keys refused.

A recipe describes a whole run: model, protocol, data, retriever, reward, objective, trainer. The loader
(:mod:`sleuth.recipes.loader`) finds it by name, follows ``extends`` and applies ``key.sub=value`` settings.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from sleuth.agent.episode import Limits
from sleuth.anchors.prompt import TeacherPrompt
from sleuth.diagnostics.alarm_limits import AlarmLimits
from sleuth.lab.settings import ComparisonSettings
from sleuth.rewards.reward import RewardSettings
from sleuth.samplers.colocated_policy import ColocatedSettings
from sleuth.samplers.openai_compatible import EndpointSettings
from sleuth.samplers.served_policy import ServerSettings
from sleuth.training.search_e1.settings import SearchE1Settings
from sleuth.world.files import WorldSetSettings


class Settings(BaseModel):
    """Base of every group of settings."""

    model_config = ConfigDict(extra="forbid", validate_default=True)


class ModelSettings(Settings):
    """How the policy is loaded.

    Attributes:
        dtype: of the weights; ``float32`` on a CPU, since bfloat16 is slower there.
        mixed_precision: run forwards and backwards in bfloat16 over the weights' own dtype (autocast). ``auto``: on a
            GPU that can; on a CPU only if you say ``bf16`` (with AVX-512 BF16 it is about 1.6 times faster).
        lora: train LoRA adapters of this rank instead of all weights; None: all weights.
        lora_alpha: default twice the rank.
        lora_targets: module names, or ``all-linear``.
        gradient_checkpointing: recompute activations in the backward pass (less memory, a third more time).
    """

    dtype: Literal["float32", "bfloat16", "float16", "auto"] = "float32"
    mixed_precision: Literal["auto", "no", "bf16"] = "auto"
    lora: int | None = Field(default=None, ge=1)
    lora_alpha: int | None = Field(default=None, ge=1)
    lora_targets: str | list[str] = "all-linear"
    gradient_checkpointing: bool = False


class ProtocolSettings(Settings):
    """How agent and environment talk.

    Attributes:
        kind: ``tags`` (Search-R1), ``tool_calls`` (Qwen/Hermes JSON), or a user's own ``module:function``.
        settings: the protocol's own, see :class:`sleuth.agent.tags.TagSettings` and
            :class:`sleuth.agent.tool_calls.ToolCallSettings`.
        tools: a user's own tools, name → ``module:function``.
    """

    kind: str = "tags"
    settings: dict[str, Any] = Field(default_factory=dict)
    tools: dict[str, str] = Field(default_factory=dict)


class DataSettings(Settings):
    """Question sets. Files, folders or ``datasets`` names; ``world`` makes them instead.

    Attributes:
        dev: decides which checkpoint is kept; None: ``dev_size`` questions are split off ``train`` by seed.
        test: only ever scored, before and after; several sets may be given.
        train_where, dev_where, test_where: keep rows whose fields have this value or one of these values, e.g.
            ``{"support": "gold", "fold": [2, 3]}``.
        test_limit: rows scored of each ``data_source`` in the test sets, taken by seed; None: all.
        comparable: False where training sees rows of a benchmark's development split; tables then say so.
    """

    train: str | list[str] | None = None
    dev: str | list[str] | None = None
    test: str | list[str] | None = None
    train_where: dict[str, Any] = Field(default_factory=dict)
    dev_where: dict[str, Any] = Field(default_factory=dict)
    test_where: dict[str, Any] = Field(default_factory=dict)
    dev_size: int = Field(default=128, ge=1)
    test_limit: int | None = Field(default=None, ge=1)
    comparable: bool = True


class RetrieverSettings(Settings):
    """Where passages come from.

    Attributes:
        kind: ``bm25`` (in process), ``index`` (a folder that ``sleuth index`` built), ``http`` (a server),
            ``simulated`` (a language model plays the engine), ``serper``, ``brave``, ``searxng`` (the web), or a user's
            own factory ``module:function``, called with ``corpus`` (the path or None) and the ``settings`` as keyword
            arguments. docs/retrieval.md has them all.
        corpus: passages (a JSONL file, a parquet file, a folder of texts, …), or the index folder; not needed with
            ``world`` or ``http``.
        settings: the kind's own (``k1``, ``b``, ``stopwords`` for bm25).
        visit: give the policy the tool ``visit``, which shows the page behind a passage.
        visit_words: of a page in one observation; a longer page comes in parts.
    """

    kind: str = "bm25"
    corpus: str | None = None
    settings: dict[str, Any] = Field(default_factory=dict)
    visit: bool = False
    visit_words: int = Field(default=300, ge=20)


class SamplingSettings(Settings):
    """How rollouts are drawn.

    Attributes:
        temperature: above 0, where every rollout of a group would be the same and no advantage differ from 0;
            ``evaluation.temperature`` may be 0.
        max_rows: rollouts decoded together; None: all of a batch.
        server: a vLLM server that samples. ``colocated``: vLLM in every training process, on its GPU. None of them: the
            model in training does it itself.
    """

    temperature: float = Field(default=1.0, gt=0)
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: int = Field(default=0, ge=0)
    max_rows: int | None = Field(default=None, ge=1)
    server: ServerSettings | None = None
    colocated: ColocatedSettings | None = None


class TrainerSettings(Settings):
    """The training loop. A *step* is one rollout batch, ``prompts`` × ``group`` rollouts, and all updates made from it.

    Attributes:
        lr: AdamW's learning rate, constant after ``warmup_steps`` steps.
        group: rollouts a prompt; at least 2, since advantages compare rollouts of one prompt.
        updates_per_batch: optimiser updates made from one batch in one pass; 1 is on-policy (every ratio is 1).
        micro_batch: rollouts in one forward and backward pass; None: all rollouts of an update.
        steps: rollout batches.
        eval_every: score the dev questions every so many steps; 0: never.
        save_every: checkpoint every so many steps; 0: at the end (and where ``keep`` needs one).
        keep: ``best``: the checkpoint with the best dev EM is the run's result; ``last``: the last one.
        keep_last: how many of the latest checkpoints stay on disk.
        kl_coefficient: weight of a penalty towards the start model (k3 estimate); 0: none, and no reference model.
        max_failed_share: stop the run when more than this share of a batch's rollouts failed.
        save_rollouts_every: write the batch's rollouts every so many steps; 0: never.
        track: experiment trackers, by their names in transformers (``tensorboard``, ``wandb``, ``trackio``).
    """

    lr: float = Field(default=1e-6, gt=0)
    warmup_steps: int = Field(default=0, ge=0)
    weight_decay: float = Field(default=0.01, ge=0)
    max_grad_norm: float = Field(default=1.0, gt=0)
    prompts: int = Field(default=16, ge=1)
    group: int = Field(default=8, ge=2)
    updates_per_batch: int = Field(default=1, ge=1)
    micro_batch: int | None = Field(default=None, ge=1)
    steps: int = Field(default=100, ge=1)
    eval_every: int = Field(default=0, ge=0)
    save_every: int = Field(default=0, ge=0)
    keep: Literal["best", "last"] = "last"
    keep_last: int = Field(default=1, ge=1)
    kl_coefficient: float = Field(default=0.0, ge=0)
    max_failed_share: float = Field(default=0.5, ge=0, le=1)
    save_rollouts_every: int = Field(default=1, ge=0)
    track: list[str] = Field(default_factory=list)

    @model_validator(mode="after")
    def _divides(self) -> TrainerSettings:
        rows = self.prompts * self.group
        if rows % self.updates_per_batch:
            raise ValueError(
                f"updates_per_batch={self.updates_per_batch} must divide prompts × group = {rows} rollouts"
            )
        per_update = rows // self.updates_per_batch
        if self.micro_batch is not None and per_update % self.micro_batch:
            raise ValueError(f"micro_batch={self.micro_batch} must divide the {per_update} rollouts of an update")
        return self


class TeacherSettings(Settings):
    """The teacher of objectives that need one (``sspo``): whose weights it has, and what it is shown.

    Attributes:
        weights: ``copy``: the policy's, taken over before step 1 and every ``every`` steps after it (0: never again);
            ``ema``: their average, which moves by ``rate`` a step; ``base``: the model without its LoRA adapters;
            ``policy``: the policy's own as they are before a batch's first update. Memory: for ``copy`` and ``ema``
            the weights that are trained (with LoRA: the adapters) once more, for the others none.
        anchors: file of evidence for the training questions (``sleuth anchors build``); None: from the questions' own
            supporting passages.
        answers: golden answers in the evidence that is made of supporting passages: ``hide`` or ``allow`` them.
        prompt: how question, wrong answer and evidence are put.
        max_context: tokens of prompt and rollout that the teacher reads; None: the model's context window. A longer
            one is not read, and counted.
    """

    weights: Literal["copy", "ema", "base", "policy"] = "copy"
    every: int = Field(default=50, ge=0)
    rate: float = Field(default=0.05, gt=0, le=1)
    anchors: str | None = None
    answers: Literal["hide", "allow"] = "hide"
    prompt: TeacherPrompt = Field(default_factory=TeacherPrompt)
    max_context: int | None = Field(default=None, ge=2)


class WarmStartSettings(Settings):
    """Supervised training on demonstrations before reinforcement learning (``sleuth warmstart``).

    Attributes:
        demonstrations: ``world`` (HopWorld's demonstrator) or ``oracle`` (supporting titles and decompositions), or a
            rollouts file.
        count: demonstrations made.
        errors: the world demonstrator's error rates.
        with_anchors: share of the demonstrations that stand under the teacher's prompt (a world's: without errors), for
            a policy that is too small to follow an instruction it has never seen.
    """

    demonstrations: str = "world"
    count: int = Field(default=20000, ge=1)
    errors: dict[str, float] = Field(default_factory=dict)
    with_anchors: float = Field(default=0.0, ge=0, le=1)
    steps: int = Field(default=1000, ge=1)
    batch: int = Field(default=32, ge=1)
    micro_batch: int | None = Field(default=None, ge=1)
    lr: float = Field(default=1e-3, gt=0)
    max_tokens: int = Field(default=2048, ge=8)


class EvaluationSettings(Settings):
    """How questions are scored, in training before and after, and by ``sleuth eval``.

    Attributes:
        enabled: (training) at all. ``greedy``: also at temperature 0.
        batch: questions answered together by a local model.
        methods: (eval) names of :data:`sleuth.evaluation.methods.METHODS`, and ``agent``.
        samples: (eval) answers drawn for each question at ``temperature``; a question's score is their mean.
        limit: (eval) score so many questions of each ``data_source``, chosen by a hash of their ids, whatever their
            order; by source: ``{default: 50, bamboogle: 125}``.
        grader: (eval) ``squad``, ``robust`` or ``search-r1-compat``; None: the reward's.
        passage_words: (eval) methods cut a passage there. ``answer_tokens``: of a message that is an answer alone.
        endpoint: (eval) an OpenAI-compatible endpoint instead of a local model.
    """

    enabled: bool = True
    temperature: float = Field(default=1.0, ge=0)
    greedy: bool = True
    seed: int = 0
    batch: int = Field(default=256, ge=1)
    methods: list[str] = Field(default_factory=lambda: ["agent"])
    samples: int = Field(default=1, ge=1)
    limit: int | dict[str, int] | None = None
    grader: Literal["squad", "robust", "search-r1-compat"] | None = None
    passage_words: int = Field(default=100, ge=1)
    answer_tokens: int = Field(default=32, ge=1)
    endpoint: EndpointSettings | None = None


AlarmAction = Literal["off", "warn", "checkpoint", "stop", "rollback"]
"""What an alarm does: nothing; a line and a record of it; a checkpoint on top; the end of the run (exit code 1); or
going back to the last healthy checkpoint with other settings."""


class AlarmActions(Settings):
    """An action for each level of alarm."""

    early: AlarmAction = "warn"
    late: AlarmAction = "warn"
    dead: AlarmAction = "warn"


class RollbackSettings(Settings):
    """What changes when a run goes back to its last healthy checkpoint, the last one before the trouble began.

    Attributes:
        lr_factor: the learning rate is multiplied by it, again at each rollback.
        objective: the objective from then on; None: as before. ``parameters``: of its parts, on top of the recipe's.
        times: rollbacks in a run; the next alarm of that kind stops it.
        every, keep: with ``stop`` or ``rollback``, checkpoint every so many steps and keep so many of these, whatever
            ``trainer.save_every`` and ``trainer.keep_last`` say: where to go back to must be there before it is needed.
    """

    lr_factor: float = Field(default=0.3, gt=0, le=1)
    objective: str | None = None
    parameters: dict[str, dict[str, Any]] = Field(default_factory=dict)
    times: int = Field(default=2, ge=1)
    every: int = Field(default=10, ge=1)
    keep: int = Field(default=3, ge=1)


class DiagnosisSettings(Settings):
    """Alarms during training.

    Attributes:
        action: for every level, or by level: ``{early: warn, late: checkpoint, dead: stop}``.
        rules: limits of the alarms, e.g. ``diagnosis.rules.low_tail.limit=0.2``.
    """

    action: AlarmAction | AlarmActions = "warn"
    rules: AlarmLimits = Field(default_factory=AlarmLimits)
    rollback: RollbackSettings = Field(default_factory=RollbackSettings)

    def action_at(self, level: str) -> AlarmAction:
        """The action for alarms of a level."""
        return self.action if isinstance(self.action, str) else getattr(self.action, level)

    @property
    def actions(self) -> set[AlarmAction]:
        """All actions that some alarm may have."""
        return {self.action_at(level) for level in AlarmActions.model_fields}


class Recipe(Settings):
    """A whole run. See the classes of its fields.

    Attributes:
        name: the recipe's name. ``summary``: one line. ``expect``: time and machine it takes.
        requires: dotted keys that the user has to set, since they name the user's own files.
        model: hub name or folder, or ``tiny`` (the shipped tiny policy).
        world: make a HopWorld in the run folder and take questions and corpus from it.
        objective: a name of ``sleuth objectives``, or several joined by ``+``.
        parameters: of the objective's parts, e.g. ``{"grpo": {"clip_low": 0.2}}``; ``grpo.clip_low=0.2`` on the
            command line.
        aggregation: how token losses become one number; None: the objective's own default.
        schedule: ``rl``: ``trainer.steps`` of reinforcement learning; ``search_e1``: rounds of it, each followed by
            self-distillation, with the settings of that name.
        comparison: regimes and arms of ``sleuth compare``; ``sleuth train`` doesn't read it.
    """

    name: str = "unnamed"
    summary: str = ""
    expect: str = ""
    requires: list[str] = Field(default_factory=list)
    model: str | None = None
    model_settings: ModelSettings = Field(default_factory=ModelSettings)
    protocol: ProtocolSettings = Field(default_factory=ProtocolSettings)
    limits: Limits = Field(default_factory=Limits)
    world: WorldSetSettings | None = None
    data: DataSettings = Field(default_factory=DataSettings)
    retriever: RetrieverSettings = Field(default_factory=RetrieverSettings)
    reward: RewardSettings | str = Field(default_factory=RewardSettings)
    objective: str = "grpo"
    parameters: dict[str, dict[str, Any]] = Field(default_factory=dict)
    aggregation: str | None = None
    schedule: Literal["rl", "search_e1"] = "rl"
    search_e1: SearchE1Settings = Field(default_factory=SearchE1Settings)
    sampling: SamplingSettings = Field(default_factory=SamplingSettings)
    trainer: TrainerSettings = Field(default_factory=TrainerSettings)
    teacher: TeacherSettings = Field(default_factory=TeacherSettings)
    diagnosis: DiagnosisSettings = Field(default_factory=DiagnosisSettings)
    warmstart: WarmStartSettings = Field(default_factory=WarmStartSettings)
    evaluation: EvaluationSettings = Field(default_factory=EvaluationSettings)
    comparison: ComparisonSettings | None = None
    seed: int = 0
