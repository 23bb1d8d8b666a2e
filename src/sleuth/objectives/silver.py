"""Silver documents: which searches of a group were good, told by what its correct rollouts found.

The scoring half of CalibAdv (arXiv 2604.18235); what the scores do to advantages is :mod:`sleuth.objectives.calibadv`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from sleuth.errors import UserError
from sleuth.objectives.parameters import CalibAdv
from sleuth.types import PartKind, Trajectory


@dataclass(slots=True)
class Searches:
    """What CalibAdv reads of one rollout.

    Attributes:
        documents: for each turn but the last, the ids of the documents shown after it, in order.
        thoughts: for each of those turns its thought, for the repetition rule; empty where there is none.
        reward: the rollout's; NaN where it has none.
        well_formed: its format is valid and it searched at all.
        valid: False for failed rollouts, which are no part of their group.
    """

    documents: list[list[Hashable]]
    thoughts: list[str]
    reward: float
    well_formed: bool = True
    valid: bool = True

    @classmethod
    def of(cls, trajectory: Trajectory, parameters: CalibAdv) -> Searches:
        """Of a trajectory. The last turn that has tokens is the answer, whatever it contains.

        Raises:
            UserError: thoughts are to be compared, but those of this well-formed rollout stand in other tags.
        """
        turns = trajectory.turns
        while turns and not turns[-1].policy.ids:
            turns.pop()
        steps = turns[:-1]
        well_formed = trajectory.format_valid and any(turn.observation for turn in steps)
        thoughts = [""] * len(steps)
        if parameters.max_similarity is not None:
            thoughts = [_thought(turn.policy.text, parameters.think) for turn in steps]
            thinks = [any(part.kind is PartKind.THINK for part in turn.policy.parts) for turn in steps]
            if well_formed and any(thinks) and not any(f"</{parameters.think}>" in t.policy.text for t in steps):
                raise UserError(
                    f"calibadv: rollout {trajectory.id!r} thinks, but not between <{parameters.think}> and "
                    f"</{parameters.think}>; set calibadv.think to its tag, or calibadv.max_similarity=null"
                )
        return cls(
            documents=[[d.id for d in turn.observation.documents] if turn.observation else [] for turn in steps],
            thoughts=thoughts,
            reward=float("nan") if trajectory.reward is None else trajectory.reward,
            well_formed=well_formed,
            valid=not trajectory.failed,
        )


def silver_documents(rollouts: Sequence[Searches], parameters: CalibAdv) -> set[Hashable]:
    """The documents that the correct rollouts of this group found, over all their searches; empty if none is correct.

    Correct is well-formed with a reward of at least ``threshold``; with ``silver="best"`` only those of them that have
    the highest reward contribute. The order of the rollouts doesn't matter.
    """
    correct = [r for r in rollouts if r.valid and r.well_formed and r.reward >= parameters.threshold]
    if parameters.silver == "best" and correct:
        best = max(r.reward for r in correct)
        correct = [r for r in correct if r.reward == best]
    return {document for r in correct for documents in r.documents for document in documents}


def search_scores(searches: Searches, silver: set[Hashable], parameters: CalibAdv) -> list[float]:
    """c of each search of a rollout: the share, from 0 to 1, of its documents that are silver.

    With ``novelty``, only documents that the rollout sees for the first time count. The repetition rules set a search
    to 0 whose thought is too much alike to that of an earlier one (``max_similarity``, over words), or that shares too
    many documents with one (``max_shared``). A search that found nothing scores 0.
    """
    scores: list[float] = []
    words = [thought.split() for thought in searches.thoughts]
    seen: set[Hashable] = set()
    for s, documents in enumerate(searches.documents):
        distinct = set(documents)
        if parameters.novelty:
            hits, shown = len((distinct & silver) - seen), len(documents)
        else:
            hits, shown = len(distinct & silver), len(distinct)
        seen |= distinct
        if hits and _repeats(s, searches.documents, words, parameters):
            hits = 0
        scores.append(hits / shown if hits else 0.0)
    return scores


def _repeats(s: int, documents: Sequence[Sequence[Hashable]], words: Sequence[list[str]], parameters: CalibAdv) -> bool:
    limit = parameters.max_shared
    if limit is not None and any(len(set(documents[s]) & set(earlier)) > limit for earlier in documents[:s]):
        return True
    bound = parameters.max_similarity
    return bound is not None and any(similarity(words[s], earlier) > bound for earlier in words[:s])


def similarity(a: Sequence[str], b: Sequence[str]) -> float:
    """1 - (edit distance / longer length), over words; 0 where either is empty."""
    if not a or not b:
        return 0.0
    return 1 - edit_distance(a, b) / max(len(a), len(b))


def edit_distance(a: Sequence[Hashable], b: Sequence[Hashable]) -> int:
    """Levenshtein's distance: the fewest insertions, deletions and substitutions that make ``a`` into ``b``.

    Bit-parallel (Myers 1999, as simplified by Hyyrö 2003): a column of the table is two integers, whose bits say where
    it steps up and where down, so that thoughts of hundreds of words take well under a millisecond.
    """
    if not a:
        return len(b)
    places: dict[Hashable, int] = {}
    for i, item in enumerate(a):
        places[item] = places.get(item, 0) | 1 << i
    every, last = (1 << len(a)) - 1, 1 << (len(a) - 1)
    up, down, distance = every, 0, len(a)
    for item in b:
        equal = places.get(item, 0)
        diagonal = (((equal & up) + up) ^ up) | equal | down
        right_up = down | ~(diagonal | up) & every
        right_down = up & diagonal
        distance += bool(right_up & last) - bool(right_down & last)
        right_up = right_up << 1 | 1
        up = (right_down << 1 | ~(diagonal | right_up)) & every
        down = right_up & diagonal & every
    return distance


def _thought(text: str, tag: str) -> str:
    """What a turn's own text holds up to the closing tag; the opening one may have been given instead of sampled."""
    thought, _, _ = text.rpartition(f"</{tag}>")
    return thought.replace(f"<{tag}>", " ").replace(f"</{tag}>", " ")
