"""A language model that plays the search engine (ZeroSearch, arXiv 2505.04588): no index, pages as bad as one likes.

Each query gets documents that the model writes: useful ones, or with a growing probability noisy ones, so that training
starts easy and ends hard. The paper's curriculum is kept, the wording of the prompts is our own, and the model is told
the query alone, not the question and its answer.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field

from sleuth.errors import UserError
from sleuth.jsonl import replace_surrogates
from sleuth.plugins import load_object
from sleuth.retrieval.analysis import clean_query
from sleuth.retrieval.client.answers import WrongAnswer
from sleuth.retrieval.client.http import HTTPRetriever, HTTPSettings
from sleuth.seeds import derive_seed
from sleuth.types import Document, SearchRequest, SearchResult

if TYPE_CHECKING:
    from sleuth.agent.codec import TokenCodec
    from sleuth.types import Sampler

USEFUL = """\
You play a search engine. Write {k} short documents (two or three sentences each) that such an engine would find for \
the query below. They hold the facts that whoever asks is looking for. Begin each on a line of its own with \
"Document", its number and a colon, and write nothing else.
Query: {query}"""

NOISY = """\
You play a bad search engine. Write {k} short documents (two or three sentences each) that look as if they were about \
the query below, share words with it, and do not hold the facts that whoever asks is looking for. Begin each on a line \
of its own with "Document", its number and a colon, and write nothing else.
Query: {query}"""

_DOCUMENT = re.compile(r"^\s*\**(?:Doc(?:ument)?)\.?\s*\d+\**\s*[:.)]\**\s*", re.IGNORECASE | re.MULTILINE)

Generate = Callable[[list[str]], list[str]]
"""Prompts in, as many texts out."""


class Curriculum(BaseModel):
    """How often documents are noisy: ``p = start + (base^(step/steps) − 1) / (base − 1) · (end − start)``.

    Attributes:
        start, end: the probability in the first and after the last step.
        base: above 1 it rises slowly first and fast later (the paper's 4); 1 is a straight line.
        steps: of the training; default: the recipe's.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    start: float = Field(default=0.0, ge=0, le=1)
    end: float = Field(default=0.5, ge=0, le=1)
    base: float = Field(default=4.0, ge=1)
    steps: int = Field(default=100, ge=1)

    def noise(self, step: int) -> float:
        """The probability in ``step``, counted from 1; outside of training (0) there is none."""
        if step <= 0:
            return 0.0
        done = min(step / self.steps, 1.0)
        risen = done if self.base == 1 else (self.base**done - 1) / (self.base - 1)
        return self.start + risen * (self.end - self.start)


class Script:
    """What the model is asked, and what its text says. The draw depends on seed, step and query alone."""

    def __init__(self, curriculum: Curriculum, seed: int, useful: str = USEFUL, noisy: str = NOISY) -> None:
        for prompt in (useful, noisy):
            if "{query}" not in prompt:
                raise UserError("a prompt of the simulated engine must contain {query}")
        self.curriculum, self._seed, self._useful, self._noisy = curriculum, seed, useful, noisy
        self.step = 0

    def is_noisy(self, query: str) -> bool:
        draw = random.Random(derive_seed(self._seed, "noise", str(self.step), query)).random()
        return draw < self.curriculum.noise(self.step)

    def prompt(self, query: str, k: int) -> str:
        text = self._noisy if self.is_noisy(query) else self._useful
        return text.replace("{k}", str(k)).replace("{query}", query)

    def documents(self, text: str, k: int) -> list[Document]:
        """The documents in what the model wrote.

        Raises:
            WrongAnswer: there are none.
        """
        pieces = _DOCUMENT.split(replace_surrogates(text))
        found = [piece.strip() for piece in pieces[1:] if piece.strip()]
        if not found:
            raise WrongAnswer("the model wrote no document")
        return [Document(hashlib.sha256(piece.encode()).hexdigest()[:16], "", piece) for piece in found[:k]]


class SimulatedEngine:
    """Over a function that generates, in process (:class:`sleuth.types.Retriever`)."""

    def __init__(self, generate: Generate, script: Script) -> None:
        self._generate, self._script = generate, script

    def at_step(self, step: int) -> None:
        """Told of the training step before its rollouts; 0 outside of training."""
        self._script.step = step

    def search(self, requests: Sequence[SearchRequest], k: int) -> list[SearchResult]:
        queries = list(dict.fromkeys(clean_query(request.query) for request in requests))
        try:
            texts = self._generate([self._script.prompt(query, k) for query in queries])
        except Exception as error:
            return [SearchResult(error=f"the simulating model failed: {type(error).__name__}") for _ in requests]
        if len(texts) != len(queries):
            return [SearchResult(error=f"{len(texts)} texts for {len(queries)} prompts") for _ in requests]
        found: dict[str, list[Document] | str] = {}
        for query, text in zip(queries, texts, strict=True):
            try:
                found[query] = self._script.documents(text, k)
            except WrongAnswer as wrong:
                found[query] = str(wrong)
        results = []
        for request in requests:
            outcome = found[clean_query(request.query)]
            failed = isinstance(outcome, str)
            results.append(SearchResult(error=outcome) if failed else SearchResult(list(outcome)))  # type: ignore[arg-type]
        return results


class ChatWire:
    """An OpenAI-compatible server (vLLM, SGLang, llama.cpp) as the model; one query a call."""

    def __init__(self, url: str, model: str, script: Script, temperature: float, key_variable: str) -> None:
        self._url, self._model, self._script = url, model, script
        self._temperature, self._key_variable = temperature, key_variable

    def request(self, queries: Sequence[str], k: int) -> tuple[str, str, dict[str, Any]]:
        body = {
            "model": self._model,
            "messages": [{"role": "user", "content": self._script.prompt(queries[0], k)}],
            "temperature": self._temperature,
            "max_tokens": 160 * k,
        }
        key = os.environ.get(self._key_variable)
        headers = {"content-type": "application/json", **({"authorization": f"Bearer {key}"} if key else {})}
        content = json.dumps(body, ensure_ascii=False).encode()
        return "POST", f"{self._url}/chat/completions", {"content": content, "headers": headers}

    def read(self, content: bytes, queries: int, k: int) -> list[list[Document]]:
        try:
            text = json.loads(content)["choices"][0]["message"]["content"]
        except (ValueError, LookupError, TypeError, RecursionError):
            raise WrongAnswer("the model's server sent no message") from None
        if not isinstance(text, str):
            raise WrongAnswer("the model's server sent no text")
        return [self._script.documents(text, k)]

    def quota_used_up(self, status: int, content: bytes) -> bool:
        return status == 429


class SimulatedServer(HTTPRetriever):
    """Over a server; time-outs, retries and circuit breaker are the client's. Nothing is cached."""

    def __init__(self, settings: HTTPSettings, wire: ChatWire, script: Script) -> None:
        super().__init__(settings, wire)
        self._script = script

    def at_step(self, step: int) -> None:
        """As :meth:`SimulatedEngine.at_step`."""
        self._script.step = step


class SimulatedSettings(BaseModel):
    """Which model plays, and how.

    Attributes:
        url: of an OpenAI-compatible server, with its ``/v1``; ``model``: its name there.
        generate: instead, a function of your own as ``module:function``: a list of prompts in, texts out.
        curriculum: see :class:`Curriculum`.
        useful, noisy: prompts; ``{query}`` and ``{k}`` are filled in.
        key_variable: environment variable with a key for the server.
        http: of :class:`sleuth.retrieval.client.http.HTTPSettings`: timeout, budget, attempts, …
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str | None = None
    model: str | None = None
    generate: str | None = None
    temperature: float = Field(default=0.7, ge=0)
    curriculum: Curriculum = Field(default_factory=Curriculum)
    useful: str = USEFUL
    noisy: str = NOISY
    key_variable: str = "OPENAI_API_KEY"
    http: dict[str, Any] = Field(default_factory=dict)


def simulated(settings: SimulatedSettings, *, seed: int, where: str) -> SimulatedEngine | SimulatedServer:
    """The engine that the settings describe.

    Raises:
        UserError: not one of url and generate, or what they name can't be used.
    """
    if (settings.url is None) == (settings.generate is None):
        raise UserError(f"{where}: a simulated engine needs either retriever.settings.url or .generate")
    script = Script(settings.curriculum, seed, settings.useful, settings.noisy)
    if settings.generate is not None:
        return SimulatedEngine(load_object(settings.generate), script)
    if settings.model is None:
        raise UserError(f"{where}: retriever.settings.model must name the model on {settings.url}")
    from sleuth.recipes.validation import validated

    given = {"timeout": 60.0, "budget": 180.0, **settings.http, "url": settings.url, "queries_per_call": 1}
    checked = validated(HTTPSettings, given, where=where, prefix="retriever.settings.http")
    wire = ChatWire(checked.url, settings.model, script, settings.temperature, settings.key_variable)
    return SimulatedServer(checked, wire, script)


def sampled_text(sampler: Sampler, codec: TokenCodec, *, max_tokens: int = 512, temperature: float = 0.7) -> Generate:
    """Any :class:`sleuth.types.Sampler` as the function that generates, e.g. a second model in the same process.

    The prompt is the user's message where the tokenizer has a chat template, else plain text.
    """
    from sleuth.agent.chat import ChatTemplate
    from sleuth.types import SampleRequest, SamplingParams, StopRule

    chat = ChatTemplate(codec, None) if codec.chat_template is not None else None
    rule = StopRule(complete=lambda ids: False, trigger_ids=frozenset(), end_ids=frozenset(codec.end_ids))

    def generate(prompts: list[str]) -> list[str]:
        requests = [
            SampleRequest(
                ("simulated", number),
                codec.encode_start(chat.prompt(prompt) if chat else prompt, bos=chat is None, foreign=prompt),
                max_tokens,
                rule,
                derive_seed(0, prompt),
            )
            for number, prompt in enumerate(prompts)
        ]
        try:
            done = sampler.sample(requests, SamplingParams(temperature))
        finally:
            sampler.release([request.key for request in requests])
        ends = codec.end_ids
        return [codec.decode([i for i in completion.ids if i not in ends]) for completion in done]

    return generate
