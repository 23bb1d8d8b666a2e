"""Oracle demonstrations for real questions: someone who knows the supporting titles plays, but says only what was read.

A turn a supporting passage: a short thought, a query, the passages that the retriever really returned, a thought that
names what they say, and in the end the answer (:mod:`sleuth.training.oracle_player`). Where questions carry a
decomposition (MuSiQue, arXiv 2108.00573), its steps are the turns; otherwise the titles are (HotpotQA,
2WikiMultihopQA, Natural Questions). A question is given up where the retriever doesn't show what is needed.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sleuth.agent.episode import Limits
from sleuth.agent.protocol import AgentProtocol
from sleuth.errors import UserError
from sleuth.seeds import derive_seed
from sleuth.training.evidence import Words
from sleuth.training.oracle_player import OraclePlayer
from sleuth.training.playback import play
from sleuth.types import Question, Retriever, SearchRequest, SpanKind, Status, Trajectory

if TYPE_CHECKING:
    from sleuth.assembly import Parts

_log = logging.getLogger(__name__)

_AT_ONCE = 256  # questions played side by side: one retriever call a turn for all of them


@dataclass(slots=True)
class OraclePlay:
    """What became of the questions.

    Attributes:
        kept: the demonstrations.
        dropped: how many plays of each ``data_source`` were given up, by reason.
    """

    kept: list[Trajectory] = field(default_factory=list)
    dropped: Counter[tuple[str, str]] = field(default_factory=Counter)


def oracle_demonstrations(parts: Parts, count: int, seed: int) -> list[Trajectory]:
    """Up to ``count`` demonstrations for the training questions; see :func:`play_oracle`.

    Raises:
        UserError: no question has supporting titles or a decomposition, or the retriever failed.
    """
    played = play_oracle(parts.train, count, seed, parts.retriever, parts.protocol, parts.limits)
    for source, n in sorted(Counter(t.data_source for t in played.kept).items()):
        _log.info("oracle: %d demonstrations kept of %s", n, source or "unnamed source")
    for (source, reason), n in sorted(played.dropped.items()):
        _log.info("oracle: %d dropped of %s: %s", n, source or "unnamed source", reason)
    return played.kept


def play_oracle(
    questions: Sequence[Question],
    count: int,
    seed: int,
    retriever: Retriever,
    protocol: AgentProtocol,
    limits: Limits,
) -> OraclePlay:
    """Play questions until ``count`` demonstrations are kept, each question once before any is played again.

    The data sources take turns, so that a small multi-hop set isn't lost beside a large single-hop one; a question that
    is played again gets other words. Rows without supporting titles are passed over.

    Returns:
        Fewer than ``count`` only when no question gives any demonstration. Ids are ``{question id}-{round}``.

    Raises:
        UserError: nothing to play, or the retriever failed.
    """
    playable = [q for q in questions if q.supporting_titles or q.extra.get("decomposition")]
    if not playable:
        raise UserError(
            "oracle demonstrations need training questions with supporting_titles or decomposition; none has"
        )
    out = OraclePlay()
    for lap in range(count):
        order = _in_turns(playable, random.Random(derive_seed("oracle order", seed, lap)))
        kept_before = len(out.kept)
        for start in range(0, len(order), _AT_ONCE):
            for trajectory in _play(order[start : start + _AT_ONCE], lap, seed, retriever, protocol, limits, out):
                out.kept.append(trajectory)
                if len(out.kept) == count:
                    return out
        if len(out.kept) == kept_before:
            break
    return out


def _in_turns(questions: Sequence[Question], rng: random.Random) -> list[Question]:
    """Shuffled, one of each data source after the other for as long as it has any."""
    by_source: dict[str, list[Question]] = {}
    for question in rng.sample(questions, len(questions)):
        by_source.setdefault(question.data_source, []).append(question)
    rounds = max(map(len, by_source.values()))
    return [rows[n] for n in range(rounds) for rows in by_source.values() if n < len(rows)]


def _play(
    questions: Sequence[Question],
    lap: int,
    seed: int,
    retriever: Retriever,
    protocol: AgentProtocol,
    limits: Limits,
    out: OraclePlay,
) -> list[Trajectory]:
    oracles = [
        OraclePlayer(q, protocol, limits, random.Random(derive_seed("oracle", seed, lap, q.id))) for q in questions
    ]
    live = [oracle for oracle in oracles if oracle.proceed()]
    while live:
        results = retriever.search([SearchRequest(o.query, o.question.corpus) for o in live], limits.k)
        for oracle, result in zip(live, results, strict=True):
            if result.failed:
                raise UserError(f"question {oracle.question.id}: the retriever failed: {result.error}")
        live = [o for o, result in zip(live, results, strict=True) if o.proceed(result.documents)]
    kept = []
    for oracle in oracles:
        trajectory = None
        if oracle.dropped is None:
            q = oracle.question
            trajectory = play(q, oracle.turns, oracle.results, protocol, limits, id=f"{q.id}-{lap}")
            oracle.dropped = _fault(trajectory, oracle.evidence)
        if oracle.dropped is not None:
            out.dropped[oracle.question.data_source, oracle.dropped] += 1
        elif trajectory is not None:
            kept.append(trajectory)
    return kept


def _fault(trajectory: Trajectory, evidence: Sequence[str]) -> str | None:
    """What keeps a played demonstration from being one: the limits cut a turn, or what it relies on."""
    if trajectory.status is not Status.ANSWERED or not trajectory.format_valid:
        return "does not fit the limits"
    shown = Words.of("\n".join(s.text for s in trajectory.spans if s.kind is SpanKind.OBSERVATION))
    return None if all(phrase in shown for phrase in evidence) else "does not fit the limits"
