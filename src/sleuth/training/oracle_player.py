"""The oracle at one question: thoughts, queries and the answer, turn by turn.

It knows where to look and when to stop, and says only what was read: a title goes into a query once the question or a
passage has named it, a passage counts if it is among the hits and says what was sought, and an answer is given if the
passages shown support it.
"""

from __future__ import annotations

import random
import re
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

from sleuth.agent.episode import Limits
from sleuth.agent.protocol import AgentProtocol
from sleuth.errors import UserError
from sleuth.training.evidence import Words, content_words, definition, first_year, named, quote, title_forms
from sleuth.types import Action, ActionType, Document, Question

QUERY_WORDS = 10
ANSWER_WORDS = 10
"""Longer answers are dropped: a small model has to learn to answer in few words."""

EARLIER = frozenset({"first", "earlier", "older", "before", "oldest", "earliest"})
LATER = frozenset({"later", "younger", "last", "latest", "youngest", "recently", "second"})

NAMED_THOUGHTS = (
    "I should look up {x}.",
    "First I look up {x}.",
    "I need to find {x} first.",
    "Let me search for {x}.",
)
COMPARE_THOUGHTS = ("I compare {x} and {y}. First {x}.", "I need both {x} and {y}. I start with {x}.")
OPEN_THOUGHTS = ("I need to look this up.", "I should search for this.", "Let me search for this first.")
RELATION_THOUGHTS = ("I need the {r} of {x}.", "First I need the {r} of {x}.", "Let me find the {r} of {x}.")
STEP_THOUGHTS = ("I need to know {q}.", "Let me find out {q}.", "I should find out {q}.")
NEXT_THOUGHTS = ("{f} Next I look up {x}.", "{f} Now I need {x}.", "{f} So I search for {x}.")
OPEN_NEXT_THOUGHTS = ("{f} I search for the rest.", "{f} That is not all. I search again.")
MISSED_THOUGHTS = ("These passages do not help. I try other words.", "It is not here. I search again.")
FOUND = ("{t}: {f}.", "The passage on {t} says: {f}.", "{t} says {f}.")


class _Dropped(Exception):
    """This question can't be demonstrated; the message says why."""


@dataclass(slots=True)
class _Passage:
    """A hit, as the policy gets to see it."""

    document: Document
    text: Words


class OraclePlayer:
    """Plays one question: ``proceed`` with what the last search returned, until it returns False.

    Attributes:
        query: of the last turn.
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
        self._asked_before: set[str] = set()
        self._thought = ""
        decomposition = question.extra.get("decomposition")
        self._script = self._follow(_steps(decomposition)) if decomposition else self._visit()

    def proceed(self, documents: Sequence[Document] | None = None) -> bool:
        """Take the next turn; True while it is a search."""
        try:
            if documents is None:
                next(self._script)
            else:
                self._script.send(list(documents))
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
            answers.append(_stated(sought, passage.text))
            self.evidence.append(answers[-1])
        assert passage is not None
        self._answer(answers[-1], self._found(passage, answers[-1]))

    def _visit(self) -> Generator[None, list[Document], None]:
        """The supporting titles, those first that the question names: the passage on one may name the next."""
        titles = list(dict.fromkeys(self.question.supporting_titles))
        places = {t: self._asked.find(form)[0] for t in titles if (form := named(t, [self._asked]))}
        titles.sort(key=lambda t: (t not in places, places.get(t, 0)))
        compares = len(places) > 1 and self._chooses_between(titles)
        if compares:
            x, y = (named(t, [self._asked]) for t in titles[:2])
            self._think(COMPARE_THOUGHTS, x=x, y=y)
        elif places:
            self._think(NAMED_THOUGHTS, x=named(titles[0], [self._asked]))
        else:
            self._think(OPEN_THOUGHTS)
        found: list[_Passage] = []
        while titles:
            known = [self._asked, *(p.text for p in self._seen)]
            title = next((t for t in titles if named(t, known)), titles[0])
            titles.remove(title)
            passage = self._among_seen(title, None)
            if passage is None:
                form = named(title, known)
                if found:
                    thoughts = OPEN_NEXT_THOUGHTS if form is None else NEXT_THOUGHTS
                    self._think(thoughts, f=self._learned(found[-1], form), x=form)
                passage = yield from self._find(title, None, self._queries(form))
            found.append(passage)
        self._conclude(found, compares)

    def _conclude(self, found: list[_Passage], compares: bool) -> None:
        golden = self.question.golden_answers
        if _yes_or_no(golden):
            self._answer(golden[0], self._comparison(found[-2:], golden[0]))
            return
        for passage in reversed(found):
            if any(a in passage.text for a in golden):
                answer = _stated(golden, passage.text)
                self.evidence.append(answer)
                thought = self._comparison(found[-2:], answer) if compares else self._found(passage, answer)
                self._answer(answer, thought)
                return
        raise _Dropped("no supporting passage states the answer")

    def _chooses_between(self, titles: Sequence[str]) -> bool:
        golden = self.question.golden_answers
        return _yes_or_no(golden) or any(named(t, [Words.of(a)]) for a in golden for t in titles)

    # Searching

    def _find(
        self, title: str, sought: Sequence[str] | None, queries: Sequence[str]
    ) -> Generator[None, list[Document], _Passage]:
        """Search for the passage, once more in other words after a miss.

        Args:
            sought: the passage must state one of these; None: it is enough that it is the supporting one.
        """
        phrasings = list(dict.fromkeys(" ".join(q.split()[:QUERY_WORDS]) for q in queries))
        phrasings = [q for q in phrasings if q and q not in self._asked_before]
        self._rng.shuffle(phrasings)
        for query in phrasings[:2]:
            if len(self.results) == self._searches:
                raise _Dropped("needs more searches than allowed")
            self.query = query
            self._asked_before.add(query)
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
        body = self._protocol.observation([document], False).body
        start = body.find(document.text[:32]) if document.text else -1
        # What the protocol cut off can't be quoted; what it wrote around the text shouldn't be.
        shown = _common_start(body[start:], document.text) if start >= 0 else body
        return _Passage(document, Words.of(shown))

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
        said = quote(passage.text, phrase, content_words(self.question.question)) or phrase
        return self._rng.choice(FOUND).format(t=passage.document.title, f=said.strip(" ,.:;"))

    def _learned(self, passage: _Passage, phrase: str | None) -> str:
        if phrase is not None and phrase in passage.text:
            return self._found(passage, phrase)
        said = definition(passage.text)
        return f"{passage.document.title}: {said}." if said else f"I found {passage.document.title}."

    def _comparison(self, passages: Sequence[_Passage], answer: str) -> str:
        """What is known of the things compared: their years where those decide it, else what they are."""
        titles = [p.document.title for p in passages]
        years = [first_year(p.text) for p in passages]
        if len(passages) == 2 and _years_decide(self._asked, years, [answer in title_forms(t) for t in titles]):
            return " ".join(f"{t}: {year}." for t, year in zip(titles, years, strict=True))
        said = [f"{p.document.title}: {fact}." for p in passages if (fact := definition(p.text))]
        return " ".join(said) or self._learned(passages[-1], None)

    def _think(self, thoughts: Sequence[str], **words: Any) -> None:
        self._thought = self._rng.choice(thoughts).format(**words)

    def _say(self, action: Action) -> None:
        last = self._forced and len(self.results) == self._searches
        self.turns.append(self._protocol.write_turn(self._thought, action, last))

    def _answer(self, answer: str, thought: str) -> None:
        if len(Words.of(answer).words) > ANSWER_WORDS:
            raise _Dropped("the answer is long")
        self._thought = thought
        self._say(Action(ActionType.ANSWER, text=answer))


def _common_start(a: str, b: str) -> str:
    return a[: next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))]


def _yes_or_no(answers: Sequence[str]) -> bool:
    return any(a.strip().casefold() in ("yes", "no") for a in answers)


def _stated(answers: Sequence[str], text: Words) -> str:
    """Of the answers that the text states (there must be one) the first that is short, else the first."""
    stated = [a for a in answers if a in text]
    return next((a for a in stated if len(Words.of(a).words) <= ANSWER_WORDS), stated[0])


def _years_decide(asked: Words, years: Sequence[int | None], is_answer: Sequence[bool]) -> bool:
    """The question is which of two came first (or last), and the years say so."""
    a, b = years
    if a is None or b is None or a == b or is_answer[0] == is_answer[1]:
        return False
    earlier, later = bool(EARLIER & set(asked.words)), bool(LATER & set(asked.words))
    return earlier != later and (is_answer[0] == (a < b)) == earlier


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
