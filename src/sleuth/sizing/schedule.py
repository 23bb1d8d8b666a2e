"""One training step on many GPUs, played through: rollouts with their long tail, searches, the passes behind them.

On a sampling engine (vLLM) rollouts are played event by event: every turn goes at the speed that the batch of that time
allows, searches wait for the retriever's slots, and a rollout goes on when its passages are there. The trainer's own
sampler is played turn by turn: all rollouts of a process write a turn, then all search. What follows the rollouts is
arithmetic over the lengths that were drawn.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from sleuth.sizing.devices import Device, Shares
from sleuth.sizing.lengths import Lengths, PlannedRollout
from sleuth.sizing.shapes import Shape

_MACHINE = 8


@dataclass(frozen=True, slots=True)
class Work:
    """What a step does.

    Attributes:
        prompts, group: rollouts are their product. ``updates``: made of one batch.
        micro_batch: rollouts in a pass; None: all that a GPU has of an update.
        checkpointing: a pass computes its activations twice.
        reference, teacher: a further forward pass over every rollout.
        weights, compute: bytes a number of weights, and of passes.
    """

    prompts: int
    group: int
    updates: int = 1
    micro_batch: int | None = None
    checkpointing: bool = False
    reference: bool = False
    teacher: bool = False
    weights: int = 4
    compute: int = 2

    @property
    def rollouts(self) -> int:
        return self.prompts * self.group


@dataclass(frozen=True, slots=True)
class Searches:
    """The retriever.

    Attributes:
        seconds: of a search alone, on average; log-normal, ``spread`` is the deviation of the logarithm.
        slots: searches that it works on at once.
    """

    seconds: float = 0.15
    spread: float = 0.5
    slots: int = 256

    def draw(self, rng: random.Random) -> float:
        if not self.seconds:
            return 0.0
        return self.seconds * math.exp(rng.gauss(0, self.spread) - self.spread**2 / 2)


@dataclass(frozen=True, slots=True)
class Cluster:
    """The GPUs and how they are used.

    Attributes:
        gpus: in machines of 8.
        engine: that samples. ``parallel``: GPUs that hold one copy of it together.
        cache: bytes for keys and values on one GPU.
        sharded: weights, gradients and optimiser are spread over all GPUs; else each holds all.
    """

    gpus: int
    device: Device
    shares: Shares = field(default_factory=Shares)
    engine: Literal["vllm", "trainer"] = "vllm"
    parallel: int = 1
    cache: float = 20e9
    sharded: bool = True

    @property
    def replicas(self) -> int:
        return max(1, self.gpus // self.parallel)

    @property
    def wire(self) -> float:
        """Bytes a second that a GPU sends in a collective of all."""
        return (self.device.link if self.gpus <= _MACHINE else self.device.network) * self.shares.links


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Seconds of one step, and what was found on the way.

    Attributes:
        rollout: until the last rollout ends. ``score``: old log-probs, reference, teacher. ``update``: all updates.
        sync: new weights to the sampling engine.
        tail: share of the replicas' rollout time in which a replica had nothing left to do.
        searching: mean share of a rollout's time that it waited for passages.
        idle_ranks: share of the GPUs that have no rollout in an update.
        tokens: sampled and read by all rollouts together, prompts included.
    """

    rollout: float
    score: float
    update: float
    sync: float
    tail: float
    searching: float
    idle_ranks: float
    tokens: int

    @property
    def step(self) -> float:
        """One after the other, on the same GPUs."""
        return self.rollout + self.score + self.update + self.sync


def play(shape: Shape, work: Work, lengths: Lengths, searches: Searches, cluster: Cluster, seed: int = 0) -> StepTimes:
    """Play one step with everything on the same GPUs."""
    rng = random.Random(seed)
    rollouts = lengths.draw(work.rollouts, rng)
    engine = Engine(shape, cluster, 2 if cluster.engine == "vllm" else work.compute)
    sampled = engine.play(rollouts, lengths.prompt, work.group, searches, rng)
    return StepTimes(
        sampled.seconds,
        *_passes(shape, work, cluster, rollouts, lengths.prompt),
        tail=sampled.tail,
        searching=sampled.searching,
        idle_ranks=max(0.0, 1 - work.rollouts / work.updates / cluster.gpus),
        tokens=sum(_length(r, lengths.prompt) for r in rollouts),
    )


@dataclass(frozen=True, slots=True)
class Overlapped:
    """A step that samples the next batch while it trains the last one, on GPUs of their own; one batch off-policy.

    Attributes:
        sampling: GPUs that sample. ``step``: seconds.
    """

    sampling: int
    step: float


def overlapped(
    shape: Shape, work: Work, lengths: Lengths, searches: Searches, cluster: Cluster, seed: int = 0
) -> Overlapped | None:
    """The best split of the GPUs among eighths; None where they can't be split."""
    best = None
    for eighths in range(1, 8):
        sampling = cluster.gpus * eighths // 8 // cluster.parallel * cluster.parallel
        training = cluster.gpus - sampling
        if not sampling or not training:
            continue
        one = play(shape, work, lengths, searches, replace(cluster, gpus=sampling), seed)
        other = play(shape, work, lengths, searches, replace(cluster, gpus=training), seed)
        step = max(one.rollout, other.score + other.update) + one.sync
        if best is None or step < best.step:
            best = Overlapped(sampling, step)
    return best


# Rollouts ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Sampled:
    seconds: float
    tail: float
    searching: float


_Played = tuple[list[float], list[float], list[float]]
"""Ends of the replicas, seconds that rollouts waited for searches, seconds that rollouts lived."""


class Engine:
    """What samples.

    Args:
        size: bytes a number of its weights and cache.
    """

    def __init__(self, shape: Shape, cluster: Cluster, size: int):
        self.shape, self.cluster = shape, cluster
        device, shares = cluster.device, cluster.shares
        self._weights = shape.parameters * size
        self._a_token = shape.cache_bytes(size)
        self._bandwidth = device.bandwidth * shares.decoding * cluster.parallel
        self._flops = device.flops * shares.reading * cluster.parallel
        self._overhead = shares.decode_overhead

    def token_seconds(self, batch: int, context: float) -> float:
        """Of one more token for each of ``batch`` rollouts that hold ``context`` tokens together."""
        memory = (self._weights + context * self._a_token) / self._bandwidth
        arithmetic = self.shape.flops(batch, context / max(batch, 1)) / self._flops
        return max(memory, arithmetic) + self._overhead

    def reading_seconds(self, tokens: int, context: float) -> float:
        """Of a forward pass over known tokens."""
        return self.shape.flops(tokens, context, logits=1) / self._flops if tokens else 0.0

    def at_once(self, longest_mean: float) -> int:
        """Rollouts of that length whose keys and values fit."""
        return max(1, int(self.cluster.cache * self.cluster.parallel / (self._a_token * max(longest_mean, 1))))

    def play(
        self, rollouts: Sequence[PlannedRollout], prompt: int, group: int, searches: Searches, rng: random.Random
    ) -> _Sampled:
        """All rollouts, in groups dealt to the replicas in turn."""
        replicas = min(self.cluster.replicas, len(rollouts))
        parts: list[list[PlannedRollout]] = [[] for _ in range(replicas)]
        whole = len(rollouts) // group >= replicas
        for n, rollout in enumerate(rollouts):
            parts[(n // group if whole else n) % replicas].append(rollout)
        slots = [0.0] * searches.slots
        how = self._turn_by_turn if self.cluster.engine == "trainer" else self._event_by_event
        ends, waits, lives = how(parts, prompt, searches, slots, rng)
        last = max(ends)
        idle = sum(last - end for end in ends) + last * (self.cluster.replicas - replicas)
        return _Sampled(last, idle / (last * self.cluster.replicas), sum(waits) / max(sum(lives), 1e-12))

    def _turn_by_turn(
        self,
        parts: Sequence[Sequence[PlannedRollout]],
        prompt: int,
        searches: Searches,
        slots: list[float],
        rng: random.Random,
    ) -> _Played:
        """Every replica writes a turn of all its rollouts, then all of them search."""
        ends, waits = [0.0] * len(parts), [0.0]
        turns = [self._turns(part, prompt) for part in parts]
        events = [(*next(turn), n) for n, turn in enumerate(turns)]  # when, searches, replica
        heapq.heapify(events)
        while events:
            now, asking, n = heapq.heappop(events)
            ends[n] = answered = now
            for _ in range(asking):
                answered = max(answered, _search(slots, now, searches, rng))
            waits.append((answered - now) * asking)
            if asking:
                heapq.heappush(events, (*turns[n].send(answered), n))
        return ends, waits, [end * len(part) for end, part in zip(ends, parts, strict=True)]

    def _turns(self, rollouts: Sequence[PlannedRollout], prompt: int) -> Generator[tuple[float, int], float, None]:
        """Gives the time at which a turn is written and how many rollouts then search; is sent when these may go on."""
        contexts = [prompt] * len(rollouts)
        now = self.reading_seconds(prompt, prompt / 2)  # rollouts of a group share it; the rest is small
        alive = list(range(len(rollouts)))
        turn = 0
        while True:
            writing = sorted(alive, key=lambda i: rollouts[i][turn].sampled)
            written = 0
            for n, i in enumerate(writing):
                length = rollouts[i][turn].sampled
                if length > written:
                    context = sum(contexts[j] + (written + length) / 2 for j in writing[n:])
                    now += (length - written) * self.token_seconds(len(writing) - n, context)
                    written = length
            for i in alive:
                contexts[i] += rollouts[i][turn].sampled + rollouts[i][turn].read
            alive = [i for i in alive if turn + 1 < len(rollouts[i])]
            now = yield now, len(alive)
            read = sum(rollouts[i][turn].read for i in alive)
            now += self.reading_seconds(read, sum(contexts[i] for i in alive) / max(len(alive), 1))
            turn += 1

    def _event_by_event(
        self,
        parts: Sequence[Sequence[PlannedRollout]],
        prompt: int,
        searches: Searches,
        slots: list[float],
        rng: random.Random,
    ) -> _Played:
        """Every rollout goes on as soon as its passages are there."""
        mean = sum(_length(r, prompt) for part in parts for r in part) / sum(map(len, parts))
        replicas = [_Replica(self, part, prompt, self.at_once(mean)) for part in parts]
        events: list[tuple[float, int, int, int, int]] = []  # when, order, replica, rollout (-1: a turn's end), version
        order = 0
        waits: list[float] = []

        def push(when: float, replica: int, rollout: int) -> None:
            nonlocal order
            order += 1
            heapq.heappush(events, (when, order, replica, rollout, replicas[replica].version))

        for n, replica in enumerate(replicas):
            replica.admit(0.0)
            push(replica.next_end(), n, -1)
        while events:
            now, _, n, rollout, version = heapq.heappop(events)
            replica = replicas[n]
            if rollout >= 0:
                replica.passages_are_there(now, rollout)
            elif version != replica.version:
                continue
            else:
                asking = replica.turn_ends(now)
                if asking is not None:
                    back = _search(slots, now, searches, rng)
                    waits.append(back - now)
                    push(back, n, asking)
            if replica.writing:
                push(replica.next_end(), n, -1)
        return [r.end for r in replicas], waits, [life for r in replicas for life in r.lives]


class _Replica:
    """A copy of the engine. Its clock counts the tokens that each rollout in the batch has written since the start."""

    def __init__(self, engine: Engine, rollouts: Sequence[PlannedRollout], prompt: int, at_once: int):
        self.engine, self.rollouts, self.prompt = engine, rollouts, prompt
        self.free = at_once
        self.version = 0
        self.writing: list[tuple[float, int]] = []  # (clock at the turn's end, rollout)
        self.end = 0.0
        self.lives: list[float] = []
        self._clock, self._now, self._reading = 0.0, 0.0, 0.0
        self._context = 0.0
        self._started: dict[int, float] = {}
        self._turn = [0] * len(rollouts)
        self._next = 0

    def admit(self, now: float) -> None:
        """Begin as many rollouts as there is room for."""
        while self.free and self._next < len(self.rollouts):
            number = self._next
            self._next += 1
            self.free -= 1
            self._started[number] = now
            self._context += self.prompt
            self._reading += self.engine.reading_seconds(self.prompt, self.prompt / 2)
            self._write(number)

    def next_end(self) -> float:
        """When the next turn ends, if nothing changes."""
        left = self.writing[0][0] - self._clock
        return self._now + self._reading + left * self._token_seconds()

    def turn_ends(self, now: float) -> int | None:
        """Its rollout, if it searches."""
        self._go_to(now)
        clock, number = heapq.heappop(self.writing)
        self._clock = max(self._clock, clock)
        self.version += 1
        turns = self.rollouts[number]
        self._turn[number] += 1
        if self._turn[number] < len(turns):
            return number
        self._context -= _length(turns, self.prompt)
        self.lives.append(now - self._started[number])
        self.end = now
        self.free += 1
        self.admit(now)
        return None

    def passages_are_there(self, now: float, number: int) -> None:
        self._go_to(now)
        turn = self.rollouts[number][self._turn[number] - 1]
        self._context += turn.read
        self._reading += self.engine.reading_seconds(turn.read, self.prompt + turn.read)
        self._write(number)

    def _write(self, number: int) -> None:
        self.version += 1
        heapq.heappush(self.writing, (self._clock + self.rollouts[number][self._turn[number]].sampled, number))

    def _token_seconds(self) -> float:
        return self.engine.token_seconds(len(self.writing), self._context)

    def _go_to(self, now: float) -> None:
        passed = now - self._now
        read = min(passed, self._reading)
        self._reading -= read
        if self.writing:
            tokens = (passed - read) / self._token_seconds()
            self._clock += tokens
            self._context += tokens * len(self.writing)
        self._now = now


def _search(slots: list[float], now: float, searches: Searches, rng: random.Random) -> float:
    """When passages that are asked for now are there."""
    begin = max(now, slots[0])
    end = begin + searches.draw(rng)
    heapq.heapreplace(slots, end)
    return end


def _length(rollout: PlannedRollout, prompt: int) -> int:
    return prompt + sum(turn.sampled + turn.read for turn in rollout)


# What follows them ---------------------------------------------------------------------------------------------------


def _passes(
    shape: Shape, work: Work, cluster: Cluster, rollouts: Sequence[PlannedRollout], prompt: int
) -> tuple[float, float, float]:
    """Seconds of scoring, updates, and new weights for the engine."""
    device, shares, gpus = cluster.device, cluster.shares, cluster.gpus
    peak = device.flops * (2 / work.compute)
    per_update = work.rollouts // work.updates
    own = -(-per_update // gpus)
    micro = min(work.micro_batch or own, own)
    share = (gpus - 1) / gpus
    if cluster.sharded:
        # Weights are gathered for the forward and once more for the backward pass, gradients scattered after it.
        sent = share * shape.parameters * (2 * work.compute + work.weights) / cluster.wire
        gathered = share * shape.parameters * work.compute / cluster.wire
    else:
        sent = 2 * share * shape.parameters * work.weights / cluster.wire
        gathered = 0.0
    scores = (1 if work.updates > 1 else 0) + work.reference + work.teacher
    score = update = 0.0
    for start in range(0, work.rollouts, per_update):
        rows = sorted(rollouts[start : start + per_update], key=lambda r: _length(r, prompt), reverse=True)
        passes = [rows[first : first + micro * gpus] for first in range(0, len(rows), micro * gpus)]
        for n, together in enumerate(passes):
            longest = _length(together[0], prompt)
            most = -(-len(together) // gpus)  # rows of the fullest GPU; the pass is as wide as its longest row
            policy = sum(turn.sampled for r in together for turn in r) / len(together) * most
            forward = shape.flops(most * longest, longest / 2, logits=policy) / peak
            backward = forward * (4 if work.checkpointing else 3)
            # Sharded weights move in every pass, whole ones' gradients once an update; both while there is work to do.
            moving = sent if cluster.sharded or n == len(passes) - 1 else 0.0
            update += max(backward / shares.training, moving)
            score += scores * max(forward / shares.reading, gathered)
        update += 7 * work.weights * shape.parameters / (gpus if cluster.sharded else 1) / device.bandwidth
    sync = shape.parameters * 2 / cluster.wire if cluster.engine == "vllm" else gathered
    return score, update, sync
