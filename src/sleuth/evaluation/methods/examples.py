"""Two worked examples, written for Sleuth, that every method shows in its own form."""

from __future__ import annotations

from dataclasses import dataclass

from sleuth.types import Document


@dataclass(frozen=True, slots=True)
class Example:
    """``steps``: (thought, query, passage) of each search; ``conclusion``: the thought before the answer."""

    question: str
    steps: tuple[tuple[str, str, Document], ...]
    conclusion: str
    answer: str

    @property
    def thoughts(self) -> str:
        """What one would think who knows the facts."""
        facts = " ".join(document.text for _, _, document in self.steps)
        return f"{facts} {self.conclusion}"

    @property
    def documents(self) -> list[Document]:
        return [document for _, _, document in self.steps]


EXAMPLES = (
    Example(
        "In which country was the painter of The Night Watch born?",
        (
            (
                "I need to know who painted The Night Watch.",
                "The Night Watch painter",
                Document("", "The Night Watch", "The Night Watch is a painting of 1642 by Rembrandt van Rijn."),
            ),
            (
                "It was Rembrandt van Rijn. Now I need to know where he was born.",
                "Rembrandt van Rijn place of birth",
                Document("", "Rembrandt", "Rembrandt van Rijn was born in Leiden in the Netherlands."),
            ),
        ),
        "So the painter was born in the Netherlands.",
        "Netherlands",
    ),
    Example(
        "Which river is longer, the Rhine or the Elbe?",
        (
            (
                "I need the length of the Rhine.",
                "length of the Rhine",
                Document("", "Rhine", "The Rhine is about 1,230 kilometres long."),
            ),
            (
                "The Rhine has about 1,230 kilometres. Now I need the length of the Elbe.",
                "length of the Elbe",
                Document("", "Elbe", "The Elbe is about 1,090 kilometres long."),
            ),
        ),
        "1,230 is more than 1,090, so the Rhine is longer.",
        "the Rhine",
    ),
)
