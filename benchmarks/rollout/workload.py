"""The work that every contender does: prompts, observations, and how long things are."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import trl
from transformers import PreTrainedTokenizerBase

from sleuth.retrieval.bm25 import BM25Retriever
from sleuth.retrieval.corpus import Corpus
from sleuth.types import Document, SearchRequest
from sleuth.world.files import SplitSettings, WorldSet, WorldSetSettings

CHAT_TEMPLATE = (Path(trl.__file__).parent / "chat_templates" / "qwen2_5.jinja").read_text(encoding="utf-8")
"""TRL's own: its tool loop knows how to parse what this one renders."""

_ENOUGH_PASSAGES = 60


def search(query: str) -> str:
    """Search the corpus.

    Args:
        query: What to look for.

    Returns:
        The passages found.
    """
    raise NotImplementedError("only its signature is shown to the model; a contender brings its own")


@dataclass
class Workload:
    """``questions`` x ``group`` rollouts of ``turns`` turns: sampled tokens, an observation between any two turns.

    Questions and passages are HopWorld's, searched by BM25 with the question itself; each observation is what was
    found, cut to ``observation`` tokens, in the template's wrapping.
    """

    tokenizer: PreTrainedTokenizerBase
    questions: int
    group: int
    turns: int
    sampled: int
    observation: int
    _world: WorldSet = field(
        default_factory=lambda: WorldSet(WorldSetSettings(train=SplitSettings(worlds=8, questions=64)))
    )

    @property
    def rollouts(self) -> int:
        return self.questions * self.group

    @cached_property
    def messages(self) -> list[list[dict[str, Any]]]:
        """The prompt of each rollout as a conversation."""
        asked = self._world.questions("train")[: self.questions]
        return [[{"role": "user", "content": q.question}] for q in asked for _ in range(self.group)]

    @cached_property
    def prompts(self) -> list[str]:
        """The prompt of each rollout as text, with the tool described."""
        return [
            self.tokenizer.apply_chat_template(
                m, tools=[search], chat_template=CHAT_TEMPLATE, add_generation_prompt=True, tokenize=False
            )
            for m in self.messages
        ]

    @cached_property
    def observations(self) -> list[str]:
        """What each rollout is shown after any of its turns, without wrapping."""
        documents, parts = [], []
        for row in self._world.passages():
            documents.append(Document(row["id"], row["title"], row["text"]))
            parts.append(row["corpus"])
        retriever = BM25Retriever(Corpus(documents, parts))
        asked = self._world.questions("train")[: self.questions]
        found = retriever.search([SearchRequest(q.question, q.corpus) for q in asked], _ENOUGH_PASSAGES)
        texts = []
        for result in found:
            text = "\n".join(f"({d.title}) {d.text}" for d in result.documents)
            ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
            while len(ids) < self.observation:
                ids = ids + ids
            texts += [self.tokenizer.decode(ids[: self.observation])] * self.group
        return texts

    def wrapped(self, rollout: int) -> str:
        """An observation as the chat template puts it between two turns."""
        return (
            f"\n<|im_start|>user\n<tool_response>\n{self.observations[rollout]}\n</tool_response><|im_end|>\n"
            "<|im_start|>assistant\n"
        )
