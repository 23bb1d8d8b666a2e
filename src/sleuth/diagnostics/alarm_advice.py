"""What to change when a rule has spoken, as settings to type."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Setup:
    """What a run is set to, as far as that is known.

    Attributes:
        engine: ``sleuth``, ``trl`` or ``verl``: whose settings the advice names.
        updates: optimiser updates made of one rollout batch.
    """

    engine: str = "sleuth"
    lr: float | None = None
    updates: int | None = None
    objective: str | None = None


_OR = "; or "

_LR = {"sleuth": "trainer.lr", "trl": "learning_rate", "verl": "actor_rollout_ref.actor.optim.lr"}


def advice(rule: str, setup: Setup) -> str:
    """What to do about a rule's alarm, the most promising first."""
    return _OR.join(part for make in _ADVICE[rule] if (part := make(setup)))


def options(text: str) -> list[str]:
    """The single things that an advice offers."""
    return text.split(_OR) if text else []


def _lower_lr(setup: Setup) -> str:
    name = _LR[setup.engine]
    if setup.lr is None:
        return f"lower the learning rate to a third ({name}=…)"
    return f"lower the learning rate: {name}={setup.lr / 3:.1e} (now {setup.lr:.1e})"


def _fewer_updates(setup: Setup) -> str:
    if setup.engine == "verl":
        return "make fewer updates of a batch: raise actor_rollout_ref.actor.ppo_mini_batch_size"
    if setup.engine == "trl":
        return "make fewer updates of a batch: lower num_iterations or steps_per_generation"
    if setup.updates is None:
        return "make fewer updates of a batch: lower trainer.updates_per_batch"
    if setup.updates == 1:
        return ""
    return f"make fewer updates of a batch: trainer.updates_per_batch={setup.updates // 2} (now {setup.updates})"


def _objective(name: str, why: str):
    def part(setup: Setup) -> str:
        own = setup.objective or "grpo"
        if name in own.split("+"):
            return ""
        value = name if own == "grpo" else f"{own}+{name}"
        what = (
            f"objective={value}" if setup.engine == "sleuth" else f"the objective {name} (`sleuth objectives {name}`)"
        )
        return f"{what}, {why}"

    return part


def _say(text: str, **of_engine: str):
    return lambda setup: of_engine.get(setup.engine, text)


_RAISE_LIKELIHOOD = (
    _objective("search_sapo", "which pulls sinking positive tokens back"),
    _objective("llds", "which penalises lost likelihood of good rollouts"),
)
_DUAL_CLIP = _objective("dual_clip", "which bounds the gradient of negative tokens")
_KL = _say(
    "hold it to the start model: trainer.kl_coefficient=0.001",
    trl="hold it to the start model: beta=0.001",
    verl="hold it to the start model: actor_rollout_ref.actor.use_kl_loss=true",
)
_GRAD = _say(
    "clip harder: trainer.max_grad_norm=0.3",
    trl="clip harder: max_grad_norm=0.3",
    verl="clip harder: actor_rollout_ref.actor.optim.clip_grad=0.3",
)
_BACK = _say(
    "go back to a checkpoint from before and on with a third of the learning rate "
    "(diagnosis.action=rollback does it by itself)",
    trl="go back to a checkpoint from before, with a third of the learning rate",
    verl="go back to a checkpoint from before, with a third of the learning rate",
)
_FORMAT_REWARD = _say(
    "give the format a share of the reward: reward.format=0.1",
    trl="give the format a share of the reward",
    verl="give the format a share of the reward",
)

_ADVICE = {
    "low_tail": (_lower_lr, _fewer_updates, *_RAISE_LIKELIHOOD),
    "large_steps": (_lower_lr, _fewer_updates, *_RAISE_LIKELIHOOD),
    "sinking_tokens": (_lower_lr, _fewer_updates, *_RAISE_LIKELIHOOD),
    "lost_tokens": (_lower_lr, _fewer_updates, *_RAISE_LIKELIHOOD),
    "negative_burst": (_DUAL_CLIP, _lower_lr, _fewer_updates, _GRAD),
    "sequence_drift": (_lower_lr, _fewer_updates, *_RAISE_LIKELIHOOD),
    "likelihood_falls": (*reversed(_RAISE_LIKELIHOOD), _lower_lr),
    "entropy_rise": (_lower_lr, _KL, *_RAISE_LIKELIHOOD),
    "entropy_collapse": (
        _say("keep exploring: a higher sampling.temperature, or objective dapo, whose upper clip is wider"),
        _lower_lr,
    ),
    "gradient_explosion": (_GRAD, _lower_lr, _DUAL_CLIP),
    "gradient_vanishing": (_BACK, _say("look at the share of groups without signal: harder or easier questions")),
    "clip_share": (_fewer_updates, _lower_lr),
    "answer_avoidance": (
        _say("look at the sample rollouts; a reward that pays an attempt (F1) without the format invites it"),
        _FORMAT_REWARD,
        _say("raise the limits if they were cut: limits.max_tokens, limits.max_turn_tokens"),
    ),
    "format_slips": (_lower_lr, _FORMAT_REWARD),
    "degenerate": (_lower_lr, _KL, _objective("dual_clip", "which bounds the gradient of negative tokens")),
    "searches_vanish": (
        _say("look at the sample rollouts; take a cost of searches out of the reward, or train on harder questions"),
        _lower_lr,
    ),
    "repeated_queries": (
        _say("look at what the retriever returns for them; a search that finds nothing is asked again"),
    ),
    "zero_variance": (
        _say("other questions: too easy or too hard ones give no signal"),
        _say("larger groups: trainer.group", trl="larger groups: num_generations", verl="larger groups: rollout.n"),
    ),
    "failed_rollouts": (_say("look at the first error and mend the retriever or tool; no learning setting helps"),),
    "mean_drift": (_BACK, _lower_lr, _fewer_updates, *_RAISE_LIKELIHOOD),
    "reward_fell": (_BACK, _lower_lr, *_RAISE_LIKELIHOOD),
    "format_fell": (_BACK, _lower_lr, _FORMAT_REWARD),
    "reward_gone": (_BACK, _lower_lr, *_RAISE_LIKELIHOOD, _DUAL_CLIP),
    "no_signal": (_BACK,),
    "not_finite": (_BACK, _say("train in float32: model_settings.mixed_precision=no", trl="", verl="")),
}
