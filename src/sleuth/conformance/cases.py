"""The lines of the suite."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

FILES = {"G": "grading.jsonl", "E": "extraction.jsonl", "V": "evaluation.jsonl"}
"""Set → its file in this package."""

SEAMS = {
    "em": "exact match of a prediction with golden answers",
    "cover_em": "containment of a golden answer in a prediction",
    "load": "what is said of a row of a question set",
    "transcript": "the score of a whole rollout",
    "turn": "the action in one turn",
    "evaluator": "an evaluation of many rows",
    "resume": "a training run that is stopped and goes on",
}
"""What is asked of a line, and so which kind of function it can be put to."""


@dataclass(frozen=True, slots=True)
class Case:
    """One line: what goes in, and what has to come out (docs/conformance.md).

    Attributes:
        id: of its kind of fault, such as ``G4``; several lines share one.
        seam: one of :data:`SEAMS`.
    """

    id: str
    name: str
    seam: str
    input: dict[str, Any]
    expect: Any

    @property
    def set(self) -> str:
        """``G``, ``E`` or ``V``."""
        return self.id[0]

    @property
    def title(self) -> str:
        return f"{self.id} {self.name}"


@cache
def cases() -> tuple[Case, ...]:
    """All of them, in the order of the files."""
    return tuple(Case(**json.loads(line)) for name in FILES.values() for line in file_text(name).splitlines())


def file_text(name: str) -> str:
    """A data file as it is."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def golden_answers_of(case: Case) -> Any:
    """The golden answers in the form that the case is about: JSON has no arrays of numpy's."""
    raw = case.input["golden_answers"]
    if case.input.get("form") == "array":
        import numpy as np

        return np.array(raw)
    return raw


def transcript_text(case: Case, *, prompt: bool) -> str:
    """All that a rollout holds, policy and pages, as one text; ``prompt``: that in front."""
    return "".join(span["text"] for span in case.input["spans"] if prompt or span["kind"] != "prompt")


def evaluation_rows(count: int) -> list[dict[str, Any]]:
    """The rows of the evaluator's cases: two of three are answered right."""
    return [
        {
            "id": f"q{n}",
            "question": f"Question {n}?",
            "golden_answers": [f"answer {n}"],
            "response": f"<think>I know.</think><answer>{f'answer {n}' if n % 3 else 'something else'}</answer>",
        }
        for n in range(count)
    ]


def evaluation_expected(count: int) -> dict[str, float]:
    """id → exact match of :func:`evaluation_rows`."""
    return {f"q{n}": float(n % 3 != 0) for n in range(count)}
