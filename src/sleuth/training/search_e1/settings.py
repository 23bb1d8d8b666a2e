"""What a recipe says of the schedule ``search_e1``: ``search_e1.rounds``, ``.pool``, ``.pairs``, ``.distill``.

Only the abstract and summaries of the paper could be read. Where they are silent, a default here is our reading, and
the setting is the switch; docs/methods/search_e1.md says which is which.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

ReferenceView = Literal["full", "no_passages", "queries"]
"""What the teacher is shown of the reference: all of it, all but the passages, or its queries and its answer."""

Divergence = Literal["forward_kl", "reverse_kl", "jsd"]
Rest = Literal["tail", "truncate", "renormalise"]
"""What becomes of the tokens outside of the top k: one bucket, nothing, or nothing with the rest scaled up."""

TEACHER_QUESTION = """\
{question}

Below is an attempt at this question by an expert, from the first thought to the answer.

--- the expert's attempt ---
{reference}
--- end of the expert's attempt ---

Now answer the question yourself, with your own searches."""


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", validate_default=True)


class PoolSettings(_Settings):
    """A fresh pool of rollouts at the end of a round's reinforcement learning.

    Attributes:
        rollouts: of each question, K in the paper.
        questions: training questions in a round's pool, drawn by seed, others in each round; None: all.
        batch: rollouts sampled together; also what a kill may cost.
    """

    rollouts: int = Field(default=5, ge=2)
    questions: int | None = Field(default=None, ge=1)
    batch: int = Field(default=256, ge=1)


class PairSettings(_Settings):
    """Which two rollouts of a question make a pair: a right one to be shown, and one to learn on.

    Attributes:
        measure, correct_at: a rollout is right when this component of its rewards (or ``reward``) is at least so much.
        reference: of the right ones the one with the fewest ``searches``, or the fewest ``tokens`` that it sampled.
        contrast: of several wrong ones the one whose number of ``searches`` is furthest from the reference's, or the
            ``longest``.
        all_correct: where none is wrong: the right one with ``more_searches`` than the reference, the ``longest`` other
            one, or ``drop`` the question.
        reference_without_search: take a reference that never searched; it may be a lucky guess that teaches not to.
    """

    measure: str = "em"
    correct_at: float = 1.0
    reference: Literal["searches", "tokens"] = "searches"
    contrast: Literal["searches", "longest"] = "searches"
    all_correct: Literal["more_searches", "longest", "drop"] = "more_searches"
    reference_without_search: bool = True


class DistillSettings(_Settings):
    """The stage itself: the policy under the bare prompt learns from itself with the reference before its eyes.

    Attributes:
        divergence: ``forward_kl`` is KL(teacher ‖ student); ``jsd`` that of its sister paper (arXiv 2605.18299).
        clip: upper bound on every vocabulary term of the sum; null: none. A term that is cut has no gradient of its
            own, and what is left of the sum can push the student AWAY from the teacher.
        top_k: take only the teacher's k likeliest tokens at each position; null: the whole vocabulary, exactly.
        rest: what becomes of all others under ``top_k``.
        temperature: both distributions' logits are divided by it.
        aggregation: ``token_mean``: over an update's kept tokens; ``seq_mean_token_mean``: over each rollout's first.
        teacher_question: stands in the protocol's prompt in the question's place, for the teacher.
        reference_view: what it sees of the reference.
        passage_tokens: cut each passage block of the reference to so many tokens; null: as they were.
        lora: rank of the adapters that are trained and then merged, the teacher being the model without them; null: all
            weights are trained and the teacher is a copy.
        lora_alpha: default twice the rank. lora_targets: module names, or ``all-linear``.
        lr, warmup_updates, weight_decay, max_grad_norm: AdamW's, afresh in each stage.
        batch: pairs in an update. micro_batch: most pairs in one pass; null: one at a time.
        epochs: passes over a round's pairs.
        save_every: checkpoint every so many updates; 0: never, so that a killed stage begins again.
    """

    divergence: Divergence = "forward_kl"
    clip: float | None = Field(default=None, gt=0)
    top_k: int | None = Field(default=None, ge=1)
    rest: Rest = "tail"
    temperature: float = Field(default=1.0, gt=0)
    aggregation: Literal["token_mean", "seq_mean_token_mean"] = "token_mean"
    teacher_question: str = TEACHER_QUESTION
    reference_view: ReferenceView = "full"
    passage_tokens: int | None = Field(default=None, ge=1)
    lora: int | None = Field(default=64, ge=1)
    lora_alpha: int | None = Field(default=None, ge=1)
    lora_targets: str | list[str] = "all-linear"
    lr: float = Field(default=1e-5, gt=0)
    warmup_updates: int = Field(default=0, ge=0)
    weight_decay: float = Field(default=0.0, ge=0)
    max_grad_norm: float = Field(default=1.0, gt=0)
    batch: int = Field(default=32, ge=1)
    micro_batch: int | None = Field(default=None, ge=1)
    epochs: int = Field(default=1, ge=1)
    save_every: int = Field(default=20, ge=0)

    @property
    def pairs_a_pass(self) -> int:
        return min(self.micro_batch or 1, self.batch)

    @model_validator(mode="after")
    def _usable(self) -> DistillSettings:
        for name in ("{question}", "{reference}"):
            if name not in self.teacher_question:
                raise ValueError(f"teacher_question must contain {name}")
        if self.batch % self.pairs_a_pass:
            raise ValueError(f"micro_batch={self.micro_batch} must divide batch={self.batch}")
        return self


class SearchE1Settings(_Settings):
    """The schedule: ``rounds`` times reinforcement learning (``trainer.steps`` each), pool, pairs, distillation.

    Attributes:
        end_on: ``distill``: every round ends with a distillation; ``rl``: the last round leaves it out.
    """

    rounds: int = Field(default=2, ge=1)
    end_on: Literal["distill", "rl"] = "distill"
    pool: PoolSettings = Field(default_factory=PoolSettings)
    pairs: PairSettings = Field(default_factory=PairSettings)
    distill: DistillSettings = Field(default_factory=DistillSettings)
