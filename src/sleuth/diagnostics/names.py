"""Every name that a step's record in ``metrics.jsonl`` may hold: what it says, its unit, and which change is bad.

Alarms, reports and docs speak of metrics through this catalogue alone. In a pattern ``<sign>`` is the sign of the
advantage, ``<kind>`` the kind of token, ``<turn>`` the turn, and ``[<split>/]`` stands for nothing (all tokens),
``<sign>/``, ``<sign>/<kind>/`` or ``<sign>/<turn>/``. Columns of a user's own reward are the only names outside of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from sleuth.types import PartKind, Status

SIGNS = ("pos", "neg")
"""Sign of a token's advantage as the loss saw it. Tokens of advantage 0 are in neither."""

KINDS = (*(kind.value for kind in PartKind), "other")
"""Kinds of token; ``other`` is a policy token outside of every part (free text)."""

LAST_TURN = 6
"""Turns from this one on share a split."""

TURNS = (*(f"turn{i}" for i in range(1, LAST_TURN)), f"turn{LAST_TURN}+")
"""Turns, counted from 1."""

Change = Literal["up", "down", "either", "none"]
"""Which change of a metric is bad news; ``none`` for those that only describe."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One line of the catalogue.

    Attributes:
        pattern: the name, with the placeholders that the module's docstring explains; ``<name>`` is any word.
        meaning: one line, without the split.
        unit: ``ratio``, ``nats``, ``share`` (0 to 1), ``tokens``, ``per rollout``, ``seconds``, …
        bad: the change that is bad news for all tokens taken together.
    """

    pattern: str
    meaning: str
    unit: str
    bad: Change


@dataclass(frozen=True, slots=True)
class Name:
    """A name that the catalogue knows.

    Attributes:
        sign, kind: the split, None where unsplit. ``turn``: from 1; :data:`LAST_TURN` is that turn and all later ones.
    """

    name: str
    metric: Metric
    sign: str | None = None
    kind: str | None = None
    turn: int | None = None

    @property
    def bad(self) -> Change:
        """The change that is bad news for this split.

        Training means to raise the ratios of positive tokens and to lower those of negative ones. So the upper tail of
        the positive and the lower tail of the negative ones only describe; the two other tails are the drift.
        """
        stat = self.name.rsplit("/", 1)[-1]
        wanted = (self.sign == "pos" and stat in _UPPER) or (self.sign == "neg" and stat in _LOWER)
        return "none" if wanted else self.metric.bad

    @property
    def where(self) -> str:
        """The split in words, as in ``query tokens of positive advantage``; empty where unsplit."""
        if self.sign is None and self.kind is None:
            return ""
        what = "rollouts" if self.name.startswith(("sequence/", "likelihood/")) else "tokens"
        words = [f"{self.kind} {what}" if self.kind else what]
        if self.sign:
            words.append(f"of {'positive' if self.sign == 'pos' else 'negative'} advantage")
        if self.turn:
            words.append(f"in turn {self.turn}{' or later' if self.turn == LAST_TURN else ''}")
        return " ".join(words)

    @property
    def text(self) -> str:
        """What this number is, in one line."""
        return f"{self.metric.meaning}; {self.where}" if self.where else self.metric.meaning


_LOWER = frozenset({"q01", "q05", "min", "below_0.5", "below_0.8"})
_UPPER = frozenset({"q95", "q99", "max", "above_2"})

CATALOGUE: tuple[Metric, ...] = (
    Metric("step", "number of the rollout batch, from 1", "count", "none"),
    # Outcome
    Metric("reward", "mean reward", "reward", "down"),
    Metric("em", "share of answers that match a golden answer exactly", "share", "down"),
    Metric("f1", "mean token F1 of the answers", "share", "down"),
    Metric("cover_em", "share of answers that contain a golden answer", "share", "down"),
    Metric("dev/em", "exact match on the dev questions", "share", "down"),
    Metric("dev/f1", "F1 on the dev questions", "share", "down"),
    # Behaviour
    Metric("format", "share of well-formed rollouts; the rest have a broken format", "share", "down"),
    Metric("share/answered", "share of rollouts that ended with an answer", "share", "down"),
    Metric("share/<status>", "share of rollouts that ended so; no_answer is answer avoidance", "share", "up"),
    Metric("searches", "searches", "per rollout", "either"),
    Metric("repeated_queries", "searches whose query the same rollout had asked before", "per rollout", "up"),
    Metric("degenerate", "share of rollouts with a turn that mostly repeats itself", "share", "up"),
    Metric("turns", "policy turns", "per rollout", "either"),
    Metric("policy_tokens", "sampled tokens", "per rollout", "either"),
    Metric("tokens", "all tokens, prompt and passages included", "per rollout", "either"),
    Metric("events/<name>", "events of this name that the rollout counted", "per rollout", "up"),
    # Signal
    Metric("groups", "groups in the batch", "count", "none"),
    Metric("zero_variance_groups", "groups whose rewards are all equal, so that nothing is learnt", "count", "up"),
    Metric("masked_rollouts", "sound rollouts that the objective left out of the step", "count", "none"),
    Metric("replaced_rollouts", "rollouts in whose place the step has a copy of another group's", "count", "none"),
    Metric("advantage/<sign>_mean", "mean size of the advantages of this sign, before reshapes", "advantage", "none"),
    Metric("advantage/<sign>_max", "largest size of an advantage of this sign, before reshapes", "advantage", "none"),
    Metric("advantage/pos_mass", "sum of positive advantages over tokens / all tokens", "advantage", "down"),
    Metric("advantage/neg_mass", "size of the sum of negative advantages over tokens / all tokens", "advantage", "up"),
    Metric("calibadv/score", "mean c: share of a search's documents that are silver", "share", "down"),
    Metric("calibadv/softened", "searches that lost some of a penalty, as a share of all", "share", "none"),
    Metric("calibadv/penalty", "mean share of its penalty that a search of a wrong rollout keeps", "share", "none"),
    Metric("calibadv/silver", "silver documents, in groups that have any", "per group", "none"),
    Metric("calibadv/without_silver", "groups without silver documents, as no rollout is correct", "share", "up"),
    Metric("calibadv/ratio", "mean factor of the rebalance at lambda = 1", "ratio", "up"),
    Metric("calibadv/<sign>_before", "sum over tokens of advantages of this sign, before it", "advantage", "none"),
    Metric("calibadv/<sign>_after", "sum over tokens of advantages of this sign, after it", "advantage", "none"),
    Metric("sspo/capped", "weighed tokens whose weight is the cap, 1 + eps", "share", "none"),
    Metric("sspo/exempt", "weighed tokens whose weight is below 0.1", "share", "none"),
    Metric("sspo/weight", "mean weight of the weighed tokens", "ratio", "none"),
    Metric("sspo/unscored", "wrong rollouts that the teacher has not scored", "count", "up"),
    Metric("sspo/gain/q05", "5 % quantile of the teacher's gain", "nats", "none"),
    Metric("sspo/gain/q50", "median of the teacher's gain", "nats", "none"),
    Metric("sspo/gain/q95", "95 % quantile of the teacher's gain", "nats", "none"),
    Metric("sspo/gains/<name>", "weighed steps whose gain, in nats, lies in this bin", "share", "none"),
    Metric("sspo/steps", "weighed steps", "count", "none"),
    Metric("sspo/amplified", "weighed steps whose weight is above 1", "share", "none"),
    Metric("sspo/final_amplified", "last steps of weighed rollouts whose weight is above 1", "share", "none"),
    Metric("teacher/scored", "rollouts that the teacher has read", "count", "none"),
    Metric("teacher/without_anchors", "rollouts that it should have read, but whose question has none", "count", "up"),
    Metric("teacher/too_long", "rollouts too long for its context, which it has not read", "count", "up"),
    Metric("teacher/renewed", "1 where its weights were taken over from the policy", "count", "none"),
    # Self-distillation (schedule=search_e1)
    Metric("round", "round of the schedule, from 1", "count", "none"),
    Metric("distill/loss", "loss of an update, mean over its kept tokens, clipped where a clip is set", "nats", "none"),
    Metric("distill/kl", "exact KL(teacher ‖ student) at the kept tokens, whatever the loss is", "nats", "none"),
    Metric("distill/clipped", "teacher's probability on vocabulary terms that the clip cut off", "share", "up"),
    Metric("distill/gain", "teacher's log-prob of the token that stands there, less the student's", "nats", "none"),
    Metric("distill/tokens", "kept tokens of an update", "tokens", "none"),
    Metric("distill/grad_norm", "norm of an update's gradient before clipping", "norm", "none"),
    # Optimisation
    Metric("loss", "mean loss of the step's updates", "loss", "none"),
    Metric("term/<name>", "part of the loss that is this term's", "loss", "none"),
    Metric("kl", "estimated KL to the reference policy, per policy token", "nats", "up"),
    Metric("grad_norm", "norm of the last update's gradient before clipping", "norm", "either"),
    Metric("grad_norm_max", "largest of the norms of the step's updates", "norm", "up"),
    Metric("lr", "learning rate of the last update", "rate", "none"),
    Metric("dropped_tokens", "policy tokens left out because a log-prob was not finite", "tokens", "up"),
    Metric("skipped_updates", "updates not made because their gradient was not finite", "updates", "up"),
    Metric("entropy", "mean entropy of the policy at its tokens", "nats", "either"),
    Metric("entropy/<kind>", "mean entropy of the policy at tokens of this kind", "nats", "either"),
    Metric("likelihood/<sign>", "mean log-prob per token under the policy that rolled out", "nats", "down"),
    # Drift
    Metric("ratio/[<split>/]tokens", "tokens that the statistics of this split are made of", "tokens", "none"),
    Metric("ratio/[<split>/]mean", "mean probability ratio r to the policy that rolled out", "ratio", "either"),
    Metric("ratio/[<split>/]mean_log", "mean log r", "nats", "either"),
    Metric("ratio/[<split>/]exp_mean_log", "exp of mean log r, the geometric mean", "ratio", "either"),
    Metric("ratio/[<split>/]q01", "1 % quantile of r", "ratio", "down"),
    Metric("ratio/[<split>/]q05", "5 % quantile of r", "ratio", "down"),
    Metric("ratio/[<split>/]q50", "median of r", "ratio", "either"),
    Metric("ratio/[<split>/]q95", "95 % quantile of r", "ratio", "up"),
    Metric("ratio/[<split>/]q99", "99 % quantile of r", "ratio", "up"),
    Metric("ratio/[<split>/]min", "lowest r", "ratio", "down"),
    Metric("ratio/[<split>/]max", "highest r", "ratio", "up"),
    Metric("ratio/[<split>/]below_0.5", "share of tokens with r < 0.5", "share", "up"),
    Metric("ratio/[<split>/]below_0.8", "share of tokens with r < 0.8", "share", "up"),
    Metric("ratio/[<split>/]above_2", "share of tokens with r > 2", "share", "up"),
    Metric("ratio/[<split>/]clipped", "share of tokens whose gradient the clip has cut off", "share", "up"),
    Metric("ratio/ess", "effective sample size by r, as a share of the tokens", "share", "down"),
    Metric("ratio/noise", "root mean square log r before any weight moved: rounding alone", "nats", "up"),
    Metric("sequence/<sign>/mean", "mean of the rollouts' length-normalised ratios", "ratio", "either"),
    Metric("sequence/<sign>/min", "lowest length-normalised ratio of a rollout", "ratio", "down"),
    Metric("sequence/<sign>/q05", "5 % quantile of the rollouts' length-normalised ratios", "ratio", "down"),
    Metric("sequence/<sign>/below_0.9", "share of rollouts whose length-normalised ratio is below 0.9", "share", "up"),
    # Sampler (sampling.server)
    Metric("sampler/gap/mean", "mean size of the log-ratio between trainer and sampler", "nats", "up"),
    Metric("sampler/gap/max", "largest size of a log-ratio between trainer and sampler", "nats", "up"),
    Metric("sampler/weight", "mean importance weight of the tokens, after the cut", "ratio", "either"),
    Metric("sampler/cut", "share of tokens whose importance weight was cut", "share", "up"),
    Metric("sampler/unknown", "policy tokens without a log-prob of the sampler; their weight is 1", "tokens", "up"),
    # Time
    Metric("seconds/rollout", "wall clock of rollouts and rewards", "seconds", "none"),
    Metric("seconds/update", "wall clock of the updates, and of the passes before them", "seconds", "none"),
    Metric("seconds/teacher", "wall clock of the teacher's pass, a part of seconds/update", "seconds", "none"),
)  # fmt: skip
"""All patterns, in the order in which docs show them."""


def parse(name: str) -> Name | None:
    """A metric's place in the catalogue and its split, or None for a name that is not in it."""
    for metric, expression in _EXPRESSIONS:
        found = expression.fullmatch(name)
        if found:
            split = found.groupdict()
            turn = split.get("turn")
            return Name(
                name,
                metric,
                split.get("sign"),
                split.get("kind"),
                None if turn is None else int(turn.removeprefix("turn").removesuffix("+")),
            )
    return None


def is_known(name: str) -> bool:
    """Whether the catalogue has this name."""
    return parse(name) is not None


def describe(name: str) -> str | None:
    """What a metric is, in one line, or None for a name that is not in the catalogue."""
    known = parse(name)
    return None if known is None else known.text


def table() -> str:
    """The catalogue as a Markdown table; docs hold it word for word."""
    marks = {"up": "↑", "down": "↓", "either": "↕", "none": ""}
    rows = [f"| `{m.pattern}` | {m.meaning} | {m.unit} | {marks[m.bad]} |" for m in CATALOGUE]
    return "\n".join(["| name | is | unit | bad |", "|---|---|---|---|", *rows])


def _expression(pattern: str) -> re.Pattern[str]:
    sign, kind, turn = (
        f"(?P<{group}>{'|'.join(re.escape(x) for x in values)})"
        for group, values in (("sign", SIGNS), ("kind", KINDS), ("turn", TURNS))
    )
    meant = {
        "[<split>/]": f"(?:{sign}/(?:(?:{kind}|{turn})/)?)?",
        "<sign>": sign,
        "<kind>": kind,
        "<status>": f"(?:{'|'.join(Status)})",
        "<name>": r"[^/\s]+",
    }
    pieces = re.split("(" + "|".join(re.escape(placeholder) for placeholder in meant) + ")", pattern)
    return re.compile("".join(meant.get(piece, re.escape(piece)) for piece in pieces))


_EXPRESSIONS = tuple((metric, _expression(metric.pattern)) for metric in CATALOGUE)
