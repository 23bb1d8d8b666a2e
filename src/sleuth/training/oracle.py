"""Oracle demonstrations for real questions: someone who knows the supporting titles plays, but says only what was read.

A turn a supporting passage: a short thought, a query, the passages that the retriever really returned, a thought that
names what they say, and in the end the answer. The oracle knows where to look and when to stop; it never uses what an
agent could not have known. A title goes into a query only once the question or a passage has named it, a passage counts
only if it is among the hits and says what was sought, and an answer is given only if the passages shown support it.
Where questions carry a decomposition (MuSiQue, arXiv 2108.00573), its steps are the turns; otherwise the titles are
(HotpotQA, 2WikiMultihopQA, Natural Questions).
"""

from __future__ import annotations

import logging
import random
import re
from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sleuth.agent.episode import Limits
from sleuth.agent.protocol import AgentProtocol
from sleuth.errors import UserError
from sleuth.seeds import derive_seed
from sleuth.training.demonstrations import play
from sleuth.training.evidence import Words, content_words, definition, named, quote
from sleuth.types import Action, ActionType, Document, Question, Retriever, SearchRequest, SpanKind, Status, Trajectory

if TYPE_CHECKING:
    from sleuth.assembly import Parts

_log = logging.getLogger(__name__)

QUERY_WORDS = 10
ANSWER_WORDS = 10
"""Longer answers are dropped: a small model has to learn to answer in few words."""

_AT_ONCE = 256  # questions played side by side: one retriever call a turn for all of them

NAMED_THOUGHTS = ("I should look up {x}.", "First I look up {x}.", "I need to find {x} first.", "Let me search for {x}.")
COMPARE_THOUGHTS = ("I compare {x} and {y}. First {x}.", "I need both {x} and {y}. I start with {x}.")
OPEN_THOUGHTS = ("I need to look this up.", "I should search for this.", "Let me search for this first.")
RELATION_THOUGHTS = ("I need the {r} of {x}.", "First I need the {r} of {x}.", "Let me find the {r} of {x}.")
STEP_THOUGHTS = ("I need to know {q}.", "Let me find out {q}.", "I should find out {q}.")
NEXT_THOUGHTS = ("{f} Next I look up {x}.", "{f} Now I need {x}.", "{f} So I search for {x}.")
MISSED_THOUGHTS = ("These passages do not help. I try other words.", "It is not here. I search again.")
FOUND = ("{t}: {f}.", "The passage on {t} says: {f}.", "{t} says {f}.")


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
    oracles = [_Oracle(q, protocol, limits, random.Random(derive_seed("oracle", seed, lap, q.id))) for q in questions]
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


class _Dropped(Exception):
    """This question can't be demonstrated; the message says why."""


@dataclass(slots=True)
class _Passage:
    """A hit, as the policy gets to see it."""

    document: Document
    text: Words


class _Oracle:
    """Plays one question: ``proceed`` with what the last search returned, until it returns False.

    Attributes:
        turns, results: the policy's turns and what each search returned.
        evidence: what the passages must show for the turns to be justified.
        dropped: why there is no demonstration; None: there is one, or it is still being played.
    """

    def __init__(self, question: Question, protocol: AgentProtocol, limits: Limits, rng: random.Random):
        self.question = question
        self.turns: list[str] = []
        self.results: list[list[Document]] = []
        self.evidence: list[str] = []
        self.query = ""
        self.dropped: str | None = None
        self._protocol, self._rng = protocol, rng
        by_turns = limits.max_turns - 1
        self._searches = by_turns if limits.max_searches is None else min(by_turns, limits.max_searches)
        self._forced = limits.force_answer
        self._k = limits.k
        self._asked = Words.of(question.question)
        self._seen: list[_Passage] = []
        self._thought = ""
        decomposition = question.extra.get("decomposition")
        self._script = self._follow(_steps(decomposition)) if decomposition else self._visit()

    def proceed(self, documents: Sequence[Document] | None = None) -> bool:
        """Take the next turn; True while it is a search."""
        try:
            self._script.send(None if documents is None else list(documents))
        except StopIteration:
            return False
        except _Dropped as reason:
            self.dropped = str(reason)
            return False
        return True

    # Two scripts: coroutines that yield at each search and are sent its documents.

    def _follow(self, steps: list[dict[str, str]]) -> Generator[None, list[Document], None]:
        """The steps of a decomposition, each with the answers of earlier ones filled in."""
        answers: list[str] = []
        passage = None
        for n, step in enumerate(steps):
            asked = re.sub(r"#(\d+)", lambda m: _earlier(answers, int(m.group(1))), step["question"])
            subject, _, relation = (part.strip() for part in asked.rstrip(" ?").partition(">>"))
            topic = f"the {relation} of {subject}" if relation else _question_clause(subject)
            if n == 0 or passage is None:
                thoughts = RELATION_THOUGHTS if relation else STEP_THOUGHTS
                self._think(thoughts, r=relation, x=subject, q=topic)
            else:
                self._think(NEXT_THOUGHTS, f=self._found(passage, answers[-1]), x=topic)
            keywords = " ".join(content_words(f"{subject} {relation}"))
            queries = [keywords, f"{relation} of {subject}" if relation else subject]
            if form := named(step["title"], [self._asked, *(p.text for p in self._seen)]):
                queries.append(self._with_words(form, content_words(f"{subject} {relation}", [form])))
            last = n == len(steps) - 1
            sought = self.question.golden_answers if last else [step["answer"]]
            passage = yield from self._find(step["title"], sought, queries)
            answers.append(_short(next(a for a in sought if a in passage.text)))
            self.evidence.append(answers[-1])
        assert passage is not None
        self._answer(answers[-1], self._found(passage, answers[-1]))

    def _visit(self) -> Generator[None, list[Document], None]:
        """The supporting titles, those first that the question names: who knows one learns the next from its passage."""
        titles = list(dict.fromkeys(self.question.supporting_titles))
        places = {t: self._asked.find(form) for t in titles if (form := named(t, [self._asked]))}
        compares = len(places) > 1
        titles.sort(key=lambda t: (t not in places, places.get(t) or 0))
        if compares:
            x, y = (named(t, [self._asked]) or t for t in titles[:2])
            self._think(COMPARE_THOUGHTS, x=x, y=y)
        elif places:
            self._think(NAMED_THOUGHTS, x=named(titles[0], [self._asked]))
        else:
            self._think(OPEN_THOUGHTS)
        found: list[_Passage] = []
        while titles:
            known = [self._asked, *(p.text for p in found)]
            title = next((t for t in titles if named(t, known)), titles[0])
            titles.remove(title)
            passage = self._among_seen(title, None)
            if passage is None:
                form = named(title, known)
                if found:
                    self._think(NEXT_THOUGHTS, f=self._learned(found[-1], form), x=form or "another passage")
                passage = yield from self._find(title, None, self._queries(form))
            found.append(passage)
        self._conclude(found, compares)

    def _conclude(self, found: list[_Passage], compares: bool) -> None:
        golden = self.question.golden_answers
        if compares and any(a.strip().casefold() in ("yes", "no") for a in golden):
            answer, last = golden[0], found[-1]
            facts = [f"{p.document.title}: {definition(p.text)}." for p in found[:2] if definition(p.text)]
            self._answer(answer, " ".join(facts) or self._learned(last, None))
            return
        for passage in reversed(found):
            stated = [a for a in golden if a in passage.text]
            if stated:
                answer = next((a for a in stated if len(Words.of(a).words) <= ANSWER_WORDS), stated[0])
                self.evidence.append(_short(answer))
                self._answer(answer, self._found(passage, answer))
                return
        raise _Dropped("no supporting passage states the answer")

    # Searching

    def _find(
        self, title: str, sought: Sequence[str] | None, queries: Sequence[str]
    ) -> Generator[None, list[Document], _Passage]:
        """Search for the passage, once more in other words after a miss.

        Args:
            sought: the passage must state one of these; None: it is enough that it is the supporting one.
        """
        phrasings = list(dict.fromkeys(q for q in queries if q))
        self._rng.shuffle(phrasings)
        for query in phrasings[:2]:
            if len(self.results) == self._searches:
                raise _Dropped("needs more searches than allowed")
            self.query = " ".join(query.split()[:QUERY_WORDS])
            self._say(Action(ActionType.SEARCH, query=self.query))
            documents = yield
            self.results.append(documents)
            self._seen += [self._passage(d) for d in documents[: self._k]]
            if passage := self._among_seen(title, sought):
                return passage
            self._think(MISSED_THOUGHTS)
        raise _Dropped("a supporting passage is not among the hits")

    def _among_seen(self, title: str, sought: Sequence[str] | None) -> _Passage | None:
        ids = self.question.extra.get("supporting_ids")
        for passage in self._seen:
            if Words.of(passage.document.title).words != Words.of(title).words:
                continue
            if sought is None and (not ids or passage.document.id in map(str, ids)):
                return passage
            if sought is not None and any(s in passage.text for s in sought):
                return passage
        return None

    def _passage(self, document: Document) -> _Passage:
        return _Passage(document, Words.of(self._protocol.observation([document], False).body))

    def _queries(self, form: str | None) -> list[str]:
        question = self.question.question.rstrip(" ?")
        if form is None:
            return [" ".join(content_words(question)), question]
        others = [f for t in self.question.supporting_titles if (f := named(t, [self._asked]))]
        words = content_words(question, [form, *others])
        return [self._with_words(form, words), self._with_words(form, words[-3:]), form]

    def _with_words(self, form: str, words: Sequence[str]) -> str:
        return " ".join([form, *words[: max(QUERY_WORDS - len(form.split()), 1)]])

    # Speaking

    def _found(self, passage: _Passage, phrase: str) -> str:
        said = quote(passage.text, phrase) or phrase
        return self._rng.choice(FOUND).format(t=passage.document.title, f=said.strip(" ,.:;"))

    def _learned(self, passage: _Passage, phrase: str | None) -> str:
        if phrase is not None and phrase in passage.text:
            return self._found(passage, phrase)
        said = definition(passage.text)
        return f"{passage.document.title}: {said}." if said else f"I found {passage.document.title}."

    def _think(self, thoughts: Sequence[str], **words: Any) -> None:
        self._thought = self._rng.choice(thoughts).format(**words)

    def _say(self, action: Action) -> None:
        self.turns.append(self._protocol.write_turn(self._thought, action))

    def _answer(self, answer: str, thought: str) -> None:
        if len(Words.of(answer).words) > ANSWER_WORDS:
            raise _Dropped("the answer is long")
        # Where the environment opens the answer there is no thought before it.
        forced = self._forced and len(self.results) == self._searches
        self._thought = "" if forced else thought
        self._say(Action(ActionType.ANSWER, text=answer))


def _steps(decomposition: Any) -> list[dict[str, str]]:
    if not isinstance(decomposition, list) or not all(isinstance(step, dict) for step in decomposition):
        raise UserError('"decomposition" must be a list of {"question", "answer", "title"}')
    for step in decomposition:
        for name in ("question", "answer", "title"):
            if not isinstance(step.get(name), str):
                raise UserError(f'a step of "decomposition" has no "{name}": {step}')
    return decomposition


def _earlier(answers: Sequence[str], number: int) -> str:
    if not 1 <= number <= len(answers):
        raise _Dropped("the decomposition refers to a later step")
    return answers[number - 1]


def _question_clause(question: str) -> str:
    """A question as the end of a sentence: its first word in lower case."""
    return question[:1].lower() + question[1:]
