"""How long rollouts are: drawn from a stated long-tailed model, or from rollouts that were made."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sleuth.types import SpanKind, Trajectory


@dataclass(frozen=True, slots=True)
class PlannedTurn:
    """Attributes: ``sampled``: tokens that the policy writes. ``read``: tokens of what comes back; 0 at the end."""

    sampled: int
    read: int


PlannedRollout = Sequence[PlannedTurn]


@dataclass(frozen=True, slots=True)
class LengthModel:
    """Turns drawn independently: a geometric number of searches, log-normal turns, observations of one length.

    Attributes:
        prompt: tokens before the first turn.
        searches: their mean number, before the limits cut it.
        turn: mean tokens of a turn. ``spread``: standard deviation of its logarithm; half of the variance is a
            rollout's own, so that long turns come together.
        observation: tokens of a search's passages.
        max_searches, max_turn, max_tokens: the limits of a recipe.
    """

    prompt: int = 200
    searches: float = 2.0
    turn: float = 120.0
    spread: float = 0.8
    observation: int = 450
    max_searches: int = 4
    max_turn: int = 500
    max_tokens: int = 4096

    def draw(self, rollouts: int, rng: random.Random) -> list[list[PlannedTurn]]:
        """So many rollouts."""
        more = self.searches / (1 + self.searches)
        part = self.spread / math.sqrt(2)
        drawn = []
        for _ in range(rollouts):
            own = rng.gauss(0, part)
            left, turns = self.max_tokens, []
            searches = 0
            while searches < self.max_searches and rng.random() < more:
                searches += 1
            for n in range(searches + 1):
                length = self.turn * math.exp(own + rng.gauss(0, part) - self.spread**2 / 2)
                sampled = max(1, min(round(length), self.max_turn, left))
                left -= sampled
                read = min(self.observation, left) if n < searches else 0
                left -= read
                turns.append(PlannedTurn(sampled, read))
                if left <= 0:
                    break
            drawn.append(turns)
        return drawn


@dataclass(frozen=True, slots=True)
class MeasuredLengths:
    """Rollouts drawn, with replacement, from some that were made; ``prompt``: their prompts' mean length."""

    prompt: int
    rollouts: Sequence[PlannedRollout]

    @classmethod
    def of(cls, trajectories: Iterable[Trajectory]) -> MeasuredLengths:
        """Raises ValueError without a trajectory that has a policy token."""
        prompts, rollouts = [], []
        for t in trajectories:
            turns: list[list[int]] = []
            for span in t.spans[1:]:
                if span.kind is SpanKind.POLICY:
                    turns.append([len(span.ids), 0])
                elif turns:
                    turns[-1][1] += len(span.ids)
            if turns:
                prompts.append(len(t.prompt_ids))
                rollouts.append([PlannedTurn(*turn) for turn in turns])
        if not rollouts:
            raise ValueError("no rollout with a policy token")
        return cls(round(sum(prompts) / len(prompts)), rollouts)

    def draw(self, rollouts: int, rng: random.Random) -> list[PlannedRollout]:
        """So many rollouts."""
        return [self.rollouts[rng.randrange(len(self.rollouts))] for _ in range(rollouts)]


Lengths = LengthModel | MeasuredLengths
