"""A stage for one rollout: scripted policy, pages on demand, everything recorded."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from sleuth.agent.batched import run_episodes
from sleuth.agent.codec import TokenCodec
from sleuth.agent.episode import Episode, Limits
from sleuth.agent.protocol import AgentProtocol
from sleuth.agent.tags import TagProtocol
from sleuth.samplers.scripted import ScriptedSampler
from sleuth.types import Document, Question, SamplingParams, SearchRequest, SearchResult, Trajectory

QUESTION = Question("q1", "What is the capital of France?", ["Paris"])
PAGE = Document("7", "Paris", "Paris is the capital of France.", 2.5)


class PageTurner:
    """A retriever that gives the same pages to every query, or does what ``answer`` says."""

    def __init__(
        self, pages: Sequence[Document] = (PAGE,), answer: Callable[[SearchRequest], SearchResult] | None = None
    ):
        self.pages = list(pages)
        self.answer = answer
        self.requests: list[SearchRequest] = []

    def search(self, requests: Sequence[SearchRequest], k: int) -> list[SearchResult]:
        self.requests.extend(requests)
        if self.answer is not None:
            return [self.answer(request) for request in requests]
        return [SearchResult(self.pages[:k]) for _ in requests]


@dataclass
class Played:
    trajectory: Trajectory
    queries: list[str]
    contexts: list[list[int]]
    """The ids that the sampler was given, turn by turn."""

    def text(self, codec: TokenCodec) -> str:
        t = self.trajectory
        return codec.decode(t.prompt_ids + t.completion_ids)


@pytest.fixture(scope="session")
def bpe(bpe_tokenizer) -> TokenCodec:
    return TokenCodec(bpe_tokenizer)


@pytest.fixture(scope="session")
def word(word_tokenizer) -> TokenCodec:
    return TokenCodec(word_tokenizer)


@pytest.fixture(scope="session", params=["word", "bpe", "sentencepiece", "wordpiece"])
def any_codec(request) -> TokenCodec:
    return TokenCodec(request.getfixturevalue(f"{request.param}_tokenizer"))


@pytest.fixture(scope="session")
def pages():
    """Makes a retriever: of pages that every query finds, or of ``answer``, which decides."""
    return lambda *pages, answer=None: PageTurner(pages, answer)


@pytest.fixture(scope="session")
def with_template(bpe_tokenizer):
    """Makes the byte-level codec of a tokenizer with this chat template."""

    def with_template(template: str | None) -> TokenCodec:
        tokenizer = copy.deepcopy(bpe_tokenizer)
        tokenizer.chat_template = template
        return TokenCodec(tokenizer)

    return with_template


@pytest.fixture(scope="session")
def play(bpe):
    """Runs one rollout. A turn is text (special tokens in it are recognised) or ids."""

    def play(
        *turns: str | Sequence[int],
        protocol: AgentProtocol | None = None,
        limits: Limits | None = None,
        retriever: PageTurner | None = None,
        question: Question = QUESTION,
        overshoot: bool = False,
    ) -> Played:
        protocol = protocol or TagProtocol(bpe)
        retriever = retriever or PageTurner()
        script = [protocol.codec.encode(t) if isinstance(t, str) else list(t) for t in turns]
        sampler = ScriptedSampler({0: script}, overshoot=overshoot)
        episode = Episode(question, protocol, limits or Limits(), id="r1")
        [trajectory] = run_episodes([episode], sampler, retriever, SamplingParams(), seeds=[0])
        queries = [r.query for r in retriever.requests]
        return Played(trajectory, queries, [r.ids for r in sampler.requests])

    return play
