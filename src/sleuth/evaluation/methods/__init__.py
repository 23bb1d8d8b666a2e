"""The ways of answering that are compared on one footing, by name."""

from __future__ import annotations

from sleuth.evaluation.methods.chain_of_thought import chain_of_thought
from sleuth.evaluation.methods.direct import direct
from sleuth.evaluation.methods.ircot import ircot
from sleuth.evaluation.methods.method import Method
from sleuth.evaluation.methods.rag import rag
from sleuth.evaluation.methods.react import react
from sleuth.evaluation.methods.search_o1 import search_o1

AGENT = "agent"
"""The policy itself, in the protocol that it was trained in."""

METHODS: dict[str, Method] = {
    "direct": direct,
    "cot": chain_of_thought,
    "rag": rag,
    "ircot": ircot,
    "react": react,
    "search-o1": search_o1,
}
"""Everything that needs no training; cheapest first."""
