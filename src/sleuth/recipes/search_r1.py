"""Settings of Search-R1's training scripts (``key=value`` behind ``verl.trainer.main_ppo``) as a recipe."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sleuth.errors import UserError
from sleuth.recipes.yaml_text import parse_yaml

_PROGRAM = "verl.trainer.main_ppo"
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


@dataclass(slots=True)
class Migrated:
    """A recipe and what became of the script's settings.

    Attributes:
        recipe: as YAML would have it. ``unset``: dotted keys of the recipe that the user must fill in.
        dropped: settings that have no effect here, and why. ``missing``: settings that would change what is learned and
            have no counterpart or one that isn't the same, and why.
    """

    recipe: dict[str, Any] = field(default_factory=dict)
    unset: list[str] = field(default_factory=list)
    dropped: list[tuple[str, str]] = field(default_factory=list)
    missing: list[tuple[str, str]] = field(default_factory=list)


def read_script(path: Path) -> dict[str, Any]:
    """The overrides of the script's call of ``main_ppo``, with shell variables that the script sets filled in.

    Raises:
        UserError: no such file, or no call of ``main_ppo`` with settings in it.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = str(error.strerror).lower() if isinstance(error, OSError) else "not UTF-8 text"
        raise UserError(f"{path}: can't be read ({reason}); name a training script of Search-R1") from None
    variables: dict[str, str] = {}
    for line in text.replace("\\\n", " ").splitlines():
        try:
            words = shlex.split(line, comments=True)
        except ValueError:
            continue
        if any(_PROGRAM in word for word in words):
            at = next(i for i, word in enumerate(words) if _PROGRAM in word)
            pairs = [word.partition("=") for word in words[at + 1 :] if re.match(r"\+*[\w.]+=", word)]
            if pairs:
                return {key.lstrip("+"): parse_yaml(_filled(value, variables) or "null") for key, _, value in pairs}
        for word in words[1:] if words[:1] == ["export"] else words:
            if (found := re.fullmatch(r"(\w+)=(.*)", word, re.DOTALL)) is not None:
                variables[found[1]] = _filled(found[2], variables)
    raise UserError(f"{path}: no call of {_PROGRAM} with key=value settings; name a training script of Search-R1")


def migrate(settings: dict[str, Any]) -> Migrated:
    """A recipe that does what the settings say, as far as Sleuth can, starting from Search-R1's own defaults.

    Raises:
        UserError: a setting whose value isn't the number that it must be.
    """
    out = Migrated({"protocol": {"kind": "tags"}, "reward": {"em": 1.0}, "model_settings": {"dtype": "float32"}})
    left = dict(settings)
    out.missing += [
        (f"{key}={value}", f"the script doesn't set {found[0]}; write its value")
        for key, value in settings.items()
        if isinstance(value, str) and (found := _VARIABLE.search(value)) is not None
    ]
    prompts = _count(left, "data.train_batch_size", 512)
    own = _count(left, "actor_rollout_ref.rollout.n", 1)
    group = _count(left, "actor_rollout_ref.rollout.n_agent", own)
    mini = _count(left, "actor_rollout_ref.actor.ppo_mini_batch_size", prompts * group)
    _put(out, "trainer.prompts", prompts)
    if group < 2:
        out.missing.append(
            (f"n_agent={group}", "advantages compare rollouts of one question: trainer.group is set to 5")
        )
        group = 5
    _put(out, "trainer.group", group)
    updates = max(round(prompts * group / mini), 1)
    if prompts * group % updates:
        out.missing.append(
            (f"ppo_mini_batch_size={mini}", f"{updates} updates don't divide {prompts * group} rollouts")
        )
        updates = 1
    _put(out, "trainer.updates_per_batch", updates)
    _estimator(out, left)
    _kl(out, left)
    if left.get("trainer.total_training_steps") is not None:
        steps = _count(left, "trainer.total_training_steps", 1)
        _put(out, "trainer.steps", steps)
        warmup = _share(left, "actor_rollout_ref.actor.optim.lr_warmup_steps_ratio", 0.0)
        _put(out, "trainer.warmup_steps", int(steps * warmup))
    else:
        out.unset.append("trainer.steps")
    _retriever(out, left)
    turns = _count(left, "max_turns", 10)
    # Search-R1 counts searches, and then lets the policy answer once more.
    _put(out, "limits.max_turns", turns + 1)
    _put(out, "limits.max_searches", turns)
    for key, (target, change) in SAME.items():
        if key in left and left[key] is not None:
            value = left.pop(key)
            try:
                _put(out, target, change(value))
            except (TypeError, ValueError):
                raise UserError(f"{key}={value}: not a number; mend the script") from None
            if key in ALMOST:
                out.missing.append((f"{key}={value}", ALMOST[key]))
    for key, value in left.items():
        why = next((why for pattern, why in VOID.items() if re.fullmatch(pattern, key)), None)
        (out.missing if why is None else out.dropped).append((f"{key}={value}", why or "no counterpart"))
    out.missing += [("(not in the script) " + what, why) for what, why in ALWAYS]
    for key in ("data.train", "data.test", "model"):
        if not _has(out.recipe, key):
            out.unset.append(key)
    return out


def _same(value: Any) -> Any:
    return value


def _frequency(value: int) -> int:
    return max(value, 0)


SAME: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "actor_rollout_ref.model.path": ("model", _same),
    "actor_rollout_ref.model.enable_gradient_checkpointing": ("model_settings.gradient_checkpointing", bool),
    "actor_rollout_ref.actor.optim.lr": ("trainer.lr", float),
    "actor_rollout_ref.actor.optim.weight_decay": ("trainer.weight_decay", float),
    "actor_rollout_ref.actor.grad_clip": ("trainer.max_grad_norm", float),
    "actor_rollout_ref.actor.clip_ratio": ("parameters.grpo", lambda clip: {"clip_low": clip, "clip_high": clip}),
    "actor_rollout_ref.rollout.temperature": ("sampling.temperature", float),
    "actor_rollout_ref.rollout.top_p": ("sampling.top_p", float),
    "data.train_files": ("data.train", _same),
    "data.val_files": ("data.test", _same),
    "data.val_batch_size": ("evaluation.batch", _same),
    "data.max_prompt_length": ("limits.max_tokens", _same),
    "data.max_response_length": ("limits.max_turn_tokens", _same),
    "data.max_obs_length": ("limits.max_observation_tokens", _same),
    "trainer.save_freq": ("trainer.save_every", _frequency),
    "trainer.test_freq": ("trainer.eval_every", _frequency),
    "trainer.experiment_name": ("name", str),
}
"""Settings with one of the same meaning: ours, and how its value changes."""

ALMOST: dict[str, str] = {
    "data.max_prompt_length": (
        "there the whole context, from whose start the oldest tokens are cut; here limits.max_tokens counts the tokens "
        "behind the prompt, none is cut, and a rollout that reaches it ends as truncated"
    ),
    "data.max_obs_length": "here the closing tag is kept when an observation is cut",
    "data.val_batch_size": "here only speed: the last batch is scored too",
}
"""Settings of :data:`SAME` whose counterpart means a little else, and what."""

ALWAYS = (
    (
        "dtype",
        "verl holds float32 weights and computes and samples in bfloat16; here model_settings.dtype=float32 and "
        "model_settings.mixed_precision=auto, which is bfloat16 on a GPU that has it, for training and sampling",
    ),
    ("prompt", "its rows bring one, which isn't read; ours has its own wording (protocol.settings.prompt)"),
    (
        "reward",
        "exact match of the policy's own answer; theirs reads the last answer element of prompt, pages and thoughts",
    ),
)
"""What no setting of a script says, and isn't the same."""

_ENGINE = "how the work is laid out on the machines; ours is in trainer.micro_batch, model_settings and the launcher"
VOID: dict[str, str] = {
    r"actor_rollout_ref\.(actor|rollout|ref)\.(log_prob_micro_batch_size|fsdp_config\..*|tensor_model_parallel_size"
    r"|gpu_memory_utilization|name|ulysses.*|use_dynamic_bsz|ppo_max_token_len_per_gpu)": _ENGINE,
    r"actor_rollout_ref\.actor\.ppo_micro_batch_size": "counts all GPUs together; set trainer.micro_batch for one",
    r"actor_rollout_ref\.model\.use_remove_padding": _ENGINE,
    r"actor_rollout_ref\.actor\.state_masking": "always on: only tokens that the policy sampled are trained",
    r"actor_rollout_ref\.actor\.optim\.lr_warmup_steps_ratio": "needs trainer.total_training_steps",
    r"critic\..*": "there is no critic",
    r"trainer\.(n_gpus_per_node|nnodes)": "say it to torchrun or accelerate launch",
    r"trainer\.(logger|project_name|default_local_dir|default_hdfs_dir|critic_warmup|total_epochs)": (
        "see trainer.track, -o and trainer.steps"
    ),
    r"trainer\.val_(only|before_train)|\+trainer\..*": "test questions are scored before and after",
    r"data\.(max_start_length|return_raw_chat)": "no question is left out for its length",
    r"data\.(shuffle_train_dataloader|train_data_num|val_data_num)": ("questions are shuffled, and none is left out"),
    r"algorithm\.no_think_rl": "a thought before a search is the protocol's",
    r"algorithm\.kl_ctrl\..*": "a penalty inside the reward; see trainer.kl_coefficient for one in the loss",
}
"""Settings that need none, by pattern, and why."""


def _estimator(out: Migrated, left: dict[str, Any]) -> None:
    name = _take(left, "algorithm.adv_estimator", "gae")
    if name == "gae":
        out.missing.append(("algorithm.adv_estimator=gae", "PPO's critic; the recipe takes grpo"))
    elif name != "grpo":
        out.missing.append((f"algorithm.adv_estimator={name}", "the recipe takes grpo; see `sleuth objectives`"))
    out.recipe["objective"] = "grpo"


def _kl(out: Migrated, left: dict[str, Any]) -> None:
    coefficient = _take(left, "actor_rollout_ref.actor.kl_loss_coef", 0.001)
    kind = _take(left, "actor_rollout_ref.actor.kl_loss_type", "low_var_kl")
    _put(
        out, "trainer.kl_coefficient", coefficient if _take(left, "actor_rollout_ref.actor.use_kl_loss", False) else 0.0
    )
    if kind != "low_var_kl":
        out.missing.append((f"kl_loss_type={kind}", "k3 (low_var_kl) is used; other estimates: objective reference_kl"))


def _retriever(out: Migrated, left: dict[str, Any]) -> None:
    url = _take(left, "retriever.url", None)
    if url is not None:
        out.recipe["retriever"] = {"kind": "http", "settings": {"url": url}}
    else:
        out.unset.append("retriever.corpus")
    _put(out, "limits.k", _take(left, "retriever.topk", 3))


def _filled(value: str, variables: dict[str, str]) -> str:
    return _VARIABLE.sub(lambda m: variables.get(m[1] or m[2], m[0]), value)


def _take(settings: dict[str, Any], key: str, default: Any) -> Any:
    value = settings.pop(key, None)
    return default if value is None else value


def _count(settings: dict[str, Any], key: str, default: int) -> int:
    value = _take(settings, key, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UserError(f"{key}={value}: not a whole number of at least 1; mend the script")
    return value


def _share(settings: dict[str, Any], key: str, default: float) -> float:
    value = _take(settings, key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise UserError(f"{key}={value}: not a number from 0 to 1; mend the script")
    return float(value)


def _put(out: Migrated, key: str, value: Any) -> None:
    *groups, last = key.split(".")
    place = out.recipe
    for group in groups:
        place = place.setdefault(group, {})
    place[last] = value


def _has(recipe: dict[str, Any], key: str) -> bool:
    for part in key.split("."):
        if not isinstance(recipe, dict) or part not in recipe:
            return False
        recipe = recipe[part]
    return True


def absent_files(migrated: Migrated, folder: Path) -> list[tuple[str, str]]:
    """(key, path) of question sets that the recipe names by a path that isn't there, seen from ``folder``."""
    named = {f"data.{key}": migrated.recipe.get("data", {}).get(key) for key in ("train", "test")}
    return [
        (key, path)
        for key, value in named.items()
        for path in (value if isinstance(value, list) else [value])
        if isinstance(path, str) and Path(path).suffix and not (folder / Path(path).expanduser()).exists()
    ]


def lines(migrated: Migrated) -> Iterator[str]:
    """What a person should know of the change, a line each."""
    for setting, why in migrated.missing:
        yield f"not the same: {setting}: {why}"
    for setting, why in migrated.dropped:
        yield f"left out: {setting}: {why}"
    for key in migrated.unset:
        yield f"to be set: {key}"
